"""The shared libraries show the functions that their headers declare and nothing else, and need the C library alone
(sape2_images: also libpng, libjpeg and zlib).

usage: symbols_test.py INCLUDE_DIR libsape2_infer.so libsape2_images.so"""

import pathlib
import re
import subprocess
import sys
import unittest


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shown_by(library):
    lines = output_of("nm", "--dynamic", "--defined-only", library).splitlines()
    return sorted(line.split()[-1].split("@")[0] for line in lines)


def needed_by(library):
    return set(re.findall(r"\(NEEDED\).*\[(.+?)\.so", output_of("readelf", "--dynamic", library)))


def declared_in(header):
    return sorted(re.findall(r"\b(sape2_(?:infer|images)_\w+)\(", re.sub(r"//.*|#.*", "", header.read_text())))


class Symbols(unittest.TestCase):
    def check(self, library, header, needed):
        self.assertGreater(len(declared_in(header)), 3)
        self.assertEqual(shown_by(library), declared_in(header))
        self.assertLessEqual(needed_by(library), needed)

    def test_infer(self):
        self.check(INFER, INCLUDE / "sape2_infer.h", {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"})

    def test_images(self):
        self.check(IMAGES, INCLUDE / "sape2_images.h",
                   {"libc", "libm", "libpng16", "libjpeg", "libz", "ld-linux-x86-64", "ld-linux-aarch64"})


if __name__ == "__main__":
    IMAGES, INFER, INCLUDE = sys.argv.pop(), sys.argv.pop(), pathlib.Path(sys.argv.pop())
    unittest.main(verbosity=2)
