"""Model files that were damaged, edited, or made by somebody who means harm."""

import json
import os
import struct
import threading
import time

from harness import (Failure, check_end, check_no_wild_numbers, check_same_verdict, check_sentence,
                     mutated)
from images import png

PIECES = [b"{", b"}", b"[", b"]", b'"', b"-1", b"1e999", b"18446744073709551616", b"null", b"\\ud800", b"\xff",
          b"\0", b'"dtype":"F32",', b'"shape":[2,3],', b"[" * 300]
# A model of some thousand weights in a second.
SMALL_TRAINING = ["--data", "shapes", "--train-images", "32", "--test-images", "16", "--depth", "1", "--width", "16",
                  "--heads", "1", "--mlp-ratio", "1", "--encoding", "sape2-k+ape", "--epochs", "1", "--batch-size", "16"]
EXTREMES = [0, -1, 1, 3, 10**6, 2**31, 2**63 - 1, -2**63, 2**64, 1e308, 0.5, None, True, "16", [], {}, [1] * 50]


def parts(data):
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + length]), data[8 + length:]


def joined(header, weights):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + weights


def without_checksum(data):
    header, weights = parts(data)
    header["__metadata__"] = {k: v for k, v in header["__metadata__"].items() if "checksum" not in k}
    return joined(header, weights)


class Models:
    name = "models"
    quick = 24

    def __init__(self, context):
        self.context = context
        self.model = self.model_of(context)
        with open(self.model, "rb") as file:
            self.intact = file.read()
        with open(os.path.join(context.folder, "picture.png"), "wb") as file:
            file.write(png(40, 30, 3))
        own = os.path.join(context.folder, self.name)
        os.makedirs(own)
        self.answers = {command: self.ask(command, self.model, own) for command in self.commands}
        if b"this build has no page" in self.answers["explorer"].err:
            del self.answers["explorer"]
        for command, result in self.answers.items():
            if result.code != 0:
                raise Failure(f"the intact model is refused by {command}: {result.shown()}")

    commands = ("predict", "eval", "convert", "explain", "info", "export", "explorer", "probe", "init")
    written = {"convert": "out.safetensors", "explain": "out.png", "export": "out.onnx", "explorer": "page", "init": "run"}

    @staticmethod
    def model_of(context):
        return context.model

    def arguments(self, command, model, folder):
        picture = os.path.join(self.context.folder, "picture.png")
        return {
            "predict": ["predict", model, picture, "--json"],
            "eval": ["eval", model, "--data", "shapes", "--images", "16", "--json"],
            "convert": ["convert", model, "--weights", "float32", "-o", os.path.join(folder, "out.safetensors")],
            "explain": ["explain", model, picture, "-o", os.path.join(folder, "out.png")],
            "info": ["info", model],
            "export": ["export", model, "-o", os.path.join(folder, "out.onnx")],
            "explorer": ["serve", model, "--data", "shapes", "--images", "2", "--export", os.path.join(folder, "page")],
            "probe": ["probe", model, "--probes", "translation", "--data", "shapes", "--images", "4", "--json"],
            "init": ["train", *SMALL_TRAINING, "--init", model, "--out", os.path.join(folder, "run")],
        }[command]

    def runtime_arguments(self, model, folder):
        return self.arguments("predict", model, folder)[1:4]

    def ask(self, command, model, folder):
        return self.context.program.run(self.arguments(command, model, folder), folder)

    def ask_runtime(self, result, model, folder):
        """The runtime without LibTorch reads the same file: the same verdict, for the same reason."""
        other = self.context.predict.run(self.runtime_arguments(model, folder), folder)
        check_same_verdict(result, other)
        if other.code == 0:
            check_no_wild_numbers(other)
        else:
            check_sentence(other, "sape2-predict")

    # What is done to the file, and whether the program must refuse it.

    def header_bytes(self, random):
        length = int.from_bytes(self.intact[:8], "little")
        changed = mutated(random, self.intact[8:8 + length], PIECES)
        return len(changed).to_bytes(8, "little") + changed + self.intact[8 + length:], False

    def any_bytes(self, random):
        return mutated(random, self.intact, PIECES), False

    def cut(self, random):
        return self.intact[:random.randrange(len(self.intact))], True

    def longer(self, random):
        return self.intact + random.randbytes(random.randint(1, 1000)), True

    def length(self, random):
        length = random.choice([0, 1, 2**63, 2**64 - 1, len(self.intact), random.randrange(2**40)])
        return struct.pack("<Q", length) + self.intact[8:], True

    def weight(self, random):
        """One bit of the weights, which only a checksum sees."""
        length = 8 + int.from_bytes(self.intact[:8], "little")
        data = bytearray(self.intact)
        data[random.randrange(length, len(data))] ^= 1 << random.randrange(8)
        return bytes(data), True

    def no_number(self, random):
        """One weight is NaN or infinite; half of the files have no checksum that would tell."""
        data = without_checksum(self.intact) if random.random() < 0.5 else self.intact
        length = 8 + int.from_bytes(data[:8], "little")
        place = length + 4 * random.randrange((len(data) - length) // 4)
        value = struct.pack("<f", random.choice([float("nan"), float("inf"), float("-inf")]))
        return data[:place] + value + data[place + 4:], True

    def config(self, random):
        """A value of the model's configuration, by somebody who leaves the checksum out."""
        header, weights = parts(without_checksum(self.intact))
        config = json.loads(header["__metadata__"]["sape2_config"])
        table = random.choice([config, config["vit"]])
        table[random.choice(sorted(table))] = random.choice(EXTREMES)
        header["__metadata__"]["sape2_config"] = json.dumps(config)
        return joined(header, weights), False

    def class_names(self, random):
        header, weights = parts(without_checksum(self.intact))
        config = json.loads(header["__metadata__"]["sape2_config"])
        name = random.choice(["x" * 100_000, "\x1b]0;title\x07\x1b[31m", "a\nb", "\0", "", "\u202e", "é" * 5000])
        config["class_names"][random.randrange(len(config["class_names"]))] = name
        header["__metadata__"]["sape2_config"] = json.dumps(config)
        return joined(header, weights), False

    def tensors(self, random):
        header, weights = parts(without_checksum(self.intact))
        names = [name for name in header if name != "__metadata__"]
        one, other = random.sample(names, 2)
        how = random.randrange(4)
        if how == 0:
            header[one], header[other] = header[other], header[one]
            different = header[one]["shape"] != header[other]["shape"]
            return joined(header, weights), different
        if how == 1:
            header[one + "x"] = header.pop(one)
        elif how == 2:
            header[one]["shape"] = header[one]["shape"][::-1] + [1]
        else:
            header[one]["dtype"] = random.choice(["I32", "F64", "F16", "BF16", "U8", "X"])
        return joined(header, weights), True

    def no_model(self, random):
        return random.choice([b"", b"\0", b"{}", random.randbytes(500), b"PK\3\4" + random.randbytes(500),
                              (2).to_bytes(8, "little") + b"{}"]), True

    kinds = (header_bytes, any_bytes, cut, longer, length, weight, no_number, config, class_names, tensors, no_model)

    def case(self, random, number, folder):
        if number % 12 == 11:
            return self.cut_while_read(random, folder)
        data, refused = self.kinds[number % 12](self, random)
        model = os.path.join(folder, "model.safetensors")
        with open(model, "wb") as file:
            file.write(data)
        command = random.choice(list(self.answers))
        result = self.ask(command, model, folder)
        if command == "predict" and self.context.predict is not None:
            self.ask_runtime(result, model, folder)
        if result.code != 0:
            check_sentence(result)
            begun = command == "init" and b"after epoch" in result.err  # such a run has a folder
            if not begun and os.path.exists(os.path.join(folder, self.written.get(command, "none"))):
                raise Failure(f"something is left of what was refused; {result.shown()}")
        elif refused:
            if result.out != self.answers[command].out or command in ("info", *self.written):
                check_sentence(result)
        else:
            check_no_wild_numbers(result)
        return 1

    def cut_while_read(self, random, folder):
        """The file becomes shorter while the program reads it."""
        model = os.path.join(folder, "model.safetensors")
        with open(model, "wb") as file:
            file.write(self.intact)
        wait, size = random.uniform(0, 0.5), random.choice([0, 9, len(self.intact) // 2])

        def cut():
            time.sleep(wait)
            os.truncate(model, size)

        thread = threading.Thread(target=cut)
        thread.start()
        runtime = self.context.predict is not None and random.random() < 0.5
        if runtime:
            result = self.context.predict.run(self.runtime_arguments(model, folder), folder)
        else:
            result = self.ask("predict", model, folder)
        thread.join()
        check_end(result)
        if result.code != 0:
            check_sentence(result, "sape2-predict" if runtime else "sape2")
        elif result.out != self.answers["predict"].out and not runtime:
            raise Failure(f"another answer with exit code 0; {result.shown()}")
        return 1


class Segmenters(Models):
    """The same for models whose answers are masks, which some programs must refuse."""

    name = "segmenters"
    quick = 12
    commands = ("predict", "eval", "convert", "explain", "info", "explorer", "probe", "init")
    written = {**Models.written, "predict": "masks"}

    @staticmethod
    def model_of(context):
        return context.segmenter

    def arguments(self, command, model, folder):
        chosen = super().arguments(command, model, folder)
        if command == "predict":
            return [*chosen, "--out", "masks"]
        return [*chosen, "--task", "segmentation"] if command == "init" else chosen

    def ask_runtime(self, result, model, folder):
        """It serves classifiers only, however the file was changed."""
        check_sentence(self.context.predict.run(self.runtime_arguments(model, folder), folder), "sape2-predict")
        check_sentence(self.ask("export", model, folder))
        if os.path.exists(os.path.join(folder, self.written["export"])):
            raise Failure("an ONNX file is left of a model that cannot be exported")
