"""Writes one marked block of a page to a file, for the build; a file that has it already is left alone.

usage: extract.py PAGE NAME OUTPUT"""

import pathlib
import sys

import pages

page, name, output = sys.argv[1:]
found = [block.text for block in pages.blocks_to_run(pathlib.Path(page)) if block.name == name]
if len(found) != 1:
    sys.exit(f"extract.py: {page} has {len(found)} blocks marked <!-- run {name} -->, expected one")
file = pathlib.Path(output)
if not file.exists() or file.read_text(encoding="utf-8") != found[0]:
    file.write_text(found[0], encoding="utf-8")
