"""The scripts of the tables in results/tables: every row is one the program has, and a row in small runs through.

usage: tables_test.py SAPE2"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pages

SAPE2 = ""
TABLES = sorted((pages.ROOT / "results" / "tables").glob("*.sh"))
STUB = "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
SMALL = ["--model", "vit-micro", "--depth", "1", "--epochs", "1", "--train-images", "80", "--test-images", "20", "--seeds", "1",
         "--batch-size", "16", "--tune-epochs", "1", "--device", "cpu", "--precision", "float32"]


def run(script, *arguments, sape2):
    return subprocess.run(["bash", script, *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "SAPE2": str(sape2)})


def value(words, option):
    return words[words.index(option) + 1]


class Retrofit(unittest.TestCase):
    def test_its_commands_have_known_rows_and_lengths(self):
        script = pages.ROOT / "results" / "regions" / "retrofit.sh"
        known = {encoding["name"] for encoding in json.loads(
            subprocess.run([SAPE2, "info", "--json"], capture_output=True, text=True).stdout)["encodings"]}
        with tempfile.TemporaryDirectory() as folder:
            stub = pathlib.Path(folder) / "stub"
            stub.write_text(STUB, encoding="utf-8")
            stub.chmod(0o755)
            ran = run(script, "cifar100", "cifar10", folder, sape2=stub)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            commands = [json.loads(line) for line in ran.stdout.splitlines()]
            self.assertEqual([words[0] for words in commands], ["train"] + ["compare"] * 6)
            self.assertEqual([value(words, "--epochs") for words in commands[1:]], ["1", "1", "5", "5", "20", "20"])
            for words in commands[1:]:
                rows = value(words, "--encodings").split(",")
                self.assertLessEqual({row.removesuffix("+ape") for row in rows}, known)
                self.assertIn(value(words, "--baseline"), rows)
            self.assertEqual(value(commands[1], "--init"), f"{value(commands[0], '--out')}/last.safetensors")
            self.assertNotIn("--init", commands[2])


class Tables(unittest.TestCase):
    def test_there_are_three(self):
        self.assertEqual([table.name for table in TABLES], ["table1.sh", "table2.sh", "table3.sh"])

    def test_every_row_is_known_and_the_baseline_is_one_of_them(self):
        known = {encoding["name"] for encoding in json.loads(
            subprocess.run([SAPE2, "info", "--json"], capture_output=True, text=True).stdout)["encodings"]}
        with tempfile.TemporaryDirectory() as folder:
            stub = pathlib.Path(folder) / "stub"
            stub.write_text(STUB, encoding="utf-8")
            stub.chmod(0o755)
            for table in TABLES:
                for more in ([], ["others"]) if table.name == "table2.sh" else ([],):
                    for data in ("cifar10", "cifar100"):
                        with self.subTest(table=table.name, data=data, more=more):
                            words = json.loads(run(table, data, "out", *more, sape2=stub).stdout)
                            rows = value(words, "--encodings").split(",")
                            self.assertEqual(len(rows), len(set(rows)))
                            names = {row.split("[")[0].removesuffix("+ape") for row in rows}
                            self.assertLessEqual(names, known)
                            self.assertEqual(value(words, "--data"), data)
                            if "--baseline" in words:
                                self.assertIn(value(words, "--baseline"), rows)

    def test_one_row_in_small_runs_through(self):
        for table in TABLES:
            with self.subTest(table=table.name), tempfile.TemporaryDirectory() as folder:
                ran = run(table, "shapes", folder, "ape", *SMALL, sape2=SAPE2)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                results = json.loads((pathlib.Path(folder) / "results.json").read_text(encoding="utf-8"))
                self.assertEqual(len(results["rows"][0]["trials"]), 3)
                self.assertEqual(len(results["rows"][0]["runs"]), 1)

    def test_missing_arguments_are_told(self):
        for table in TABLES:
            ran = run(table, "cifar10", sape2=SAPE2)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn("usage", ran.stderr)


if __name__ == "__main__":
    SAPE2 = sys.argv.pop()
    unittest.main(verbosity=2)
