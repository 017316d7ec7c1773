"""The code of docs/python.md, as it stands there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import peers
import pytest
import torch
from conftest import ROOT, needs_torch_2

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
NEEDED = {"timm": peers.timm, "transformers": peers.transformers}


def sections() -> dict[str, list[str]]:
    """The blocks of Python under each heading."""
    found = {}
    for part in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        blocks = re.findall(r"^```python\n(.*?)^```$", part, flags=re.S | re.M)
        if blocks:
            found[part.splitlines()[0]] = blocks
    return found


def run(code: str, names: dict[str, Any]) -> None:
    """Runs a block; `# ValueError: …` below a statement is what it raises, `# …(…)` below a print what it prints."""
    raised = re.search(r"^# (\w+Error): (.*)$", code, flags=re.M)
    statements = ast.parse(code).body
    last = statements.pop() if raised else None
    exec(compile(ast.Module(statements, []), "docs/python.md", "exec"), names)
    if last is not None:
        with pytest.raises(Exception, match=re.escape(raised[2])) as caught:
            exec(compile(ast.Module([last], []), "docs/python.md", "exec"), names)
        assert caught.typename == raised[1]


@needs_torch_2
@pytest.mark.parametrize("section", list(sections()))
def test_every_block_runs(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = sections()[section]
    for module in re.findall(r"^(?:import|from) (\w+)", "\n".join(blocks), flags=re.M):
        NEEDED.get(module, lambda m=module: pytest.importorskip(m, reason=f"{m} is not installed"))()
    if "onnx.export" in "\n".join(blocks):
        for module in ("onnx", "onnxscript"):
            pytest.importorskip(module, reason=f"{module} is not installed")
    if "figure" in "\n".join(blocks):
        pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for folder in ("models", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    # What the page takes as given, before its first block and between sections.
    names: dict[str, Any] = {"images": torch.rand(2, 3, 32, 32)}
    exec("import torch, sape2", names)
    if section == "ONNX":
        exec("model = sape2.nn.ViT('vit-micro', depth=1)", names)
    for code in blocks:
        run(code, names)
        told = re.search(r"^print\(.*\n# (.*)$", code, flags=re.M)
        if told:
            assert told[1] in capsys.readouterr().out


def test_every_section_is_there() -> None:
    text = "\n".join("\n".join(blocks) for blocks in sections().values())
    for name in (
        "patch",
        "accelerate",
        "report",
        "attn_layer",
        "follow_grid",
        "onnx.export",
        "explain",
        "load",
        "save",
    ):
        assert f"sape2.{name}(" in text, name
