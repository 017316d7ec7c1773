"""The code of docs/python.md and of the package's own page runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S | re.M)
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    refused = re.findall(
        r"^```pycon\n>>> (.*?)\n(\w+): (.*?)\n```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S | re.M
    )
    for code, kind, sentence in refused:
        with pytest.raises(Exception) as caught:
            exec(code, names)
        assert (type(caught.value).__name__, str(caught.value)) == (kind, sentence)
