"""Every block of Python that a page marks to be run does run, as it stands, from the root of the tree.

usage: python_blocks_test.py BUILD     (the build folder, which stands for the page's build/release)"""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

import pages

BUILD = ""
# Packages that the tests do without: a block that imports one is run if it is there.
OPTIONAL = ["sape2", "safetensors"]


class PythonBlocks(unittest.TestCase):
    def test_every_marked_block_runs(self):
        count = 0
        for page in pages.pages():
            blocks = {block.name: block for block in pages.blocks_to_run(page) if block.language == "python"}
            count += len(blocks)
            for block in blocks.values():
                with self.subTest(page=page.name, block=block.name):
                    for name in OPTIONAL:
                        if re.search(rf"^(import|from) {name}\b", block.text, flags=re.M) and not importlib.util.find_spec(name):
                            self.skipTest(f"the Python package {name} is not installed")
                    before = blocks[block.after].text if block.after else ""
                    code = (before + block.text).replace("build/release/", f"{BUILD}/")
                    ran = subprocess.run([sys.executable, "-c", code], cwd=pages.ROOT, capture_output=True, text=True,
                                         env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})
                    self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertGreater(count, 4)


if __name__ == "__main__":
    BUILD = sys.argv.pop()
    unittest.main(verbosity=2)
