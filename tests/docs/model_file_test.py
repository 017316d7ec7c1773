"""docs/model-file.md names every tensor with its shape, and every key of the metadata; its code gives the
program's own answers.

usage: model_file_test.py OUTLINES SAPE2     (the programs model_outlines and sape2)"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import torch

import pages

PAGE = pages.ROOT / "docs" / "model-file.md"
MODELS = sorted((pages.ROOT / "models").glob("*.safetensors"))
OUTLINES, SAPE2 = "", ""


def segments(model):
    return model["config"].get("task") == "segmentation"


WHEN = {
    "every model": lambda m: True,
    "pooling class-token": lambda m: m["vit"]["pooling"] == "class-token",
    "classification with pooling mean": lambda m: not segments(m) and m["vit"]["pooling"] == "mean",
    "classification with pooling sequence": lambda m: not segments(m) and m["vit"]["pooling"] == "sequence",
    "pooling class-token or sequence": lambda m: m["vit"]["pooling"] != "mean",
    "segmentation": lambda m: segments(m),
    "R > 0": lambda m: m["vit"]["registers"] > 0,
    "LayerScale": lambda m: m["vit"]["layer_scale"] is not None,
    "`+ape`": lambda m: m["ape"],
    "`sape2-*`": lambda m: re.fullmatch("sape2-(q|k|qk)", m["name"]),
    "`sape2-rel-*`": lambda m: m["name"].startswith("sape2-rel-"),
}


def applies(words, model):
    """Whether a row of the page, by its column "in", is about a model."""
    for word in ([words] if words in WHEN else words.split(", ")):
        option = re.fullmatch(r"`([a-z-]+)=([a-z-]+)`", word)
        if word in WHEN:
            found = WHEN[word](model)
        elif option:
            found = model["options"].get(option[1]) == option[2]
        else:
            found = model["name"] == word.strip("`")
        if found:
            return True
    return False


def symbols(model):
    """What the page's symbols stand for in a model."""
    vit, options = model["vit"], model["options"]
    (high, wide), patch = vit["image_size"], vit["patch_size"]
    it = {"D": vit["width"], "h": vit["heads"], "d": vit["width"] // vit["heads"], "F": int(vit["width"] * vit["mlp_ratio"]),
          "H": high // patch[0], "W": wide // patch[1], "C": vit["channels"], "K": vit["classes"], "R": vit["registers"],
          "patch_height": patch[0], "patch_width": patch[1]}
    it["N"] = it["R"] + (vit["pooling"] == "class-token") + it["H"] * it["W"]
    longest = max(it["H"], it["W"])
    default = {"suffix": longest + 1, "between": 2 * longest - 1}.get(options.get("span"), max(2, min(it["N"], 64)))
    it["M"] = options.get("M") or default
    return it


def shape(words, tensor, model):
    """The shape a row of the page gives a tensor of a model."""
    options = model["options"]
    if tensor.endswith(".gain"):
        words = "h" if options["gain-mode"] == "per-head" else ""
    sizes = [] if not words else [part.strip().replace("patch ", "patch_") for part in words.split(",")]
    sizes = [eval(part.replace("·", "*").replace("−", "-").replace("/", "//"), {}, symbols(model)) for part in sizes]
    if re.search(r"\.e[xy]$", tensor):  # the axes that two options put in front
        sizes = ([symbols(model)["h"]] if options["tables"] == "per-head" else []) + sizes
        sizes = ([2] if model["name"].endswith("qk") else []) + sizes
    return sizes


def page_rows():
    """(tensor names, shape, in) of every row of the page's tables of tensors."""
    text = PAGE.read_text(encoding="utf-8")
    for table in re.findall(r"^\| tensor \| shape \| in \| meaning \|\n\|[-|]+\n((?:\|.*\n)+)", text, flags=re.M):
        for line in table.splitlines():
            names, sizes, where = [cell.strip() for cell in line.split("|")[1:4]]
            yield re.findall(r"`([^`]+)`", names), sizes, where


def expected(model):
    """Names and shapes of a model's tensors as the page has them."""
    tensors = {}
    for names, sizes, where in page_rows():
        if not applies(where, model):
            continue
        for name in names:
            layers = range(model["vit"]["depth"]) if ".i." in name else [None]
            for layer in layers:
                tensors[name.replace(".i.", f".{layer}.")] = shape(sizes, name, model)
    return tensors


def header(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


def keys_of(config):
    return {f"vit.{key}" for key in config["vit"]} | (set(config) - {"vit"})


def first_column(title):
    """The names in code style in the first column of the first table behind a title."""
    text = PAGE.read_text(encoding="utf-8").split(title, 1)[1]
    table = re.search(r"\|[-|]+\n((?:\|.*\n)+)", text)[1]
    return {name for line in table.splitlines() for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


def png(pixels):
    """(height, width, 3) bytes as a PNG file."""
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + bytes(line.flatten().tolist()) for line in pixels)
    size = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) + part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b"")


class ModelFile(unittest.TestCase):
    def test_every_tensor_of_every_encoding_is_on_the_page_and_no_other(self):
        models = json.loads(subprocess.run([OUTLINES], check=True, capture_output=True, text=True).stdout)
        self.assertGreater(len(models), 100)
        for model in models:
            model["vit"] = model["config"]["vit"]
            with self.subTest(encoding=model["config"]["encoding"], pooling=model["vit"]["pooling"]):
                self.assertEqual(expected(model), model["tensors"])

    def test_every_key_of_the_metadata_is_on_the_page_and_no_other(self):
        for path in MODELS:
            metadata = header(path)["__metadata__"]
            self.assertEqual(set(metadata), first_column("## Metadata"))
            # Classifiers do not name their task.
            self.assertEqual(keys_of(json.loads(metadata["sape2_config"])) | {"task"}, first_column("The configuration has these keys"))

    def test_the_key_that_classifiers_lack_is_that_of_other_tasks(self):
        models = json.loads(subprocess.run([OUTLINES], check=True, capture_output=True, text=True).stdout)
        self.assertEqual({model["config"].get("task") for model in models}, {None, "segmentation"})

    def test_the_logits_by_hand_are_the_programs(self):
        names = {}
        for block in pages.blocks_to_run(PAGE):
            if block.name in ("load", "by_hand"):
                exec(compile(block.text, f"{PAGE.name}, {block.name}", "exec"), names)
        rows, cols = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
        # Of little contrast, so that LayerNorm's epsilon can be told from another.
        pixels = 124 + torch.stack([rows // 8, cols // 8, ((rows - 16) ** 2 + (cols - 12) ** 2 < 80) * 3], -1)
        self.assertEqual(len(MODELS), 2)
        with tempfile.TemporaryDirectory() as folder:
            image = pathlib.Path(folder) / "image.png"
            image.write_bytes(png(pixels))
            for model in MODELS:
                ours = subprocess.run([SAPE2, "predict", model, image, "--top", "10", "--json"], check=True,
                                      capture_output=True, text=True).stdout
                ours = {p["index"]: p["probability"] for p in json.loads(ours)[0]["predictions"]}
                by_hand = names["logits"](*names["load"](model), pixels.permute(2, 0, 1)[None]).softmax(-1)[0]
                program = torch.tensor([ours[index] for index in range(10)])
                torch.testing.assert_close(by_hand, program, rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    SAPE2, OUTLINES = sys.argv.pop(), sys.argv.pop()
    unittest.main(verbosity=2)
