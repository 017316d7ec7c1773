"""Models of timm and transformers with another position encoding."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import peers
import pytest
import torch
from conftest import DEVICE, needs_torch_2
from torch import nn

import sape2
from sape2.nn._grid_record import is_traced

BIAS_ENCODINGS = [
    "sape2-q", "sape2-k", "sape2-qk", "sape2-rel-q", "sape2-rel-k", "sape2-rel-qk",
    "sape2-rel-k[gates=open,tables=per-head]", "sape2-k[span=between]",
    "rpe", "rpe-shaw", "rpe-decomposed", "cope", "rope2d-mixed", "none",
]  # fmt: skip


def small_timm(name: str = "vit_tiny_patch16_224", **options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"img_size": 96, "depth": 2, "num_classes": 7, **options}
    model: nn.Module = peers.timm().create_model(name, **sizes).eval()
    return model


def swin() -> nn.Module:
    model: nn.Module = peers.timm().create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1))
    return model


def images(height: int = 96, width: int = 96, count: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, height, width, generator=generator, device="cpu").to(DEVICE)


def layers(model: nn.Module) -> list[sape2.nn.LayerEncoding]:
    return [module for module in model.modules() if isinstance(module, sape2.nn.LayerEncoding)]


def fill_tables(model: nn.Module) -> nn.Module:
    """Positions that matter."""
    with torch.no_grad():
        for layer in layers(model):
            for name, parameter in layer.named_parameters():
                if not name.startswith("gate"):
                    generator = torch.Generator().manual_seed(2)
                    parameter.copy_(torch.randn(parameter.shape, generator=generator, device="cpu"))
    return model


@pytest.mark.parametrize("encoding", BIAS_ENCODINGS)
def test_the_function_is_unchanged_and_every_layer_learns(encoding: str) -> None:
    # A class token meets no bias in the last layer; the mean of the patches is what all layers act on.
    model = small_timm(class_token=False, global_pool="avg")
    before = model(images())
    names = set(model.state_dict())
    assert sape2.patch(model, encoding) is model
    after = model(images())
    torch.testing.assert_close(after, before, rtol=0, atol=1e-5)
    assert names <= set(model.state_dict())
    assert len(layers(model)) == 2
    after.square().sum().backward()
    for layer in layers(model):
        gradients = [p.grad for p in layer.parameters()]
        assert not gradients or any(g is not None and g.count_nonzero() for g in gradients)


@pytest.mark.parametrize(
    ("name", "options", "prefix"),
    [
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}, 0),
        ("vit_tiny_patch16_224", {"qk_norm": True, "init_values": 0.1}, 1),
        ("deit_tiny_distilled_patch16_224", {}, 2),
        ("deit3_small_patch16_224", {}, 1),
        ("vit_small_patch14_reg4_dinov2", {"img_size": 84}, 5),
        ("eva02_tiny_patch14_224", {"img_size": 84}, 1),
        ("eva_giant_patch14_224", {"img_size": 84, "embed_dim": 96, "num_heads": 3}, 1),
        ("vit_small_patch16_rope_224", {}, 1),
        ("beitv2_base_patch16_224", None, 0),
    ],
)
def test_kin_of_the_vision_transformer(name: str, options: dict[str, Any] | None, prefix: int) -> None:
    if options is None:  # relative positions of its own inside its attention
        with pytest.raises(ValueError, match="no attention over one grid"):
            sape2.patch(small_timm(name))
        return
    model = small_timm(name, **options)
    side = options.get("img_size", 96)
    before = model(images(side, side))
    sape2.patch(model)
    torch.testing.assert_close(model(images(side, side)), before, rtol=0, atol=1e-5)
    assert {layer.prefix for layer in layers(model)} == {prefix}


def test_grid_follows_the_images() -> None:
    model = fill_tables(sape2.patch(small_timm(dynamic_img_size=True, pos_embed="none")))
    for height, width in ((96, 96), (64, 144), (144, 64), (48, 80)):
        model(images(height, width))
        record = layers(model)[0].record
        assert (record.rows, record.cols) == (height // 16, width // 16)
    features = model.forward_features(images(64, 144))
    torch.testing.assert_close(model.forward_head(features), model(images(64, 144)))


def test_transposed_image_and_tables_give_the_transposed_model() -> None:
    """Rows and columns reach the kernel the right way round."""
    options = {"dynamic_img_size": True, "pos_embed": "none", "class_token": False, "global_pool": "avg"}
    model = fill_tables(sape2.patch(small_timm(**options)))
    turned = copy.deepcopy(model)
    with torch.no_grad():
        weight = turned.patch_embed.proj.weight
        weight.copy_(weight.transpose(2, 3).clone())
        for layer in layers(turned):
            layer.ex.data, layer.ey.data = layer.ey.data, layer.ex.data
    pictures = images(64, 144)
    torch.testing.assert_close(turned(pictures.transpose(2, 3)), model(pictures), rtol=1e-4, atol=1e-4)


def test_copies_and_pickles_have_a_grid_of_their_own() -> None:
    model = fill_tables(sape2.patch(small_timm(dynamic_img_size=True)))
    expected = model(images())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other(images(48, 64))
        assert layers(other)[0].record is layers(other)[1].record
        torch.testing.assert_close(other(images()), expected)
        assert layers(model)[0].record.rows == 6


SIZES = ((96, 96), (64, 144), (144, 64), (48, 48))


def test_threads_with_images_of_their_own_size() -> None:
    """64×144 and 144×64 make as many patches: a grid of another thread's would go unnoticed."""
    model = fill_tables(sape2.patch(small_timm(dynamic_img_size=True)))
    expected = {size: model(images(*size)) for size in SIZES}
    found: dict[tuple[int, int], list[torch.Tensor]] = {size: [] for size in SIZES}

    def run(size: tuple[int, int]) -> None:
        for _ in range(20):
            found[size].append(model(images(*size)))

    threads = [threading.Thread(target=run, args=(size,)) for size in SIZES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for size, outputs in found.items():
        assert len(outputs) == 20
        for out in outputs:
            torch.testing.assert_close(out, expected[size])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_checkpointing_with_several_sizes_in_one_step(elsewhere: bool) -> None:
    """As in training on large and small crops; on a GPU another thread goes back."""
    model = fill_tables(sape2.patch(small_timm(dynamic_img_size=True))).train()

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        loss = sum(model(images(*size)).square().sum() for size in ((96, 96), (64, 96), (48, 48)))
        if elsewhere:
            thread = threading.Thread(target=loss.backward)
            thread.start()
            thread.join()
        else:
            loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients()
    model.set_grad_checkpointing()
    found = gradients()
    assert len(found) == len(expected)
    for some, other in zip(found, expected):
        torch.testing.assert_close(some, other)


def test_checkpointing_with_as_many_patches_in_another_shape() -> None:
    model = sape2.patch(small_timm(dynamic_img_size=True)).train()
    model.set_grad_checkpointing()
    for size in ((64, 144), (144, 64)):  # one after the other
        model(images(*size)).sum().backward()
    both = model(images(64, 144)).sum() + model(images(144, 64)).sum()
    with pytest.raises(ValueError, match="cannot know whether for images of 4×9 or 9×4 patches; call backward"):
        both.backward()
    model(images(64, 144)).sum().backward()
    with torch.no_grad():
        model(images(144, 64))
    model(images(64, 144)).sum().backward()


def test_traced_by_torch_fx() -> None:
    """What torchvision's and timm's feature extractors do."""
    for model in (
        fill_tables(sape2.patch(small_timm())),
        fill_tables(small_timm(attn_layer=sape2.attn_layer("sape2-rel-k", grid=(6, 6)))),
    ):
        expected = model(images())
        torch.testing.assert_close(torch.fx.symbolic_trace(model)(images()), expected)
        torch.testing.assert_close(model(images()), expected)


def test_traced_by_torch_jit() -> None:
    model = fill_tables(sape2.patch(small_timm()))
    expected = model(images())
    torch.testing.assert_close(torch.jit.trace(model, images())(images()), expected)
    torch.testing.assert_close(model(images()), expected)


@needs_torch_2
def test_before_pytorch_2_3_nothing_tells_of_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.compiler, "is_compiling", raising=False)
    assert not is_traced()


@needs_torch_2
def test_only_the_patch_embedding_is_compiled() -> None:
    """It notes the grid, and the layers, which are not compiled, find it."""
    model = fill_tables(sape2.patch(small_timm(dynamic_img_size=True)))
    expected = [model(images(*size)) for size in SIZES]
    model.patch_embed.compile(backend="aot_eager")
    for size, outputs in zip(SIZES, expected):
        torch.testing.assert_close(model(images(*size)), outputs)


def test_state_dict_goes_into_another_patched_model() -> None:
    first, second = (sape2.patch(small_timm()) for _ in range(2))
    fill_tables(first)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second(images()), first(images()))


def test_without_the_models_own_positions() -> None:
    model = sape2.patch(small_timm(), keep_ape=False)
    assert not model.pos_embed.requires_grad
    assert not model.pos_embed.count_nonzero()
    # No position is left: patches in another order give the same class token.
    pictures = images()
    shuffled = pictures.reshape(2, 3, 6, 16, 96).flip(2).reshape(2, 3, 96, 96)
    torch.testing.assert_close(model(shuffled), model(pictures), rtol=1e-4, atol=1e-5)


def test_timms_optimisers_spare_the_positions() -> None:
    model = sape2.patch(small_timm())
    optim = pytest.importorskip("timm.optim", reason="timm is not installed")
    optimizer = optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decayed
    assert not decayed & {id(p) for layer in layers(model) for p in layer.parameters()}
    assert "cls_token" in copy.deepcopy(model).no_weight_decay()


def test_fine_tuning_moves_the_positions() -> None:
    model = sape2.patch(small_timm()).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(images()), torch.tensor([1, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moved = dict(layers(model)[0].named_parameters())
    assert moved["ex"].abs().max() > 0
    assert (moved["gate_beta"] - 2).abs().max() > 0


def test_inside_a_larger_model() -> None:
    whole = nn.Sequential(nn.Identity(), small_timm(), nn.ReLU())
    before = whole(images())
    sape2.patch(whole)
    torch.testing.assert_close(whole(images()), before, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "encoding", "sentence"),
    [
        (small_timm, "rope2d", "changes the attention from the start.*unchanged=False"),
        (small_timm, "sape2-k[gain=-1]", "cannot start without effect.*leave its gain out"),
        (small_timm, "ape", "adds positions to the tokens before the first layer"),
        (small_timm, "sape2-x", 'encoding "sape2-x" is not known'),
        (lambda: small_timm(patch_drop_rate=0.5), "sape2-rel-k", "drops patches.*patch_drop_rate=0"),
        (lambda: small_timm(attn_drop_rate=0.5), "sape2-rel-k", "drops attention weights.*attn_drop_rate=0"),
        (swin, "sape2-rel-k", "SwinTransformer has no attention over one grid"),
        (lambda: nn.Linear(3, 3), "sape2-rel-k", "Linear has no attention over one grid"),
    ],
)
def test_mistakes_are_one_sentence_and_change_nothing(make: Any, encoding: str, sentence: str) -> None:
    model = make()
    names = list(model.state_dict())
    with pytest.raises(ValueError, match=sentence):
        sape2.patch(model, encoding)
    assert list(model.state_dict()) == names
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("model", "what"),
    [("vit_tiny_patch16_224", "a str"), (None, "a NoneType"), (nn.Linear, "the class Linear")],
)
def test_a_model_is_a_module(model: Any, what: str) -> None:
    for call in (sape2.patch, sape2.follow_grid):
        with pytest.raises(TypeError, match=f"^model is {what}; a torch.nn.Module was expected"):
            call(model)


def test_quantised_weights_are_refused() -> None:
    quantised = torch.ao.quantization.quantize_dynamic(small_timm(), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ValueError, match="weights of this VisionTransformer are quantised.*patch and train the model"):
        sape2.patch(quantised)


@pytest.mark.usefixtures("on_cpu")
def test_spread_models_are_refused(tmp_path: Any) -> None:
    """Parameters that come later are in no bucket and no shard: each process would train its own."""
    peers.timm()
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for wrapped in (nn.parallel.DistributedDataParallel(small_timm()), fully_shard(small_timm(), mesh=mesh)):
            with pytest.raises(ValueError, match="spread over processes already.*; patch it first, and wrap it then"):
                sape2.patch(wrapped)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("grid", [(6,), (6, 6, 6), (6.0, 6), (0, 6), (-6, -6), 6])
def test_a_grid_has_rows_and_columns(grid: Any) -> None:
    with pytest.raises(ValueError, match="^grid is .*; rows and columns were expected"):
        sape2.patch(small_timm(), grid=grid)


def test_a_model_is_patched_once() -> None:
    with pytest.raises(ValueError, match="has sape2 attention already"):
        sape2.patch(sape2.patch(small_timm()))


def test_rotary_positions_on_request() -> None:
    model = small_timm(dynamic_img_size=True)
    before = model(images())
    assert (sape2.patch(model, "rope2d", unchanged=False)(images()) - before).abs().max() > 1e-4


def test_as_attn_layer_of_a_new_model() -> None:
    model = small_timm(attn_layer=sape2.attn_layer("sape2-rel-k", grid=(6, 6), prefix=1), dynamic_img_size=True)
    assert model(images()).shape == (2, 7)
    with pytest.raises(ValueError, match="37 before|tokens, but 1 before the patches and a grid of 6×6"):
        model(images(64, 96))
    assert sape2.follow_grid(model)(images(64, 96)).shape == (2, 7)
    with pytest.raises(ValueError, match="no timm patch_embed"):
        sape2.follow_grid(nn.Linear(3, 3))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(images()), model(images()))


@pytest.mark.parametrize(("name", "prefix"), [("ViT", 1), ("DeiT", 2), ("Dinov2", 1), ("Dinov2WithRegisters", 5)])
def test_transformers_models(name: str, prefix: int) -> None:
    library = peers.transformers()
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
             "image_size": 64, "patch_size": 16}  # fmt: skip
    config = getattr(library, f"{name}Config")(**sizes, num_labels=5)
    model = getattr(library, f"{name}ForImageClassification")(config).eval()
    resized = {"interpolate_pos_encoding": True} if name in ("ViT", "DeiT") else {}
    before = model(images(64, 64)).logits, model(images(96, 32), **resized).logits
    sape2.patch(model)
    torch.testing.assert_close(model(images(64, 64)).logits, before[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(model(images(96, 32), **resized).logits, before[1], rtol=0, atol=1e-5)
    assert [layer.prefix for layer in layers(model)] == [prefix, prefix]
    assert (layers(model)[0].record.rows, layers(model)[0].record.cols) == (6, 2)
    fill_tables(model)
    assert (model(images(64, 64)).logits - before[0]).abs().max() > 1e-4
    again = sape2.patch(getattr(library, f"{name}ForImageClassification")(config).eval())
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(images(64, 64)).logits, model(images(64, 64)).logits)
    model.train()
    model(images(64, 64)).logits.sum().backward()
    assert all(p.grad.count_nonzero() for p in layers(model)[0].parameters())


def test_transformers_mistakes() -> None:
    library = peers.transformers()
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 96,
             "image_size": 64, "patch_size": 16}  # fmt: skip
    with pytest.raises(ValueError, match="attention_probs_dropout_prob to 0"):
        sape2.patch(library.ViTModel(library.ViTConfig(**sizes, attention_probs_dropout_prob=0.1)))
    with pytest.raises(ValueError, match="no attention over one grid"):
        sape2.patch(library.SwinModel(library.SwinConfig(image_size=64, embed_dim=24, depths=[1], num_heads=[2])))
    sape2.patch(library.ViTModel(library.ViTConfig(**sizes)))
    other = library.ViTModel(library.ViTConfig(**sizes))
    other.set_attn_implementation("sape2")
    with pytest.raises(ValueError, match=r"call sape2.patch\(model\)"):
        other(images(64, 64))


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this PyTorch has no torch.compile")
def test_compiles_whole_for_other_batches_and_grids() -> None:
    model = fill_tables(sape2.patch(small_timm(depth=1, dynamic_img_size=True)))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for pictures in (images(), images(count=3), images(64, 144), images(144, 64, count=4), images()):
        torch.testing.assert_close(compiled(pictures), model(pictures), rtol=1e-4, atol=1e-5)


def test_transformers_configurations_are_not_shared() -> None:
    library = peers.transformers()
    config = library.ViTConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96, image_size=64, num_labels=5
    )
    plain, model = (library.ViTForImageClassification(config).eval() for _ in range(2))
    before = plain(images(64, 64)).logits
    fill_tables(sape2.patch(model))
    assert torch.equal(plain(images(64, 64)).logits, before)
    assert library.ViTForImageClassification(config).eval()(images(64, 64)).logits.shape == (2, 5)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(images(64, 64)).logits, model(images(64, 64)).logits)
    model.config.output_hidden_states = True
    assert len(model(images(64, 64)).hidden_states) == 2
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match='attn_implementation is "sdpa", which would leave its positions out'):
        model(images(64, 64))
    model.set_attn_implementation("sape2")
    assert model(images(64, 64)).logits.shape == (2, 5)
