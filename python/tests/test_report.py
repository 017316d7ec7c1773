"""What sape2.report says of a model's layers, for a GPU that need not be there."""

from __future__ import annotations

import peers
import pytest
import torch
from cases import ENCODINGS
from torch import nn

import sape2
from sape2.nn import Attention, ViT


def layer(encoding: str = "sape2-rel-k", grid: tuple[int, int] = (14, 14), **asked: object) -> sape2.LayerReport:
    """The report of one attention layer of two heads of 64."""
    asked = {"device": "sm_90", "dtype": torch.bfloat16, **asked}
    return sape2.report(Attention(128, 2, encoding=encoding, grid=grid, prefix=1), **asked)[0]


def test_layers_that_could_be_fused() -> None:
    library = peers.transformers()
    sam = library.SamVisionModel(library.SamVisionConfig(num_hidden_layers=2, hidden_size=48, num_attention_heads=3))
    assert [layer.reason for layer in sape2.report(sam)] == ["sape2.accelerate(model) fuses it"] * 2
    vit = peers.timm().create_model("vit_tiny_patch16_224", depth=1)
    assert [layer.reason for layer in sape2.report(vit)] == ["sape2.patch(model) gives it an encoding"]
    sape2.patch(vit)
    assert [(layer.name, layer.encoding, layer.fused) for layer in sape2.report(vit)] == [
        ("blocks.0.attn", "sape2-rel-k", True)
    ]
    assert not sape2.report(vit.double())[0].fused
    assert str(sape2.report(nn.Linear(2, 2))) == "no attention layer that sape2 knows"


@pytest.mark.parametrize(
    ("encoding", "grid", "dtype", "kernel", "passed_over"),
    [
        ("sape2-rel-k", (14, 14), torch.bfloat16, "attention_head", []),
        ("sape2-k", (8, 8), torch.float16, "attention_head", []),
        ("sape2-rel-k", (32, 32), torch.bfloat16, "attention_sm90 + axis_vectors/specialized", ["attention_head"]),
        (
            "sape2-rel-k[M=9]",
            (32, 32),
            torch.bfloat16,
            "attention_sm90 + axis_vectors/generic",
            ["attention_head", "axis_vectors/specialized"],
        ),
        ("none", (32, 32), torch.bfloat16, "attention_sm90", ["attention_head"]),
        ("rpe", (32, 32), torch.float32, "attention_sm80", ["attention_head", "attention_sm90"]),
        ("cope", (32, 32), torch.float32, "cope", []),
    ],
)
def test_kernels_and_why_not_faster_ones(
    encoding: str, grid: tuple[int, int], dtype: torch.dtype, kernel: str, passed_over: list[str]
) -> None:
    found = layer(encoding, grid, dtype=dtype)
    assert (found.fused, found.reason, found.kernel) == (True, "", kernel)
    assert [family.split(": ")[0] for family in found.passed_over] == passed_over
    assert all(": it takes" in family for family in found.passed_over)
    assert all(": " in name for name in found.forward + found.backward)


@pytest.mark.parametrize("device", ["sm_80", "sm_89", "sm_90", "sm_120"])
def test_it_is_the_dispatchs_answer(device: str) -> None:
    found = layer(grid=(24, 40), images=4, device=device)
    for backward, kernels in ((False, found.forward), (True, found.backward)):
        text = sape2.ops.kernel_for(
            "sape2_attention", 4, 2, 24, 40, 64, prefix=1, dtype="bfloat16", backward=backward, device=device
        )
        assert [line.strip() for line in text.splitlines() if line.startswith("    ")] == list(kernels)
        assert all(f"  not {family}\n" in text for family in found.passed_over)
    assert found.device == device
    assert found.call == (
        "sape2_attention, bfloat16, 4 images × 2 heads, 24×40 patches + 1 prefix tokens, direct, head size 64"
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_encoding_is_asked_for_what_it_calls(encoding: str, dtype: torch.dtype) -> None:
    """As it calls it: under autocast with parameters of float32, too."""
    found = sape2.report(ViT("vit-micro", encoding=encoding, depth=1), device="sm_90", dtype=dtype)[0]
    operators = {"sape2": "sape2_attention", "cope": "cope_attention", "rpe": "attention from given axis vectors"}
    expected = next((op for name, op in operators.items() if encoding.startswith(name)), "attention")
    assert found.fused and found.call.startswith(f"{expected}, {str(dtype)[6:]}, 32 images × 3 heads, "), found
    assert ("two sets" in found.call) == ("-qk" in encoding)


def test_the_grid_is_that_of_the_last_images() -> None:
    model = peers.timm().create_model("vit_tiny_patch16_224", depth=2, dynamic_img_size=True)
    sape2.patch(model)
    assert "14×14 patches + 1 prefix" in sape2.report(model, device="sm_90")[0].call
    model(torch.randn(1, 3, 64, 144))
    assert "4×9 patches + 1 prefix" in sape2.report(model, device="sm_90")[0].call


def test_accelerated_layers() -> None:
    library = peers.transformers()
    config = library.SamVisionConfig(num_hidden_layers=3, global_attn_indexes=[2], hidden_size=128, mlp_dim=128,
                                     num_attention_heads=2, image_size=1024)  # fmt: skip
    model = sape2.accelerate(library.SamVisionModel(config))
    found = sape2.report(model, images=25, device="sm_90", dtype=torch.bfloat16)
    assert [layer.kernel for layer in found] == [
        "attention_head",
        "attention_head",
        "attention_sm90 + axis_vectors/specialized",
    ]
    text = str(found)
    assert "\n\n2 layers on sm_90: sape2_attention, bfloat16, 25 images × 2 heads, 14×14" in text
    assert "\n\n1 layer on sm_90: sape2_attention, bfloat16, 25 images × 2 heads, 64×64" in text
    assert text.endswith("\n  not attention_head: it takes grids of up to 16 columns")
    mvitv2 = peers.timm().models.mvitv2
    config = mvitv2.MultiScaleVitCfg(depths=(1, 1, 1, 2), embed_dim=24, use_cls_token=True)
    mvit = sape2.accelerate(mvitv2.MultiScaleVit(config, img_size=64))
    pooled = [layer for layer in sape2.report(mvit, device="sm_90") if layer.attention == "PooledAttention"]
    assert ["8×8 patches + 1" in pooled[0].call, "2×2 patches + 1" in pooled[1].call] == [True, True]


def test_on_the_cpu() -> None:
    found = layer(device="cpu")
    assert (found.fused, found.kernel, found.call, found.forward) == (True, "CPU kernels", "", ())
    text = str(sape2.report(Attention(128, 2, device="cpu")))
    assert text.splitlines()[1].endswith("yes    CPU kernels") and len(text.splitlines()) == 2


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"dtype": torch.float64}, "float64 runs on the plain formula"),
        ({"device": "cpu", "dtype": torch.float16}, "float16 is not supported on the CPU"),
        ({"device": torch.device("meta")}, 'tensors on "meta" run in no kernel'),
        ({"encoding": "sape2-k[form=paths]"}, 'the form "paths" runs on the plain formula'),
        ({"grid": (2, 2000)}, "the CUDA kernels take grids of up to"),
    ],
)
def test_why_no_kernel(asked: dict[str, object], sentence: str) -> None:
    found = layer(**asked)  # type: ignore[arg-type]
    assert not found.fused and found.reason.startswith(sentence) and not found.kernel and not found.forward


def test_heads_that_are_too_large() -> None:
    for device, most in (("cpu", 256), ("sm_90", 128)):
        found = sape2.report(Attention(264, 1), device=device)[0]
        assert not found.fused and f"kernels take heads of up to {most} channels" in found.reason


def test_a_gpu_without_cuda_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sape2._build.CUDA_KERNELS", False)
    assert layer(device="cuda").reason.startswith("sape2 was built without CUDA kernels")


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(ValueError, match='device is "sm_91"; one of "cuda", "sm_80", .* was expected'):
        sape2.report(nn.Linear(2, 2), device="sm_91")
    for images in (0, -1, 2**31, 2**62):
        with pytest.raises(ValueError, match=rf"^images is {images}; 1 … 2147483647 was expected$"):
            sape2.report(ViT("vit-micro", depth=1), images=images)
    for device in ("cuda:-1", "cpu:x", "cuda:"):
        with pytest.raises(ValueError, match=f'^device is "{device}", which is none of PyTorch\'s$'):
            sape2.report(nn.Linear(2, 2), device=device)
    with pytest.raises(TypeError, match="^device is 3; a torch.device or a name such as"):
        sape2.report(nn.Linear(2, 2), device=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^model is a str; a torch.nn.Module was expected"):
        sape2.report("vit")


def test_a_notebook_shows_the_table() -> None:
    told = sape2.report(sape2.nn.ViT("vit-micro", depth=1))
    assert repr(told) == str(told)
    assert repr(told).startswith("layer ")
