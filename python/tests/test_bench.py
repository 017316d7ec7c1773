"""The benchmarks of bench/python run; their figures are no matter of tests."""

from __future__ import annotations

import argparse
import runpy
from typing import Any

import peers
import pytest
from conftest import ROOT, needs_torch_2

pytestmark = pytest.mark.usefixtures("on_cpu")

FOLDER = ROOT / "bench" / "python"
SMALL = {"device": "cpu", "dtype": "float32", "repeats": 1, "forward_only": False}


def compared(monkeypatch: pytest.MonkeyPatch, name: str, other: str, **options: Any) -> None:
    """The original and another variant in one table: a row each, and outputs that agree."""
    monkeypatch.syspath_prepend(str(FOLDER))
    bench = runpy.run_path(str(FOLDER / name))
    args = argparse.Namespace(**SMALL, **options)
    results = {variant: bench["measured"](args, variant) for variant in ("original", other)}
    assert abs(results["original"]["output"]).max() > 0.1
    header, _, original, changed = bench["variants"].table(results).splitlines()
    assert header.count("|") == original.count("|") == changed.count("|") == 7
    assert float(changed.split("|")[-2]) < 1e-4 and original.startswith("| original |")


def test_sam(monkeypatch: pytest.MonkeyPatch) -> None:
    peers.transformers()
    compared(monkeypatch, "sam.py", "accelerated", size=64, layers=1)


def test_timm_vit(monkeypatch: pytest.MonkeyPatch) -> None:
    peers.timm()
    model = {"model": "vit_tiny_patch16_224", "encoding": "sape2-rel-k", "size": 64, "batch": 2, "autocast": False}
    compared(monkeypatch, "timm_vit.py", "patched", **model)


@needs_torch_2
def test_host() -> None:
    bench = runpy.run_path(str(FOLDER / "host.py"))
    for part, others in (("attention", 6), ("layers", 3)):
        results = bench[part](argparse.Namespace(calls=3, rounds=1))
        _, _, pytorch, *ours = bench["table"](results).splitlines()
        assert pytorch.count("(1.00×)") == 3 and len(ours) == len(results) - 1 == others
        assert all(time > 0 for times in results.values() for time in times)
