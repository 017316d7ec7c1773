"""The API reference of the package as pages, made from its docstrings by pdoc.

usage: python python/reference.py FOLDER     (open FOLDER/index.html; needs the package, and pip install pdoc)
"""

from __future__ import annotations

import sys
from pathlib import Path

import sape2


def write(folder: Path) -> None:
    """Writes a page per public module."""
    try:
        import pdoc
        import pdoc.render
    except ImportError:
        sys.exit("reference.py: pdoc is not installed; pip install pdoc")
    pdoc.render.configure(docformat="google", footer_text=f"sape2 {sape2.__version__}", search=True)
    pdoc.pdoc("sape2", output_directory=folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python python/reference.py FOLDER")
    write(Path(sys.argv[1]))
