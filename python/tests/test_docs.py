"""The code of docs/python.md, of the package's own page and of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import peers
import pytest
from conftest import NEW_TORCH, ROOT

NEEDED = {"timm": peers.timm, "transformers": peers.transformers}
# What a block calls, and what that imports beside what the block itself does.
NEEDED_BY = {"onnx.export(": ("onnx", "onnxscript"), ".figure(": ("matplotlib",)}


def sections() -> list[tuple[str, str, str]]:
    """Page, heading and text of every section that has code."""
    found = []
    for page in ("docs/python.md", "python/README.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        parts = re.split(r"^## ", text, flags=re.M)
        found += [(page, part.splitlines()[0], part) for part in parts if "```py" in part]
    return found


def marked_blocks() -> list[tuple[str, str]]:
    """Name and code of what other pages mark to be run and needs the package."""
    found = []
    for page in ("README.md", "docs/for-researchers.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^<!-- run (\w+) -->\n```python\n(.*?)^```", text, flags=re.S | re.M)
        found += [(name, code) for name, code in blocks if "import sape2" in code]
    return found


def need(code: str) -> None:
    """Skips the test if something that the code imports is not installed."""
    modules = re.findall(r"^(?:import|from) (\w+)", code, flags=re.M)
    modules += [module for call, needed in NEEDED_BY.items() if call in code for module in needed]
    if not NEW_TORCH and {*NEEDED, "onnx"} & set(modules):
        pytest.skip("needs PyTorch 2")
    for module in modules:
        if module in NEEDED:
            NEEDED[module]()
        else:
            pytest.importorskip(module, reason=f"{module} is not installed")


@pytest.mark.parametrize(("page", "heading", "text"), sections(), ids=lambda value: value.splitlines()[0][:40])
def test_blocks_run(
    page: str,
    heading: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Section by section; each may use what the first block of the page imports."""
    for folder in ("models", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(python|pycon)\n(.*?)^```", text, flags=re.S | re.M)
    assert blocks
    names: dict[str, Any] = {}
    exec("import torch, sape2", names)
    for language, code in blocks:
        if language == "python":
            need(code)
            exec(compile(code, page, "exec"), names)
            printed = capsys.readouterr().out
            for told in re.findall(r"^print\(.*\n((?:# .*\n)+)", code, flags=re.M):
                assert all(line[2:] in printed for line in told.splitlines()), printed
        else:
            statement, kind, sentence = re.fullmatch(r">>> (.*?)\n(\w+): (.*?)\n", code, flags=re.S).groups()
            with pytest.raises(Exception) as caught:
                exec(statement, names)
            assert (type(caught.value).__name__, str(caught.value)) == (kind, sentence)


@pytest.mark.parametrize(("name", "code"), marked_blocks(), ids=lambda value: value.splitlines()[0])
def test_marked_blocks_run(name: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {})


def test_the_readme_has_code_to_run() -> None:
    assert "readme_python" in dict(marked_blocks())


def test_every_function_is_shown() -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
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
