"""The twofold rule over shapes, modes, forms, prefixes and scales that are drawn at random.

usage: random_test.py LIBRARY     (libsape2_ops.so)
"""

import random
import unittest

import torch
from support import DEVICE, HALVES, Problem, main, out_of_bounds

# The largest number of patches, and how many problems; the formula stores all pairs of them.
SIZES = {"one block holds a head": (256, 40), "many tiles": (2304, 24)} if DEVICE == "cuda" else {"small": (120, 12)}


def draw(seed, most_patches):
    """A problem, and its description."""
    choice = random.Random(seed)
    shortest = 2 if most_patches <= 256 else 17
    rows = choice.randint(shortest, 48)
    cols = choice.randint(shortest, 48)
    while rows * cols > most_patches:
        rows, cols = (rows - 1, cols) if rows > cols else (rows, cols - 1)
    many = rows * cols > 256
    sizes = dict(rows=rows, cols=cols, prefix=choice.choice([0, 0, 1, 3]), images=1 if many else 3,
                 heads=2, size=choice.choice([16, 32, 64, 64, 64, 128]), form=choice.choice(["distance", "direct"]),
                 mode=choice.choice(["k", "k", "q", "qk"]), dtype=choice.choice([torch.float32, *HALVES]))
    settings = dict(scale=sizes["size"] ** -0.5 * choice.choice([0.5, 1, 2]), span=choice.choice(["suffix", "between"]),
                    bias_inside=choice.choice([True, False]))
    torch.manual_seed(seed)
    return Problem(**sizes, **settings), {**sizes, **settings}


class RandomTest(unittest.TestCase):
    def test_twofold_rule(self):
        for seed, (name, (most_patches, count)) in enumerate(SIZES.items()):
            for number in range(count):
                problem, described = draw(1000 * seed + number, most_patches)
                with self.subTest(name, number=number, **described):
                    self.assertEqual(out_of_bounds(problem), {})


if __name__ == "__main__":
    main()
