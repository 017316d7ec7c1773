"""Every command line of `sape2` in the pages is one the program has: command, options, encodings. Blocks of shell
that a page marks to be run are run.

usage: commands_test.py SAPE2"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import pages

SAPE2 = ""


def command_lines(text):
    """The `sape2 …` lines of a page's blocks of shell and of its indented blocks, continued lines joined."""
    fenced = re.findall(r"^( *)```(?:sh|console|bash)?\n(.*?)^\1```[ \t]*$", text, flags=re.S | re.M)
    indented = re.findall(r"^ {4}(sape2 (?:[^\\\n]|\\.|\\\n)*)", pages.without_blocks(text), flags=re.M)
    for block in [block for _, block in fenced] + indented:
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"\s*sape2 ", line):
                yield shlex.split(line, comments=True)[1:]
    for span in re.findall(r"`sape2 ([^`\n]+)`", pages.without_blocks(text)):
        if re.match(r"[a-z]+( |$)", span) and "…" not in span:
            yield shlex.split(span)


def launched(words):
    """A command line in two where it launches another: what comes before that one's name, and that one."""
    if words[0] != "launch":
        return [words]
    inner = next((at for at, word in enumerate(words) if word in ("train", "compare", "bench")), len(words))
    return [part for part in (words[:inner], words[inner:]) if part]


def run(*arguments):
    return subprocess.run([SAPE2, *arguments], capture_output=True, text=True)


class Commands(unittest.TestCase):
    def test_every_command_line_of_the_pages_is_known(self):
        helps, count = {}, 0
        for page in pages.pages():
            for words in (part for line in command_lines(page.read_text(encoding="utf-8")) for part in launched(line)):
                command = words[:2] if words[0] in ("data", "bench") and len(words) > 1 else words[:1]
                count += 1
                with self.subTest(page=page.name, command=" ".join(words)):
                    if tuple(command) not in helps:
                        helps[tuple(command)] = run(*command, "--help")
                    told = helps[tuple(command)]
                    self.assertEqual(told.returncode, 0, told.stderr)
                    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", told.stdout)) | {"--threads"}
                    self.assertEqual([word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known], [])
        self.assertGreater(count, 30)

    def test_every_marked_block_of_shell_runs(self):
        blocks = [block for page in pages.pages() for block in pages.blocks_to_run(page) if block.language == "sh"]
        self.assertGreater(len(blocks), 0)
        for block in blocks:
            with self.subTest(page=block.page.name, block=block.name), tempfile.TemporaryDirectory() as folder:
                for name in ("models", "examples"):  # the tree as a reader sees it, but writing leaves no traces
                    os.symlink(pages.ROOT / name, pathlib.Path(folder) / name)
                path = f"{pathlib.Path(SAPE2).parent}{os.pathsep}{os.environ['PATH']}"
                ran = subprocess.run(["bash", "-euc", block.text], cwd=folder, capture_output=True, text=True,
                                     env={**os.environ, "PATH": path})
                self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_every_encoding_is_explained(self):
        encodings = [encoding["name"] for encoding in json.loads(run("info", "--json").stdout)["encodings"]]
        self.assertGreater(len(encodings), 10)
        for page, title in (("README.md", "## The encodings"), ("docs/method.md", "## Every encoding")):
            section = (pages.ROOT / page).read_text(encoding="utf-8").split(f"\n{title}\n")[1].split("\n## ")[0]
            rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
            named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
            self.assertEqual(sorted(named), sorted(encodings), page)

    def test_every_encoding_in_code_style_is_known(self):
        names = {name for page in pages.pages()
                 for name in re.findall(r"`'?((?:sape2|rope|rpe|cope|ape|lape)[a-z0-9-]*(?:\[[^\]`]*=[^\]`]*\])?(?:\+ape)?)'?`",
                                        pages.without_blocks(page.read_text(encoding="utf-8")))}
        names = {name for name in names if "[" in name or "+" in name}
        self.assertGreater(len(names), 3)
        for name in sorted(names):
            with self.subTest(encoding=name):
                told = run("info", "--encoding", name)
                self.assertEqual(told.returncode, 0, told.stderr)


if __name__ == "__main__":
    SAPE2 = sys.argv.pop()
    unittest.main(verbosity=2)
