"""The benchmarks of bench/python run; their figures are no matter of tests."""

from __future__ import annotations

import argparse
import runpy

import peers
from conftest import ROOT, needs_torch_2


def test_sam() -> None:
    peers.transformers()
    bench = runpy.run_path(str(ROOT / "bench" / "python" / "sam.py"))
    args = argparse.Namespace(device="cpu", size=64, dtype="float32", layers=1, repeats=1, forward_only=False)
    results = {variant: bench["measured"](args, variant) for variant in ("original", "accelerated")}
    assert abs(results["original"]["output"]).max() > 0.1
    header, _, original, accelerated = bench["table"](results).splitlines()
    assert header.count("|") == original.count("|") == accelerated.count("|") == 7
    assert float(accelerated.split("|")[-2]) < 1e-4 and original.startswith("| original |")


@needs_torch_2
def test_host() -> None:
    bench = runpy.run_path(str(ROOT / "bench" / "python" / "host.py"))
    results = bench["measured"](argparse.Namespace(calls=3, rounds=1))
    _, _, pytorch, *ours = bench["table"](results).splitlines()
    assert pytorch.count("(1.00×)") == 3 and len(ours) == 3
    assert all(time > 0 for times in results.values() for time in times)
