"""The examples, on small data."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import peers
import pytest
from conftest import ROOT, needs_torch_2

EXAMPLES = ROOT / "examples" / "python"


def printed(tmp_path: Path, name: str, *arguments: str) -> str:
    """What an example prints, run as its reader would."""
    # conftest makes up for what torchvision may lack.
    code = f"import conftest, runpy; runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    # float32 is float32 on a GPU, too.
    environment = {
        **os.environ,
        "NVIDIA_TF32_OVERRIDE": "0",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]


def test_own_vit(tmp_path: Path) -> None:
    text = printed(tmp_path, "own_vit.py", "--steps", "41")
    assert losses(text)[-1] < 0.5 * losses(text)[0]
    assert float(re.search(r"accuracy ([\d.]+)%", text)[1]) > 50  # a guess has 25


def test_the_model_of_ones_own_is_short() -> None:
    source = (EXAMPLES / "own_vit.py").read_text()
    model = source[source.index("class Block") : source.index("def halves")]
    assert len(model.splitlines()) <= 40


@needs_torch_2
def test_finetune_timm(tmp_path: Path) -> None:
    peers.timm()
    text = printed(tmp_path, "finetune_timm.py", "--size", "64", "--depth", "2", "--steps", "11", "--batch", "16")
    assert float(re.search(r"changed by (\S+) at most", text)[1]) < 1e-5
    assert text.count("sape2-rel-k") == 2
    assert losses(text)[-1] < 0.5 * losses(text)[0]


@needs_torch_2
def test_finetune_timm_on_a_folder(tmp_path: Path) -> None:
    peers.timm()
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for name, colour in (("red", (200, 20, 20)), ("blue", (20, 20, 200))):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            image.new("RGB", (70, 64), colour).save(tmp_path / "photos" / name / f"{number}.png")
    text = printed(tmp_path, "finetune_timm.py", "--data", "photos", "--size", "32", "--depth", "1", "--steps", "2")
    assert len(losses(text)) == 2


@needs_torch_2
def test_accelerate_sam(tmp_path: Path) -> None:
    peers.transformers()
    text = printed(tmp_path, "accelerate_sam.py")
    difference, largest = map(float, re.search(r"largest difference (\S+), of outputs up to (\S+)", text).groups())
    assert difference < 1e-4 and largest > 1
    assert text.count("sape2.accelerate(model) fuses it") == 2
    assert len(re.findall(r"decomposed relative +yes", text)) == 2


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its code cells, one after the other; what a cell ends with must show itself."""
    for name in ("PIL", "matplotlib"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    cells = json.loads((EXAMPLES / "explain.ipynb").read_text())["cells"]
    # The folders that it looks in are the repository's, what it writes goes elsewhere.
    for folder in ("models", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "kept without outputs: they would go stale"
            *statements, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(statements, []), "explain.ipynb", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "explain.ipynb", "eval"), names))
            else:
                exec(compile(ast.Module([last], []), "explain.ipynb", "exec"), names)
    assert shown[1]._repr_png_()[:4] == b"\x89PNG"
    assert (tmp_path / "explained.png").stat().st_size > 1000
    assert re.match(r" +ship \d\d", capsys.readouterr().out)
