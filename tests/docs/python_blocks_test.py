"""Every block of Python that a page marks to be run does run, as it stands, from the root of the tree.

usage: python_blocks_test.py BUILD     (the build folder, which stands for the page's build/release)"""

import importlib.util
import os
import subprocess
import sys
import unittest

import pages

BUILD = ""
# Packages that the tests do without: a block that imports one is run if it is there.
OPTIONAL = ["sape2", "safetensors"]


class PythonBlocks(unittest.TestCase):
    def test_every_marked_block_runs(self):
        blocks = [(page, [b for b in pages.blocks_to_run(page) if b.language == "python"]) for page in pages.pages()]
        self.assertGreater(sum(len(found) for _, found in blocks), 4)
        for page, found in blocks:
            code = []  # a page is run as one program: its blocks build on each other
            for block in found:
                absent = [name for name in OPTIONAL if f"\nimport {name}" in "\n" + block.text
                          or f"\nfrom {name}" in "\n" + block.text if importlib.util.find_spec(name) is None]
                with self.subTest(page=page.name, block=block.name):
                    if absent:
                        self.skipTest(f"the Python package {absent[0]} is not installed")
                    code.append(block.text.replace("build/release/", f"{BUILD}/"))
                    ran = subprocess.run([sys.executable, "-c", "\n".join(code)], cwd=pages.ROOT, capture_output=True,
                                         text=True, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})
                    self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    BUILD = sys.argv.pop()
    unittest.main(verbosity=2)
