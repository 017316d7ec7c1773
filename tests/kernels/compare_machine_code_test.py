"""compare_machine_code against made-up listings: a stand-in for cuobjdump prints files as they are."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(__file__).parent / "cuda" / "compare_machine_code"
STAND_IN = """#!/bin/sh
if [ "$1" = --dump-sass ]; then sed '/^ Function .*:$/,$d' "$2"; else sed -n '/^ Function .*:$/,$p' "$2"; fi
"""


def listing(name: str, code: list[str], registers: int = 32) -> str:
    lines = ["arch = sm_90a", f"\t\tFunction : {name}"]
    for i, instruction in enumerate(code):
        bits = sum(ord(c) * 31**n for n, c in enumerate(instruction)) % 2**64
        lines.append(f"        /*{16 * i:04x}*/  {instruction} ;  /* 0x{bits:016x} */")
        lines.append("                              /* 0x000fe20000000800 */")
    lines += [f" Function {name}:", f"  REG:{registers} STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:528 TEXTURE:0"]
    return "\n".join(lines) + "\n"


CODE = ["MOV R1, c[0x0][0x28]", "IADD3 R2, R3, R4, RZ", "@P0 EXIT"]


class CompareMachineCode(unittest.TestCase):
    def compare(self, old: list[str], new: list[str]) -> tuple[int, str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            stand_in = root / "cuobjdump"
            stand_in.write_text(STAND_IN, encoding="utf-8")
            stand_in.chmod(0o755)
            for side, texts in (("old", old), ("new", new)):
                (root / side).mkdir()
                for i, text in enumerate(texts):
                    (root / side / f"{i}.o").write_text(text, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, PROGRAM, root / "old", root / "new", "--cuobjdump", stand_in],
                capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

    def check(self, new: str, code: int, words: str) -> None:
        returned, said = self.compare([listing("kernel", CODE)], [new])
        self.assertEqual((returned, words in said), (code, True), said)

    def test_same(self) -> None:
        self.check(listing("kernel", CODE), 0, "sm_90a: 1 same\n")

    def test_renamed(self) -> None:
        self.check(listing("moved", CODE), 0, "sm_90a: 1 same\n")

    def test_parameters_moved(self) -> None:
        self.check(listing("kernel", ["MOV R1, c[0x0][0x30]", *CODE[1:]]), 0, "1 same places")

    def test_registers_renamed(self) -> None:
        self.check(listing("kernel", [CODE[0], "IADD3 R5, R3, R4, RZ", CODE[2]]), 0, "1 same counts")

    def test_more_registers(self) -> None:
        self.check(listing("kernel", CODE, registers=40), 1, "1 differs")

    def test_other_instructions(self) -> None:
        self.check(listing("kernel", [CODE[0], "IMAD R2, R3, R4, RZ", CODE[2]]), 1, "1 differs")

    def test_one_side_only(self) -> None:
        self.check(listing("other", CODE[1:]), 1, "1 only in OLD")

    def test_no_kernels(self) -> None:
        returned, said = self.compare([listing("kernel", CODE)], [])
        self.assertEqual((returned, "no kernels in" in said), (1, True), said)


if __name__ == "__main__":
    unittest.main()
