"""The plain formulas that ONNX files are made of, against the operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import operators
from conftest import needs_torch_2

pytestmark = needs_torch_2


def with_formulas(call: Any, *arguments: Any, **named: Any) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    from sape2._formula import FORMULAS

    used = []

    class Formulas(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            library, name = func._schema.name.split("::")
            if library == "sape2":
                used.append(name)
                return FORMULAS[name](*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

    with Formulas():
        result = call(*arguments, **named)
    assert used or "rope" in call.__name__
    return result


@pytest.mark.parametrize("name", list(operators()))
@torch.no_grad()
def test_every_kernel(name: str) -> None:
    call, positional, named = operators()[name]
    torch.testing.assert_close(
        with_formulas(call, *positional, **named), call(*positional, **named), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("mode", ["q", "k", "qk"])
@pytest.mark.parametrize("span", ["suffix", "between"])
@pytest.mark.parametrize("form", ["distance", "direct", "paths"])
@torch.no_grad()
def test_every_kind_of_sape2(mode: str, span: str, form: str) -> None:
    """Tables of one and of every head, short enough that positions clamp; open and learnt gates; gain in and out."""
    call, positional, _ = operators()["sape2_attention"]
    q, k, v, *_ = positional
    for per_head in (False, True):
        both, heads = ([2] if mode == "qk" else []), ([3] if per_head else [])
        tables = torch.randn(2, *both, *heads, 5, q.shape[-1]).unbind(0)
        gates = (
            {"gate_scale": torch.randn(3), "gate_offset": torch.randn(3)}
            if per_head
            else {"gate_scale": torch.zeros(()), "gate_offset": torch.tensor(float("inf"))}
        )
        named: dict[str, Any] = {"prefix": 1, "mode": mode, "span": span, "form": form, **gates}
        named |= {"gain": torch.randn(3), "bias_inside": per_head, "scale": 0.3}
        torch.testing.assert_close(
            with_formulas(call, q, k, v, *tables, 4, 5, **named),
            call(q, k, v, *tables, 4, 5, **named),
            rtol=1e-4,
            atol=1e-5,
        )
