"""The modules behave as PyTorch's own: compiled, checkpointed, copied, spread over processes."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import ENCODINGS, lively, operators, solved
from conftest import DEVICE, needs_torch_2
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sape2.nn import Attention, ViT


def small(encoding: str = "sape2-rel-k", depth: int = 2) -> ViT:
    model = ViT("vit-micro", encoding=encoding, depth=depth, width=48, heads=3, classes=5)
    lively(model)
    return model


def gradients(model: torch.nn.Module, out: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    (out.float() ** 2).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@needs_torch_2
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_compiled_whole_for_any_number_of_images(encoding: str) -> None:
    """The second number of images compiles once more with it left open, the third not at all."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    model, counter = small(encoding, depth=1), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for images in (4, 3, 7):
        x = torch.randn(images, 3, 32, 32)
        expected, out = model(x), compiled(x)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
        ours, theirs = gradients(model, out), gradients(model, expected)
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4, msg=name)
    assert counter.frame_count <= 2


@needs_torch_2
@pytest.mark.parametrize("encoding", ["sape2-k[resize=resample]", "rpe-shaw+ape", "rpe", "lape", "sape2-rel-k"])
def test_compiled_whole_for_other_grids(encoding: str) -> None:
    """Each grid compiles once."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    model, counter = small(encoding, depth=1), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for _ in range(2):
        for size in ((32, 32), (24, 40)):
            x = torch.randn(2, 3, *size)
            torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-5)
    assert counter.frame_count <= 2


@needs_torch_2
def test_compiled_by_inductor() -> None:
    attention = lively(Attention(48, 3, encoding="sape2-rel-k", grid=(4, 5), prefix=1))
    compiled = torch.compile(attention, fullgraph=True)
    x = torch.randn(2, 21, 48)
    torch.testing.assert_close(compiled(x), attention(x), rtol=0, atol=1e-5)


@needs_torch_2
def test_exported() -> None:
    model = small().eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (torch.randn(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    x = torch.randn(5, 3, 32, 32)
    torch.testing.assert_close(program.module()(x), model(x), rtol=0, atol=1e-6 if DEVICE == "cpu" else 1e-5)


@pytest.mark.skipif(
    not hasattr(getattr(torch, "_inductor", None), "aoti_compile_and_package"), reason="needs PyTorch 2.6"
)
@pytest.mark.usefixtures("on_cpu")
def test_compiled_ahead_of_time(tmp_path: Path) -> None:
    """AOTInductor's package runs in another process, which only has to import sape2."""
    attention = lively(Attention(48, 3, grid=(4, 5), prefix=1)).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(attention, (torch.randn(2, 21, 48),), dynamic_shapes={"x": {0: batch}})
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "attention.pt2"))
    x = torch.randn(5, 21, 48)
    torch.save(x, tmp_path / "x.pt")
    code = (
        f"import torch, sape2; run = torch._inductor.aoti_load_package({package!r})\n"
        "with torch.no_grad(): torch.save(run(torch.load('x.pt')), 'out.pt')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    torch.testing.assert_close(torch.load(tmp_path / "out.pt"), attention(x).detach(), rtol=0, atol=1e-5)


def test_autocast_of_attention() -> None:
    attention = lively(Attention(48, 3, qkv_bias=True, grid=(4, 5), prefix=1))
    x = torch.randn(2, 21, 48)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = attention(x)
    assert out.dtype == torch.bfloat16
    exact = attention(x)
    assert (out.float() - exact).norm() < 0.05 * exact.norm()
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients(attention, out).values())


@needs_torch_2  # PyTorch 1's own LayerNorm takes no bfloat16 tokens under autocast on the CPU
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_autocast(encoding: str) -> None:
    """Under autocast results are those of float32 to the precision of its type, and parameters keep theirs."""
    model = small(encoding)
    x = torch.randn(2, 3, 32, 32)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = model(x)
    assert out.dtype == torch.bfloat16
    exact = model(x)
    assert (out.float() - exact).norm() < 0.05 * exact.norm()
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients(model, out).values())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_another_type(encoding: str, dtype: torch.dtype) -> None:
    model = small(encoding)
    x = torch.randn(2, 3, 24, 40)
    exact = model(x)
    out = copy.deepcopy(model).to(dtype)(x.to(dtype))
    assert out.dtype == dtype
    assert (out.float() - exact).norm() < (0.05 if dtype == torch.bfloat16 else 1e-4) * exact.norm()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool) -> None:
    model = small("lape")
    x = torch.randn(2, 3, 32, 32)

    def checkpointed(images: Tensor) -> Tensor:
        tokens = model.patch_embed(images)
        tokens, carried = torch.ops.sape2._encoded_input(tokens, model.encoding, model.shape, [model.lape_embed], 8, 8)
        for block in model.blocks:
            tokens, carried = checkpoint(block, tokens, carried, model.grid, use_reentrant=reentrant)
        return model.forward_head(model.norm(tokens))

    expected, out = model(x), checkpointed(x)
    assert torch.equal(out, expected)
    ours, theirs = gradients(model, out), gradients(model, expected)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("encoding", ["sape2-rel-k", "lape", "rope2d-mixed+ape"])
def test_copies(encoding: str) -> None:
    model, x = small(encoding).eval(), torch.randn(1, 3, 32, 32)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    loaded = ViT.from_config(model.config)
    loaded.load_state_dict(torch.load(stream))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded.eval()):
        assert torch.equal(other(x), model(x))
    changed = copy.deepcopy(model)
    lively(changed)
    assert not torch.equal(changed(x), model(x))


def test_torch_jit_script_is_refused() -> None:
    for module in (small(), Attention(48, 3, grid=(4, 5))):
        with pytest.raises(NotImplementedError, match=r"torch.jit.script cannot read sape2's attention; use"):
            torch.jit.script(module)


def test_frozen_parts_get_no_gradients() -> None:
    model = small()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".pos." in name)
    found = gradients(model, model(torch.randn(2, 3, 32, 32)))
    assert set(found) == {name for name, _ in model.named_parameters() if ".pos." in name}


@pytest.mark.parametrize("name", list(operators()))
def test_meta_tensors_give_shapes(name: str) -> None:
    call, positional, named = operators()[name]
    meta = lambda t: t.detach().to("meta") if isinstance(t, Tensor) else t  # noqa: E731
    shapes = lambda out: [t.shape for t in ([out] if isinstance(out, Tensor) else out)]  # noqa: E731
    out = call(*map(meta, positional), **{n: meta(t) for n, t in named.items()})
    assert shapes(out) == shapes(call(*positional, **named))


def test_built_without_memory() -> None:
    model = ViT("vit-base", encoding="sape2-rel-k+ape", device="meta")
    assert all(p.is_meta for p in model.parameters())
    assert model(torch.randn(2, 3, 32, 32, device="meta")).shape == (2, 10)


@needs_torch_2
def test_built_below_a_device() -> None:
    with torch.device("meta"):
        model = ViT("vit-micro")
    assert all(p.is_meta for p in model.parameters())
    model.to_empty(device=DEVICE).reset_parameters(seed=4)
    again = ViT("vit-micro", seed=4).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


@pytest.mark.usefixtures("on_cpu")
def test_threads_give_the_same_bits() -> None:
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        results.append(solved(*operators(8)["sape2_attention relative"]))
    torch.set_num_threads(before)
    assert all(torch.equal(some, other) for some, other in zip(*results))


def _train(rank: int, world: int, address: str, wrapped: str) -> None:
    """One process of several, on the CPU: its share of the images; the gradient must be that of all of them."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    torch.manual_seed(0)
    alone, images = small(), torch.randn(4, 3, 32, 32)
    shared = copy.deepcopy(alone)
    (alone(images) ** 2).sum().backward()
    share = images[rank::world]
    if wrapped == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(shared)
        (world * (model(share) ** 2).sum()).backward()
        whole = {name: p.grad for name, p in shared.named_parameters()}
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))  # by default it would be a GPU's, where there is one
        for block in shared.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(shared, mesh=mesh)
        (world * (shared(share) ** 2).sum()).backward()
        whole = {name: p.grad.full_tensor() for name, p in shared.named_parameters()}
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(whole[name], parameter.grad, rtol=1e-3, atol=1e-4, msg=name)
    dist.barrier()  # nobody leaves while another still talks to it
    os._exit(0)  # PyTorch's own end of Gloo aborts in one of some ten processes, whatever they ran


@pytest.mark.parametrize("wrapped", ["ddp", pytest.param("fsdp", marks=needs_torch_2)])
def test_two_processes(wrapped: str, tmp_path: Any) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch knows no processes")
    torch.multiprocessing.spawn(_train, (2, f"file://{tmp_path}/store", wrapped), nprocs=2)
