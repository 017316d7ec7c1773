"""Operators: values, gradients, types, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from cases import ENCODINGS, HEADS, PREFIX, SIZE, operators, solved
from conftest import DEVICE, needs_torch_2

import sape2

OPERATORS = list(operators())


@pytest.mark.parametrize("name", OPERATORS)
def test_same_bits_every_time(name: str) -> None:
    case = operators()[name]
    for some, other in zip(solved(*case), solved(*case)):
        assert torch.equal(some, other)


def test_axial_attention_is_attention_with_a_stored_bias() -> None:
    q, k, v, zx, zy = (t.double().detach().requires_grad_() for t in operators()["axial_attention"][1][:5])

    def stored(*tensors: torch.Tensor) -> torch.Tensor:
        q, k, v, zx, zy = tensors
        bias = (zy.unsqueeze(-1) + zx.unsqueeze(-2)).flatten(-2)
        bias = torch.nn.functional.pad(bias, (PREFIX, 0, PREFIX, 0))
        return torch.softmax(q @ k.transpose(-1, -2) / SIZE**0.5 + bias, -1) @ v

    ours = solved(lambda *t: sape2.ops.axial_attention(*t, 4, 5, prefix=PREFIX), [q, k, v, zx, zy], {})
    for some, other in zip(ours, solved(stored, [q, k, v, zx, zy], {})):
        torch.testing.assert_close(some, other, rtol=0, atol=1e-10)


def test_bias_is_what_the_vectors_make() -> None:
    _, (q, k, ex, ey, rows, cols), _ = operators()["sape2_vectors"]
    ux, uy = sape2.ops.sape2_vectors(q, k, ex, ey, rows, cols, prefix=PREFIX)
    bias = sape2.ops.sape2_bias(q, k, ex, ey, rows, cols, prefix=PREFIX)[:, :, PREFIX:, PREFIX:]
    torch.testing.assert_close(bias, torch.cdist(ux, ux) + torch.cdist(uy, uy), rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("name", [n for n in OPERATORS if not n.startswith("rope")])
def test_autocast_computes_in_its_type(name: str) -> None:
    call, positional, named = operators()[name]
    with torch.autocast(DEVICE, torch.bfloat16):
        out = call(*positional, **named)
    assert (out if isinstance(out, torch.Tensor) else out[0]).dtype == torch.bfloat16


def test_wrong_arguments_get_a_sentence() -> None:
    q, table = torch.zeros(2, 3, 13, 8), torch.zeros(5, 8)
    with pytest.raises(ValueError, match=r"q \[2, 3, 13, 8\] has 13 tokens, but prefix \+ rows·cols is 1 \+ 3·5"):
        sape2.ops.sape2_attention(q, q, q, table, table, 3, 5, prefix=1)
    with pytest.raises(TypeError, match="q is float16, which is not supported on the CPU"):
        sape2.ops.attention(*[q.half().cpu()] * 3)


def test_second_backward_is_refused() -> None:
    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(sape2.ops.attention(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        gradient.sum().backward()


def test_second_backward_is_refused_where_gates_alone_learn() -> None:
    _, (q, k, v, ex, ey, *grid), _ = operators()["sape2_attention"]
    gates = torch.ones(HEADS, requires_grad=True)
    frozen = [t.detach() for t in (q, k, v, ex, ey)]
    out = torch.ops.sape2._sape2_attention.default(
        *frozen, *grid, PREFIX, "k", "suffix", "distance", None, gates, 2.0, None, None, True
    )
    (gradient,) = torch.autograd.grad(out.sum(), gates, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        gradient.sum().backward()


def test_forward_mode_is_refused() -> None:
    q = torch.randn(1, 2, 6, 4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(RuntimeError, match="have no forward-mode derivative"):
            sape2.ops.attention(dual, q, q)


def test_one_graph_goes_back_once() -> None:
    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    out = sape2.ops.attention(q, q, q).sum()
    first, second = (torch.autograd.grad(out, q, retain_graph=keep)[0] for keep in (True, False))
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_asked_for_alone(name: str) -> None:
    """Of one leaf after another: the same numbers as of all at once."""
    call, positional, named = operators()[name]
    leaves = [t for t in [*positional, *named.values()] if isinstance(t, torch.Tensor)]

    def out() -> torch.Tensor:
        result = call(*positional, **named)
        return result.sum() if isinstance(result, torch.Tensor) else result[0].sum() + result[1].sum()

    for leaf, gradient in zip(leaves, torch.autograd.grad(out(), leaves)):
        (alone,) = torch.autograd.grad(out(), leaf)
        torch.testing.assert_close(alone, gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["distance", "direct", "paths"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_divided_gates(form: str, dtype: torch.dtype) -> None:
    """Gates divided inside the operator are those divided before it, and so are their gradients."""
    _, (q, k, v, ex, ey, *grid), named = operators()["sape2_attention relative"]
    scale, offset, gain = (named[name] for name in ("gate_scale", "gate_offset", "gain"))
    tensors = [t.detach().to(dtype).requires_grad_() for t in (q, k, v, ex, ey)]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    tensors += [t.detach().to(wide).requires_grad_() for t in (scale, offset, gain)]

    def inside(*t: torch.Tensor) -> torch.Tensor:
        options = (PREFIX, "k", "between", form, None)
        out: torch.Tensor = torch.ops.sape2._sape2_attention.default(
            *t[:5], *grid, *options, t[5], SIZE**0.5, t[6], t[7], False
        )
        return out

    def before(*t: torch.Tensor) -> torch.Tensor:
        gates = {"gate_scale": t[5] / SIZE**0.5, "gate_offset": t[6], "gain": t[7]}
        return sape2.ops.sape2_attention(
            *t[:5], *grid, prefix=PREFIX, span="between", form=form, bias_inside=False, **gates
        )

    for some, other in zip(solved(inside, tensors, {}), solved(before, tensors, {})):
        torch.testing.assert_close(some, other, rtol=0, atol=0)


def test_numbers_in_place_of_tensors() -> None:
    _, (q, k, v, ex, ey, *grid), _ = operators()["sape2_attention"]
    numbers = {"gate_scale": 0.5, "gate_offset": 1, "gain": -1.0}
    tensors = {name: torch.tensor(float(value)) for name, value in numbers.items()}
    out = [sape2.ops.sape2_attention(q, k, v, ex, ey, *grid, prefix=PREFIX, **given) for given in (numbers, tensors)]
    assert torch.equal(*out)
    for given in (numbers, tensors):
        del given["gain"]
    bias = [sape2.ops.sape2_bias(q, k, ex, ey, *grid, prefix=PREFIX, **given) for given in (numbers, tensors)]
    assert torch.equal(*bias)
    vectors = [sape2.ops.sape2_vectors(q, k, ex, ey, *grid, prefix=PREFIX, **given) for given in (numbers, tensors)]
    assert all(torch.equal(*pair) for pair in zip(*vectors))


def test_rope_without_a_patch() -> None:
    with pytest.raises(ValueError, match="rope: prefix is 21, but x has only 21 tokens"):
        sape2.ops.rope(torch.randn(2, HEADS, 21, SIZE), prefix=21)


@needs_torch_2
def test_nested_tensors_are_refused() -> None:
    nested = torch.nested.nested_tensor([torch.randn(HEADS, 21, SIZE), torch.randn(HEADS, 20, SIZE)])
    with pytest.raises(TypeError, match="^attention: q is nested; one dense tensor was expected"):
        sape2.ops.attention(nested, nested, nested)


@needs_torch_2
def test_transformations_of_torch_func_are_refused() -> None:
    q = torch.randn(5, 2, HEADS, 21, SIZE)
    with pytest.raises(NotImplementedError, match="sape2::attention cannot be mapped by vmap; call it once"):
        torch.vmap(sape2.ops.attention)(q, q, q)
    with pytest.raises(RuntimeError, match="which torch.func's grad, vjp and jvp cannot pass; use backward"):
        torch.func.grad(lambda q: sape2.ops.attention(q, q, q).sum())(q[0])
    layer = sape2.nn.LayerEncoding("sape2-rel-k", HEADS * SIZE, HEADS, (4, 5), 1)
    with pytest.raises(NotImplementedError, match="sape2::_encoded_attention cannot be mapped by vmap"):
        torch.vmap(layer)(q, q, q)
    with pytest.raises(NotImplementedError, match="sape2::_encoded_packed_attention cannot be mapped by vmap"):
        torch.vmap(layer)(torch.randn(5, 2, 21, 3 * HEADS * SIZE))
    for encoding in ("sape2-rel-k", "cope"):
        layer = sape2.nn.LayerEncoding(encoding, HEADS * SIZE, HEADS, (4, 5), 1)
        with pytest.raises(RuntimeError, match="which torch.func's grad, vjp and jvp cannot pass; use backward"):
            torch.func.grad(lambda qkv, of=layer: of(qkv).sum())(torch.randn(2, 21, 3 * HEADS * SIZE))


@needs_torch_2
@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name: str) -> None:
    _, positional, named = operators()[name]
    torch.library.opcheck(getattr(torch.ops.sape2, name.split()[0]).default, tuple(positional), named)


@needs_torch_2
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_opcheck_of_encodings(encoding: str) -> None:
    from sape2.nn._vit import _BlockEncoding

    q, k, v = operators()["attention"][1]
    layer = _BlockEncoding(encoding, HEADS * SIZE, HEADS, (6, 6), PREFIX)  # tables for another grid than 4×5
    arguments = (layer.encoding, layer.shape, layer.tensors(), 4, 5)
    torch.library.opcheck(torch.ops.sape2._encoded_attention.default, (q, k, v, *arguments))
    qkv = torch.cat([x.detach().transpose(1, 2).flatten(2) for x in (q, k, v)], 2).requires_grad_()
    torch.library.opcheck(torch.ops.sape2._encoded_packed_attention.default, (qkv, *arguments))


@needs_torch_2
@pytest.mark.parametrize(
    "name",
    ["_attention", "_sape2_attention", "_packed_sape2_attention", "_cope_attention", "_sape2_vectors", "_bias"],
)
def test_opcheck_of_kernels(name: str) -> None:
    """What torch.compile sees of the operators: their schemas and the shapes of fake tensors, both ways."""
    q, k, v, ux, uy, *_ = (t.detach() for t in operators()["axial_attention"][1][:5])
    table, gates, grid = torch.randn(9, SIZE), [torch.ones(HEADS), torch.ones(HEADS)], [4, 5, PREFIX]
    qkv = torch.randn(2, 21, 3 * HEADS * SIZE)
    tables = [table, table.clone()]
    arguments: dict[str, list[object]] = {
        "_attention": [q, k, v, ux, uy, *grid, "direct", 0.25, None, False],
        "_sape2_attention": [
            q,
            k,
            v,
            *tables,
            *grid,
            "k",
            "suffix",
            "distance",
            0.25,
            *gates,
            None,
            True,
            0,
        ],
        "_packed_sape2_attention": [
            qkv,
            HEADS,
            *tables,
            *grid,
            "k",
            "suffix",
            "distance",
            0.25,
            gates[0],
            4.0,
            gates[1],
            None,
            True,
            0,
        ],
        "_cope_attention": [q, k, v, table, 0.25],
        "_sape2_vectors": [q, k, table, table.clone(), *grid, "k", "suffix", *gates],
        "_bias": [ux, uy, *grid, "distance"],
    }
    checks = ("test_schema", "test_faketensor")
    forward = getattr(torch.ops.sape2, f"{name}_forward").default
    torch.library.opcheck(forward, tuple(arguments[name]), test_utils=checks)
    outputs = forward(*arguments[name])
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    differentiable = outputs if name == "_sape2_vectors" else outputs[:1]
    grads = [torch.randn_like(o) for o in differentiable]
    backward = getattr(torch.ops.sape2, f"{name}_backward").default
    torch.library.opcheck(backward, (grads, outputs, 3, *arguments[name]), test_utils=checks)
