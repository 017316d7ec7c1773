"""A file includes only its own layer and lower ones; layers that are to do without LibTorch do; each drawing,
network or digest library has one home. The list of layers is src/layers.txt, and docs/architecture.md has the same."""

import pathlib
import re
import tempfile
import unittest

from layers import GENERATED, ROOT, TORCH, Tree

# Beginnings of headers, and the layers that may include them.
HOMES = {"cairo": ["draw"], "curl/": ["data"], "openssl/": ["data"], "archive": ["io", "data"], "httplib": ["serve"],
         "CLI/": ["cli"]}


def faults(tree):
    """One sentence for each include that must not be, with the place and what to do."""
    for file in tree.files():
        layer = tree.layer(file)
        if layer is None:
            yield f"{file}:1: lies in no layer; name its folder in src/layers.txt, or move the file into a layer's"
            continue
        for line, name, target in tree.includes(file):
            where = f"{file}:{line}: layer {layer} includes {name}"
            if target is None:
                if name.startswith("sape2/") and name not in GENERATED:
                    yield f"{where}, which does not exist"
                for beginning, homes in HOMES.items():
                    if name.startswith(beginning) and layer not in homes:
                        yield f"{where}, which is for {' and '.join(homes)} alone; use what that layer offers"
                continue
            if file.startswith("include/") and not target.startswith("include/"):
                yield f"{where}, which is not installed; a public header can include public headers only"
            other = tree.layer(target)
            if other in tree.layers and tree.layers.index(other) > tree.layers.index(layer):
                yield (f"{where} of layer {other}, which lies above it; move what both need into a lower layer, "
                       f"or the file into {other}")
        if layer in tree.plain:
            yield from torch_faults(tree, file, layer)


def torch_faults(tree, file, layer):
    reached = tree.reached(file)
    for part in reached:
        for line, name, target in tree.includes(part):
            if target is None and name.startswith(TORCH):
                way = [part]
                while reached[way[-1]]:
                    way.append(reached[way[-1]])
                through = " by way of " + " and ".join(way[:-1]) if len(way) > 1 else ""
                yield (f"{file}: layer {layer} is to know no LibTorch, but includes <{name}>{through} "
                       f"({part}:{line}); split the header, or take `plain` from {layer} in src/layers.txt")
                return


class Includes(unittest.TestCase):
    def test_the_tree(self):
        found = list(faults(Tree()))
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_the_page_lists_the_same_layers(self):
        page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
        table = page[page.index("| layer |"):].split("\n\n")[0]
        self.assertEqual(re.findall(r"^\| `(\w+)` ", table, re.M), Tree().layers,
                         "docs/architecture.md and src/layers.txt name other layers, or in another order")


class Broken(unittest.TestCase):
    """Every kind of fault in a tree of two layers is found, with its place."""

    def found(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in {"src/layers.txt": "# two\nlow plain\nhigh\n", **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return list(faults(Tree(root)))

    def test_a_lower_layer_may_not_include_a_higher_one(self):
        files = {"include/sape2/high/a.h": "\n", "src/low/b.cpp": '// b\n#include "sape2/high/a.h"\n'}
        [fault] = self.found(files)
        self.assertTrue(fault.startswith("src/low/b.cpp:2: layer low includes sape2/high/a.h of layer high"), fault)
        self.assertEqual(self.found({"include/sape2/low/a.h": "\n", "src/high/b.cpp": "#include <sape2/low/a.h>\n"}), [])

    def test_a_public_header_may_not_include_a_private_one(self):
        [fault] = self.found({"src/low/a.h": "\n", "include/sape2/low/b.h": '#include "low/a.h"\n'})
        self.assertIn("include/sape2/low/b.h:1", fault)
        self.assertIn("not installed", fault)

    def test_torch_is_found_through_other_headers(self):
        files = {"src/low/a.h": "#include <ATen/ATen.h>\n", "src/low/b.cpp": '#include "low/a.h"\n'}
        direct, through = self.found(files)
        self.assertTrue(direct.startswith("src/low/a.h: layer low is to know no LibTorch"), direct)
        self.assertIn("by way of src/low/a.h", through)
        self.assertEqual(self.found({"src/high/a.h": "#include <ATen/ATen.h>\n"}), [])

    def test_a_file_outside_of_the_layers(self):
        [fault] = self.found({"src/other/a.cpp": "\n"})
        self.assertIn("src/other/a.cpp:1: lies in no layer", fault)

    def test_a_library_away_from_its_home(self):
        [fault] = self.found({"src/high/a.cpp": "\n#include <cairo-pdf.h>\n"})
        self.assertIn("src/high/a.cpp:2", fault)
        self.assertIn("draw alone", fault)

    def test_a_header_that_is_not_there(self):
        [fault] = self.found({"src/high/a.cpp": '#include "sape2/high/gone.h"\n'})
        self.assertIn("does not exist", fault)


if __name__ == "__main__":
    unittest.main()
