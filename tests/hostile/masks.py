"""Images with masks: masks that are damaged or lie, and folders of them, also in the layout of Oxford-IIIT Pet."""

import os
import shutil
import struct
import zlib

from harness import Failure, check_no_wild_numbers, check_sentence, mutated
from images import SIGNATURE, chunk, lying_png, png, seeds

SIDE = 16
TRAIN = ["train", "--task", "segmentation", "--image-size", str(SIDE), "--depth", "1", "--width", "16", "--heads", "1",
         "--mlp-ratio", "1", "--epochs", "1", "--batch-size", "2", "--out", "run"]
BITS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # samples of a pixel, by the colour type
BREEDS = 37
LISTS = ("test.txt", "trainval.txt")


def mask(height=SIDE, width=SIDE, labels=(0, 1), depth=8, colour=0, interlaced=0):
    """A PNG of stripes; one of other colours or depths has bytes enough for its header."""
    length = (width * BITS[colour] * depth + 7) // 8
    rows = b"".join(b"\0" + bytes(labels[(x + y) % len(labels)] for x in range(length)) for y in range(height))
    return (SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
            + (chunk(b"PLTE", bytes(range(9))) if colour == 3 else b"")
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def wrong_masks(random):
    """Each of them must be refused."""
    return [mask(height=SIDE - 1), mask(width=SIDE + 1), mask(labels=(0, 1, random.randrange(4, 255))), mask(depth=16),
            mask(colour=2), mask(colour=4), mask(colour=6), mask(interlaced=1), mask()[:random.randrange(8, 60)], b"",
            mask(2000, 2000)[:200], mask(8192, 8192)[:300]]


class Masks:
    name = "masks"
    quick = 10

    def __init__(self, context):
        self.context = context
        self.originals = seeds(os.path.dirname(os.path.abspath(__file__)))
        for data in (self.write_folder, self.write_pets):
            own = os.path.join(context.folder, data.__name__)
            if self.train(data(own), own, refused=False) != 2:
                raise Failure("intact images with masks are refused")

    def case(self, random, number, folder):
        if number % 2:
            return self.pets(random, number // 2, folder)
        return self.folder(random, number // 2, folder)

    def train(self, data, folder, refused):
        result = self.context.program.run([*TRAIN, *data], folder, seconds=30)
        if result.code == 0 and not refused:
            check_no_wild_numbers(result)
            after = self.context.program.run(["eval", "run", *data, "--json"], folder)
            if after.code != 0:
                raise Failure(f"what was trained on cannot be evaluated: {after.shown()}")
            check_no_wild_numbers(after)
            return 2
        check_sentence(result)
        if os.path.exists(os.path.join(folder, "run")):
            raise Failure(f"a run is left of data that was refused; {result.shown()}")
        return 1

    def write_folder(self, folder):
        """images/ and masks/ of two splits; the arguments that name them."""
        root = os.path.join(folder, "data")
        for split in ("train", "test"):
            for i in range(4):
                write(os.path.join(root, split, "images", f"{i}.png"), png(SIDE, SIDE, 40 * i))
                write(os.path.join(root, split, "masks", f"{i}.png"), mask())
        write(os.path.join(root, "classes.txt"), b"ground\nobject\nsky\n")
        return ["--data", "folder:" + root]

    def folder(self, random, number, folder):
        data, root = self.write_folder(folder), os.path.join(folder, "data")
        part = os.path.join(root, random.choice(["train", "test"]))
        refused = False
        if number % 3 == 0:
            write(os.path.join(part, "masks", "1.png"), random.choice(wrong_masks(random)))
            refused = True
        elif number % 3 == 1:
            damaged = [lying_png(random), random.choice(self.originals), mutated(random, mask(), [b"\0" * 8])]
            write(os.path.join(part, "masks", "1.png"), random.choice(damaged))
        else:
            refused = self.spoil(random, os.path.join(part, random.choice(["images", "masks"])), "1.png")
            if random.random() < 0.3:
                names = [b"", b"one\n", b"\xff\xfe\nx\n", b"a\n" * 300, b"x" * 200_000 + b"\ny\n"]
                write(os.path.join(root, "classes.txt"), random.choice(names))
                refused = True
        return self.train(data, folder, refused)

    def spoil(self, random, place, name):
        """Something in the place of a file, or of its whole folder. All of it must be refused."""
        path = os.path.join(place, name)
        how = random.randrange(7)
        os.remove(path)
        if how == 1:
            os.mkdir(path)
        elif how == 2:
            os.symlink(name, path)
        elif how == 3:
            os.mkfifo(path)
        elif how == 4:
            os.symlink("/dev/zero", path)
        elif how >= 5:
            shutil.rmtree(place)
            if how == 6:
                os.symlink(os.path.basename(place), place)
        return True

    def write_pets(self, folder):
        """The files of Oxford-IIIT Pet; the arguments that name them."""
        root = os.path.join(folder, "pets")
        for name in LISTS:
            pets = [f"Breed_{breed}_{name[0]}" for breed in range(1, BREEDS + 1)]
            lines = "".join(f"{pet} {i + 1} {i % 2 + 1} 1\n" for i, pet in enumerate(pets))
            write(os.path.join(root, "annotations", name), lines.encode())
            for pet in pets:
                write(os.path.join(root, "images", pet + ".jpg"), png(SIDE, SIDE, 7))
                write(os.path.join(root, "annotations", "trimaps", pet + ".png"), mask(labels=(1, 2, 3)))
        return ["--data", "oxford-pets", "--root", root]

    def pets(self, random, number, folder):
        """The same as somebody else packed them."""
        data, root = self.write_pets(folder), os.path.join(folder, "pets")
        path = os.path.join(root, "annotations", random.choice(LISTS))
        refused = False
        how = number % 4
        if how == 0:
            with open(path, "rb") as file:
                listed = file.read()
            write(path, mutated(random, listed, [b"../../x 1 1 1\n", b"/etc/passwd 1 1\n", b"\0", b"\xff", b" 38", b"-1",
                                                 b"x" * 70_000, b"\n\n#\n", b"99999999999999999999"]))
        elif how == 1:
            place = random.choice(["images", os.path.join("annotations", "trimaps")])
            pet = random.choice(["Breed_5_t", "Breed_37_t"])
            refused = self.spoil(random, os.path.join(root, place), pet + (".jpg" if place == "images" else ".png"))
        elif how == 2:
            wrong = [mask(labels=(0, 1)), mask(labels=(1, 4)), mask(height=SIDE + 1, labels=(1, 2)), mask(depth=16), b""]
            write(os.path.join(root, "annotations", "trimaps", "Breed_9_t.png"), random.choice(wrong))
            refused = True
        else:
            write(path, random.choice([b"", b"#\n", b"a 1 1\n" * 200_000, b"Breed_1_t 38 1 1\n"]))
            refused = True
        return self.train(data, folder, refused)


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
