"""PNG and JPEG files that are damaged or lie, and folders of images."""

import json
import os
import struct
import zlib

from harness import Failure, check_no_wild_numbers, check_sentence, mutated

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(height, width, seed, depth=8, colour=2):
    rows = b"".join(b"\0" + bytes((x * 7 + y * 13 + seed) % 256 for x in range(width * CHANNELS[colour] * depth // 8))
                    for y in range(height))
    return (SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
            + (chunk(b"PLTE", bytes(range(30))) if colour == 3 else b"")
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def lying_png(random):
    """Chunks with right checksums and wrong content."""
    size = lambda: random.choice([0, 1, 7, 40, 1000, 65536, 10**6, 2**31 - 1, 2**31, 2**32 - 1])
    header = struct.pack(">IIBBBBB", size(), size(), random.choice([1, 2, 4, 8, 16, 3, 0]),
                         random.choice([0, 2, 3, 4, 6, 1, 255]), random.choice([0, 0, 1]), 0, random.choice([0, 1, 2]))
    data = random.choice([zlib.compress(bytes(50 << 20), 9), zlib.compress(b"\0" * 100), random.randbytes(200), b""])
    chunks = [chunk(b"IHDR", header), chunk(b"PLTE", random.randbytes(random.choice([0, 3, 768, 769]))),
              chunk(b"tRNS", random.randbytes(random.randrange(300))), chunk(b"IDAT", data),
              chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(20 << 20), 9)), chunk(b"IEND", b"")]
    for _ in range(random.randrange(3)):
        del chunks[random.randrange(1, len(chunks))]
    return SIGNATURE + b"".join(chunks)


def seeds(folder):
    found = []
    for kind in ("png", "jpeg"):
        place = os.path.join(folder, "corpus", kind)
        for name in sorted(os.listdir(place)):
            with open(os.path.join(place, name), "rb") as file:
                found.append(file.read())
    return found


def hostile_image(random, originals):
    how = random.randrange(5)
    if how == 0:
        return lying_png(random)
    if how == 1:
        return random.choice([b"", b"\xff\xd8\xff", SIGNATURE, random.randbytes(100), b"GIF89a" + bytes(50)])
    return mutated(random, random.choice(originals), [b"\xff\xd9", b"\xff\xda", b"\xff\xc0\0\x11\x08", b"\0" * 8])


# Whatever a file name can hold.
FILES = [b"\x1b[31m\x07.png", b"\xff\xfe.png", b"a\nb.png", b"picture.jpg", b"-h.png"]
CLASSES = [b"\xff\xfe", b"\x1b[31mred", b"a\nb", b"a b", b"x" * 250, "日本".encode(), b"-rf", b"..."]


class Images:
    name = "images"
    quick = 16

    def __init__(self, context):
        self.context = context
        self.originals = seeds(os.path.dirname(os.path.abspath(__file__)))

    def case(self, random, number, folder):
        kinds = (self.damaged_file, self.odd_name, self.damaged_file, self.folder)
        return kinds[number % 4](random, number // 4, folder)

    def predict(self, name, image, folder, *options):
        path = os.path.join(os.fsencode(folder), name)
        with open(path, "wb") as file:
            file.write(image)
        result = self.context.program.run(["predict", self.context.model, path, *options], folder)
        if result.code != 0:
            check_sentence(result)
        else:
            check_no_wild_numbers(result)
        return result

    def damaged_file(self, random, _, folder):
        result = self.predict(random.choice(FILES), hostile_image(random, self.originals), folder, "--json")
        if result.code == 0:
            try:
                json.loads(result.out)
            except ValueError:
                raise Failure(f"the answer is no JSON; {result.shown()}") from None
        return 1

    def odd_name(self, random, number, folder):
        result = self.predict(FILES[number % len(FILES)], png(20, 20, random.randrange(256)), folder)
        if result.code != 0:
            raise Failure(f"a good image is refused; {result.shown()}")
        return 1

    def folder(self, random, number, folder):
        """A folder of class folders. What is trained on must be fit for evaluation afterwards."""
        root = os.path.join(os.fsencode(folder), b"images")
        for split in (b"train", b"test"):
            for name in (b"plain", CLASSES[number % len(CLASSES)]):
                place = os.path.join(root, split, name)
                os.makedirs(place, exist_ok=True)
                for i in range(4):
                    with open(os.path.join(place, b"%d.png" % i), "wb") as file:
                        file.write(png(16, 16, 40 * i))
        if number % 2:
            self.spoil_folder(random, number // 2 % 6, root)
        data = ["--data", b"folder:" + root]
        size = ["--image-size", "16", "--depth", "1", "--width", "16", "--heads", "1", "--mlp-ratio", "1"]
        result = self.context.program.run(
            ["train", *data, *size, "--epochs", "1", "--batch-size", "4", "--out", "run"], folder, seconds=30)
        if result.code != 0:
            check_sentence(result)
            return 1
        after = self.context.program.run(["eval", "run", *data], folder)
        if after.code != 0:
            raise Failure(f"what was trained on cannot be evaluated: {after.shown()}")
        check_no_wild_numbers(after)
        return 2

    def spoil_folder(self, random, how, root):
        place = os.path.join(root, random.choice([b"train", b"test"]), b"plain")
        if how == 0:
            os.symlink(place, os.path.join(place, b"loop"))
        elif how == 1:
            os.symlink(b"self.png", os.path.join(place, b"self.png"))
        elif how == 2:
            os.mkdir(os.path.join(place, b"folder.png"))
        elif how == 3:
            with open(os.path.join(place, b"0.png"), "wb") as file:
                file.write(hostile_image(random, self.originals))
        elif how == 4:
            os.mkfifo(os.path.join(place, b"pipe.png"))
        elif how == 5:
            os.symlink(root, os.path.join(root, b"train", b"loop"))
