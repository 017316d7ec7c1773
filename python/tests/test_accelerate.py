"""Models with decomposed relative positions: the same outputs and gradients without a stored bias."""

from __future__ import annotations

import copy
from typing import Any

import peers
import pytest
import torch
from torch import nn

import sape2


def with_random_tables(model: nn.Module) -> nn.Module:
    """Relative positions start at 0 in SAM; here they matter."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "rel_pos" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator, device="cpu"))
    return model.eval()


def sam() -> nn.Module:
    library = peers.transformers()
    config = library.SamVisionConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=3, image_size=128, patch_size=16, mlp_dim=64,
        window_size=3, global_attn_indexes=[1], output_channels=16, num_pos_feats=8,
        initializer_range=0.1,  # its own, 1e-10, would leave outputs of 0
    )  # fmt: skip
    return library.SamVisionModel(config)


def sam_eager() -> nn.Module:
    model = sam()
    model.set_attn_implementation("eager")
    return model


def sam_of_timm() -> nn.Module:
    return peers.timm().create_model("samvit_base_patch16", img_size=128, depth=2, embed_dim=48, num_heads=3)


def vitdet() -> nn.Module:
    library = peers.transformers()
    return library.VitDetModel(
        library.VitDetConfig(
            hidden_size=48, num_hidden_layers=2, num_attention_heads=3, image_size=128, pretrain_image_size=128,
            patch_size=16, use_relative_position_embeddings=True, window_size=4, window_block_indices=[0],
        )
    )  # fmt: skip


def small_mvit(**options: Any) -> nn.Module:
    mvitv2 = peers.timm().models.mvitv2
    config = mvitv2.MultiScaleVitCfg(depths=(1, 1, 1, 2), embed_dim=24, **options)
    return mvitv2.MultiScaleVit(config, img_size=64, num_classes=5)


def mvit() -> nn.Module:
    return small_mvit()


def mvit_with_class_token() -> nn.Module:
    return small_mvit(use_cls_token=True)


def output(model: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
    result: Any = model(pictures)
    return result if isinstance(result, torch.Tensor) else result[0]


@pytest.mark.parametrize(
    ("make", "side", "fused", "layers"),
    [(sam, 128, 2, 2), (sam_eager, 128, 2, 2), (sam_of_timm, 128, 2, 2), (vitdet, 128, 2, 2), (mvit, 64, 2, 5),
     (mvit_with_class_token, 64, 2, 5)],
)  # fmt: skip
def test_outputs_and_gradients_are_the_same(make: Any, side: int, fused: int, layers: int) -> None:
    torch.manual_seed(0)
    original = with_random_tables(make())
    model = sape2.accelerate(copy.deepcopy(original))
    assert set(model.state_dict()) == set(original.state_dict())
    listed = sape2.report(model)
    assert (sum(layer.fused for layer in listed), len(listed)) == (fused, layers), str(listed)

    pictures = torch.randn(2, 3, side, side)
    outputs = [output(m, pictures) for m in (original, model)]
    assert outputs[0].abs().max() > 0.1
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(outputs[0])
    for out in outputs:
        (out * weights).sum().backward()
    parameters = dict(original.named_parameters())
    for name, parameter in model.named_parameters():
        expected = parameters[name].grad
        if expected is None:
            assert parameter.grad is None or not parameter.grad.count_nonzero(), name
            continue
        scale = max(1.0, float(expected.abs().max()))
        assert (parameter.grad - expected).abs().max() < 1e-4 * scale, name


def test_another_size_than_the_tables_were_made_for() -> None:
    model = with_random_tables(sam_of_timm())
    table = torch.randn(2 * 5 - 1, 16)
    attention = model.blocks[0].attn
    attention.rel_pos_h, attention.rel_pos_w = nn.Parameter(table), nn.Parameter(table.flip(0))
    x = torch.randn(2, 6, 9, 48)
    expected = attention(x)
    torch.testing.assert_close(sape2.accelerate(nn.Sequential(attention))(x), expected, rtol=1e-4, atol=1e-5)


def test_mistakes_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="Linear has no attention with decomposed relative positions"):
        sape2.accelerate(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="^model is a str; a torch.nn.Module was expected"):
        sape2.accelerate("facebook/sam-vit-base")
    dropping = peers.timm().create_model(
        "samvit_base_patch16", img_size=64, depth=1, embed_dim=48, num_heads=3, attn_drop_rate=0.1
    )
    with pytest.raises(ValueError, match="drops attention weights at a rate of 0.1"):
        sape2.accelerate(dropping)
    with pytest.raises(ValueError, match="no attention weights to return"):
        sape2.accelerate(sam_of_timm()).blocks[0].attn(torch.randn(1, 8, 8, 48), output_attentions=True)
