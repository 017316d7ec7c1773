"""Every header compiles by itself: one file that includes it and nothing else, checked but not compiled.

LibTorch takes seconds to read, so a header that includes one of a few heavy headers, itself or through ours, gets it
precompiled. That hides nothing: the header would have read it anyway, and a header of ours that relies on another
header's includes is found when its own turn comes.
usage: headers_test.py BUILD [unittest arguments…]     (BUILD: a build folder, whose flags and compiler are used)
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

from layers import Tree

# Heavy first: a header gets the first of these that it includes.
PRECOMPILED = ["torch/library.h", "ATen/ATen.h", "ATen/core/Tensor.h", "filesystem"]
# Headers that ordinary C++ cannot read without an accelerator's toolkit.
TOOLKITS = ("cuda", "cooperative_groups", "cub/")


class Compiler:
    """The compiler and flags of a build folder's sources."""

    def __init__(self, build, scratch):
        self.scratch, commands = scratch, json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        flags = {}
        for entry in commands:
            words = shlex.split(entry["command"])
            if "/src/" not in entry["file"] or "nvcc" in words[0]:
                continue
            self.program = next(word for word in words if not word.endswith("ccache"))
            for word, following in zip(words, words[1:]):
                if word == "-isystem":
                    flags[word, following] = None
                elif word.startswith(("-I", "-D", "-std=")):
                    flags[word,] = None
        self.flags = [word for flag in flags for word in flag]

    def run(self, *arguments, text=None):
        return subprocess.run([self.program, *self.flags, *arguments], input=text, text=True, capture_output=True)

    def precompile(self, name):
        header = self.scratch / name.replace("/", "_")
        header.write_text(f"#include <{name}>\n", encoding="utf-8")
        done = self.run("-x", "c++-header", str(header), "-o", f"{header}.gch")
        if done.returncode:
            raise RuntimeError(f"<{name}> cannot be read:\n{done.stderr}")

    def fault(self, name, precompiled):
        """What keeps a header from being read alone; nothing if nothing does."""
        first = ["-include", str(self.scratch / precompiled.replace("/", "_"))] if precompiled else []
        done = self.run(*first, "-x", "c++", "-fsyntax-only", "-", text=f'#include "{name}"\n')
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        return (errors or done.stderr.splitlines())[0]


def faults(tree, compiler):
    """One sentence for each header that does not compile alone."""
    jobs = {}
    for file in tree.files((".h",)):
        outside = tree.outside(file)
        if not any(name.startswith(TOOLKITS) for name in outside):
            jobs[file] = next((name for name in PRECOMPILED if name in outside), None)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiler.precompile, {name for name in jobs.values() if name}))
        paths = [str(tree.root / file) for file in jobs]
        for file, fault in zip(jobs, pool.map(compiler.fault, paths, jobs.values())):
            if fault:
                yield f"{file} does not compile alone; include in it what it uses: {fault}"


class Headers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name).resolve()
        self.compiler = Compiler(BUILD, self.scratch)

    def test_the_tree(self):
        tree = Tree()
        self.assertGreater(len(tree.files((".h",))), 100)
        found = list(faults(tree, self.compiler))
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_one_that_relies_on_another(self):
        """What is missing is found, although the precompiled header holds it or another header came first."""
        headers = {"a.h": "#pragma once\n#include <ATen/core/Tensor.h>\n#include <string>\n",
                   "b.h": "#pragma once\ninline std::string b(const at::Tensor&);\n",
                   "c.h": '#pragma once\n#include "low/a.h"\n#include "low/b.h"\n'}
        (self.scratch / "src/low").mkdir(parents=True)
        (self.scratch / "src/layers.txt").write_text("low\n", encoding="utf-8")
        for name, text in headers.items():
            (self.scratch / "src/low" / name).write_text(text, encoding="utf-8")
        self.compiler.flags.append(f"-I{self.scratch}/src")
        [fault] = faults(Tree(self.scratch), self.compiler)
        self.assertTrue(fault.startswith("src/low/b.h does not compile alone"), fault)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
