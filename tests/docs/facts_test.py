"""Figures that stand in several pages agree, and follow from the tables they come from."""

import re
import statistics
import unittest

import pages


def text(name):
    return (pages.ROOT / name).read_text(encoding="utf-8")


def numbers(line):
    return [float(number.replace("−", "-")) for number in re.findall(r"[+−-]?\d+\.\d+", line)]


class Facts(unittest.TestCase):
    def test_what_the_gates_add(self):
        row = re.search(r"^\| top-1, points \|(.*)\|$", text("results/encodings.md"), flags=re.M)[1]
        *seeds, mean, error = numbers(row)
        self.assertEqual(len(seeds), 7)
        self.assertAlmostEqual(mean, statistics.mean(seeds), delta=0.005)
        self.assertAlmostEqual(error, statistics.stdev(seeds) / len(seeds) ** 0.5, delta=0.005)
        half = 2.446912 * statistics.stdev(seeds) / len(seeds) ** 0.5  # Student's t, six degrees of freedom
        low, high = statistics.mean(seeds) - half, statistics.mean(seeds) + half
        self.assertIn(f"{low:+.2f} to {high:+.2f}", text("results/encodings.md"))
        for page in ("README.md", "docs/for-readers.md", "docs/for-researchers.md"):
            words = " ".join(text(page).split())
            self.assertIn(f"{mean:.2f} points", words, page)
            self.assertIn(f"95 % interval {low:.2f} to {high:.2f}", words, page)

    def test_the_readmes_accuracies_are_those_of_the_results(self):
        results = {}
        for line in re.search(r"\| encoding \| CIFAR-10.*?\n\n", text("results/encodings.md"), flags=re.S)[0].splitlines()[2:]:
            if line.startswith("| "):
                name = line.split("|")[1].split("(")[0].strip()
                results[name] = numbers(line.partition("|")[2].partition("|")[2])
        encodings = ["ape", "rope2d", "sape2-k+ape", "sape2-rel-k"]
        for data, column in (("CIFAR-10", 0), ("CIFAR-100", 4)):
            row = numbers(re.search(rf"^\| {data} \|(.*)$", text("README.md"), flags=re.M)[1])
            expected = [value for name in encodings for value in results[name][column:column + 2]]
            for shown, exact in zip(row, expected):
                self.assertAlmostEqual(shown, exact, delta=0.0501)
            self.assertEqual(len(row), 8)

    def test_the_readmes_longer_runs_are_those_of_the_results_and_of_the_shipped_models(self):
        row = numbers(re.search(r"^\| CIFAR-10, trained six times.*$", text("README.md"), flags=re.M)[0])
        table = re.search(r"^## The same, six times as long.*?^## ", text("results/encodings.md"), flags=re.M | re.S)[0]
        exact = [float(re.search(rf"^\| {re.escape(name)} \| ([\d.]+) ", table, flags=re.M)[1])
                 for name in ("ape", "sape2-k+ape", "sape2-rel-k")]
        self.assertEqual(row, [int(value * 10 + 0.5 + 1e-9) / 10 for value in exact])
        before = re.search(r"Before rounding to bfloat16 they had ([\d.]+) and ([\d.]+) %", text("models/README.md"))
        self.assertEqual([float(before[2]), float(before[1])], exact[1:])

    def test_the_citation_is_of_this_version_and_of_the_paper(self):
        version = re.search(r"project\(sape2 VERSION ([\d.]+)", text("CMakeLists.txt"))[1]
        citation = text("CITATION.cff")
        self.assertIn(f"\nversion: {version}\n", citation)
        for words in ("A 2D Semantic-Aware Position Encoding for Vision Transformers", "2505.09466"):
            self.assertIn(words, citation)
            self.assertIn(words, text("README.md"))
        families = re.findall(r"family-names: (\w+), given-names: (\w+)", citation)
        authors = re.search(r"author  = \{(.*?)\}", text("README.md"), flags=re.S)[1]
        self.assertEqual([f"{family}, {given}" for family, given in families], re.split(r"\s+and\s+", authors))


if __name__ == "__main__":
    unittest.main(verbosity=2)
