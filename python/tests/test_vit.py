"""sape2.nn.ViT: configurations, sizes, what is dropped in training."""

from __future__ import annotations

import pytest
import torch

from sape2.nn import ViT, presets


def test_presets_are_the_librarys() -> None:
    assert set(presets()) == {"vit-tiny", "vit-small", "vit-base", "vit-compact", "vit-micro"}
    small = ViT("vit-small", device="meta")
    assert (small.config["vit"]["depth"], small.config["vit"]["width"], small.config["vit"]["heads"]) == (12, 384, 6)


@pytest.mark.parametrize("pooling", ["mean", "sequence", "class-token"])
@pytest.mark.parametrize("registers", [0, 2])
def test_every_pooling(pooling: str, registers: int) -> None:
    model = ViT("vit-micro", depth=1, pooling=pooling, registers=registers, layer_scale=0.1, classes=7)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)
    assert model.forward_features(torch.randn(2, 3, 24, 40)).shape == (2, 60 + model.prefix, 96)
    assert {name for name, p in model.named_parameters() if not p.isfinite().all()} == set()


def test_a_seed_gives_the_programs_weights() -> None:
    """Every value is written, whatever was in memory; equal seeds, equal models."""
    some, same, other = (
        ViT("vit-micro", depth=2, encoding="rope2d-mixed+ape", seed=seed).state_dict() for seed in (5, 5, 6)
    )
    assert all(torch.equal(some[name], same[name]) for name in some)
    assert not torch.equal(some["blocks.1.attn.pos.fx"], other["blocks.1.attn.pos.fx"])
    assert 0.018 < some["blocks.0.attn.qkv.weight"].std() < 0.022
    assert torch.equal(some["blocks.0.norm1.weight"], torch.ones(96))


def test_weight_decay_leaves_positions_alone() -> None:
    model = ViT("vit-micro", depth=1, encoding="sape2-rel-k+ape")
    decayed = model.decayed_parameters()
    assert decayed <= set(dict(model.named_parameters()))
    assert {"patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "head.weight"} <= decayed
    assert not any("pos" in name or "norm" in name or name.endswith("bias") for name in decayed)


def test_normalise() -> None:
    model = ViT("vit-micro", depth=1, mean=[0.5, 0.4, 0.3], deviation=[0.2, 0.25, 0.5])
    expected = torch.tensor([2.5, 2.4, 1.4]).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    torch.testing.assert_close(model.normalise(torch.ones(1, 3, 32, 32)), expected)


@pytest.mark.parametrize("settings", [{}, {"mean": [0.4914, 0.4822, 0.4465], "deviation": [0.2470, 0.2435, 0.2616]}])
def test_normalise_is_the_programs_to_the_bit(settings: dict[str, list[float]]) -> None:
    """The same formula as in tests/data/augment_test.cpp: each step rounded to float32 once."""
    model = ViT("vit-micro", depth=1, **settings)
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    mean, deviation = settings.get("mean", [0.0] * 3), settings.get("deviation", [1.0] * 3)
    offset = torch.tensor([255 * m for m in mean]).double().view(3, 1, 1)  # rounded to float32, then widened
    factor = torch.tensor([1 / (255 * d) for d in deviation]).double().view(3, 1, 1)
    expected = ((pixels.double() - offset).float().double() * factor).float()
    assert torch.equal(model.normalise(pixels), expected)
    assert torch.equal(model.normalise(pixels.cpu() / 255), expected.cpu())
    assert model.normalise((pixels / 255).half()).dtype == torch.half


def test_dropping_acts_in_training_only() -> None:
    model = ViT(
        "vit-micro", depth=3, stochastic_depth=0.5, mlp_dropout=0.1, projection_dropout=0.1, embedding_dropout=0.1
    )
    assert [block.skip_rate for block in model.blocks] == [0, 0.25, 0.5]
    x = torch.randn(4, 3, 32, 32)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_classes_from_their_names() -> None:
    assert ViT("vit-micro", depth=1, class_names=["cat", "dog"]).head.weight.shape == (2, 96)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"preset": "vit-smal"}, 'model preset "vit-smal" is not known; the nearest is "vit-small"'),
        ({"width": 100}, "width is 100, which 6 heads do not divide"),
        ({"pooling": "max"}, 'pooling "max" is not known'),
        ({"image_size": 33}, "image height is 33, which patches of height 4 do not divide"),
        ({"class_names": ["a"], "classes": 3}, "class_names has 1 entries, expected one for each of the 3 classes"),
        ({"encoding": "ape+ape"}, "would add the same vectors twice"),
    ],
)
def test_mistakes_get_the_librarys_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ViT(**arguments)


def test_wrong_images() -> None:
    model = ViT("vit-micro", depth=1)
    with pytest.raises(ValueError, match="images are 30×32, which patches of 4×4 do not divide"):
        model(torch.randn(1, 3, 30, 32))
    with pytest.raises(ValueError, match=r"expected \[images, 3 channels, height, width\]"):
        model(torch.randn(1, 1, 32, 32))


def test_it_learns() -> None:
    """Dark left of bright, or bright left of dark: after mean pooling only positions tell them apart."""
    torch.manual_seed(1)
    model = ViT("vit-micro", depth=2, width=48, heads=3, classes=2, encoding="sape2-rel-k", seed=0)
    images, labels = torch.zeros(64, 3, 32, 32), torch.arange(64) % 2
    for image, label in zip(images, labels):
        image[:, :, 16:] = 1.0 if label else -1.0
        image[:, :, :16] = -1.0 if label else 1.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = last = torch.tensor(0.0)
    for step in range(30):
        last = torch.nn.functional.cross_entropy(model(images), labels)
        first = last.detach() if step == 0 else first
        optimizer.zero_grad()
        last.backward()
        optimizer.step()
    assert last < 0.5 * first
