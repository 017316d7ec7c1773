"""The layers of the tree (src/layers.txt), its files, and what they include."""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')
TORCH = ("ATen/", "c10/", "torch/")
# Made by CMake; they say what was built, and every layer may ask.
GENERATED = {"sape2/components.h", "sape2/version.h"}


class Tree:
    def __init__(self, root=ROOT):
        self.root = root
        lines = (root / "src/layers.txt").read_text(encoding="utf-8").splitlines()
        words = [line.split() for line in lines if line and not line.startswith("#")]
        self.layers = [first for first, *_ in words]
        self.plain = {first for first, *rest in words if "plain" in rest}

    def files(self, endings=(".h", ".cpp", ".cu", ".cuh")):
        """Sources and headers, sorted, as paths from the root."""
        found = [path for top in ("include", "src") for path in (self.root / top).rglob("*")]
        return sorted(str(path.relative_to(self.root)) for path in found if path.suffix in endings)

    def layer(self, file):
        """The layer that a file lies in, or None if it lies in none."""
        top, *parts = pathlib.PurePosixPath(file).parts
        if top == "include" and len(parts) == 1:  # sape2_infer.h and others: the C interface
            return "capi"
        name = parts[0] if top == "src" else parts[1]
        return name if name in self.layers else None

    @functools.cache
    def includes(self, file):
        """(line, name as written, the file it means or None if it is none of ours), one after another."""
        lines = (self.root / file).read_text(encoding="utf-8").splitlines()
        found = ((number, INCLUDE.match(line)) for number, line in enumerate(lines, 1))
        named = ((number, match[1] or match[2]) for number, match in found if match)
        return [(number, name, self.resolved(file, name)) for number, name in named]

    def resolved(self, file, name):
        for folder in ("include", "src", "src/kernels", pathlib.PurePosixPath(file).parent):
            path = (self.root / folder / name).resolve()
            if path.is_file() and self.root in path.parents:
                return str(path.relative_to(self.root))
        return None

    def reached(self, file):
        """Every file of ours that a file includes, itself first, and how: {file: the one that includes it}."""
        found, todo = {file: None}, [file]
        while todo:
            current = todo.pop()
            for _, _, target in self.includes(current):
                if target and target not in found:
                    found[target] = current
                    todo.append(target)
        return found

    def outside(self, file):
        """Names of headers that are not ours, in the file or in what it includes."""
        return {name for part in self.reached(file) for _, name, target in self.includes(part)
                if target is None and name not in GENERATED}
