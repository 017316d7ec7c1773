"""The library's vision transformer: the same model, names and first weights as the `sape2` program's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._encodings import Described, Grid, Shape, described
from ._attention import Attention
from ._encoding import LayerEncoding, drawn_seed, refill, register

Size = Sequence[int]
_NORM_EPS = 1e-6


def presets() -> dict[str, str]:
    """The named architectures, with one line on each.

    >>> presets()["vit-small"]
    "12 layers of 384, 6 heads: the paper's"
    """
    found: dict[str, str] = json.loads(torch.ops.sape2._presets())
    return found


class _BlockEncoding(LayerEncoding):
    """The part of an encoding in one layer of a model that has the other parts too."""

    def _check(self, info: Described) -> None:
        self.carries = info.carries

    def layer_input(self, tokens: Tensor, carried: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """What q, k and v are projected from, and what is handed to the next layer."""
        if not self.carries:
            return tokens, carried
        result: tuple[Tensor, Tensor] = torch.ops.sape2._encoded_layer_input.default(
            tokens, carried, self.encoding, self.shape, self.tensors(), *grid
        )
        return result


class _BlockAttention(Attention):
    pos: _BlockEncoding

    def _make_encoding(self, encoding: str, grid: Grid, prefix: int, where: dict[str, Any]) -> LayerEncoding:
        return _BlockEncoding(encoding, self.attn_dim, self.num_heads, grid, prefix, **where)


class PatchEmbed(nn.Module):
    """Cuts images into patches and projects each."""

    def __init__(self, channels: int, patch_size: Grid, width: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch_size, stride=patch_size, device=device, dtype=dtype)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, channels, height, width]` to `[B, patches, width]`, patches in raster order."""
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, hidden: int, drop: float = 0.0, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden, device=device, dtype=dtype)
        self.fc2 = nn.Linear(hidden, width, device=device, dtype=dtype)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as `x`."""
        out: Tensor = self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))
        return out


class LayerScale(nn.Module):
    """A learnable factor per channel on what a branch adds."""

    def __init__(self, width: int, start: float, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), start, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as `x`."""
        return x * self.gamma


class Block(nn.Module):
    """One layer: attention and MLP, each normalised before and added to its input."""

    def __init__(
        self, vit: dict[str, Any], encoding: str, layer: int, prefix: int, grid: Grid, where: dict[str, Any]
    ) -> None:
        super().__init__()
        width, scale = vit["width"], vit["layer_scale"]
        self.norm1 = nn.LayerNorm(width, eps=_NORM_EPS, **where)
        self.attn = _BlockAttention(
            width,
            vit["heads"],
            qkv_bias=True,
            proj_drop=vit["projection_dropout"],
            encoding=encoding,
            grid=grid,
            prefix=prefix,
            **where,
        )
        self.ls1 = nn.Identity() if scale is None else LayerScale(width, scale, **where)
        self.norm2 = nn.LayerNorm(width, eps=_NORM_EPS, **where)
        self.mlp = Mlp(width, int(width * vit["mlp_ratio"]), vit["mlp_dropout"], **where)
        self.ls2 = nn.Identity() if scale is None else LayerScale(width, scale, **where)
        self.skip_rate: float = vit["stochastic_depth"] * layer / max(1, vit["depth"] - 1)

    def _kept(self, branch: Tensor) -> Tensor:
        """Stochastic depth: the branch of some images is left out, that of others made up for it."""
        if not self.training or self.skip_rate == 0:
            return branch
        share = 1 - self.skip_rate
        return branch * branch.new_empty(branch.shape[0], 1, 1).bernoulli_(share).div_(share)

    def forward(self, x: Tensor, carried: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Tokens and what one layer hands to the next, after this layer."""
        given, carried = self.attn.pos.layer_input(self.norm1(x), carried, grid)
        x = x + self._kept(self.ls1(self.attn(given, grid)))
        x = x + self._kept(self.ls2(self.mlp(self.norm2(x))))
        return x, carried


class ViT(nn.Module):
    """A vision transformer with any of the position encodings, as `sape2 train` trains it.

    Args:
        preset: a named architecture (`presets()`), whose values the following arguments replace.
        encoding: the position encoding, as on the command line; `sape2.encodings()` lists them.
        image_size, patch_size: one number, or height and width.
        channels, classes, depth, width, heads, mlp_ratio, registers: sizes of the model.
        pooling: `"mean"` of the patches, `"sequence"` (a mean weighted by learnt attention) or `"class-token"`.
        embedding_dropout, projection_dropout, mlp_dropout, stochastic_depth: rates of what is dropped in training.
        layer_scale: where LayerScale's factors start; `None` for no LayerScale.
        class_names: one name per class, or none.
        mean, deviation: per channel, of pixels in [0, 1]; what `normalise` uses.
        seed: first weights as the program draws them from `--seed`; `None`: from PyTorch's own generator.

    Shapes:
        images: `[B, channels, height, width]`, of any size that patches divide; logits: `[B, classes]`.

    >>> model = ViT("vit-micro", encoding="sape2-rel-k", classes=10)
    >>> model(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> model(torch.randn(2, 3, 48, 24)).shape
    torch.Size([2, 10])
    """

    cls_token: nn.Parameter | None
    reg_token: nn.Parameter | None

    def __init__(
        self,
        preset: str = "vit-small",
        *,
        encoding: str = "sape2-rel-k",
        image_size: int | Size | None = None,
        patch_size: int | Size | None = None,
        channels: int | None = None,
        classes: int | None = None,
        depth: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        mlp_ratio: float | None = None,
        pooling: str | None = None,
        registers: int | None = None,
        embedding_dropout: float | None = None,
        projection_dropout: float | None = None,
        mlp_dropout: float | None = None,
        stochastic_depth: float | None = None,
        layer_scale: float | None = None,
        class_names: Sequence[str] = (),
        mean: Sequence[float] = (),
        deviation: Sequence[float] = (),
        seed: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        changes = {
            "image_size": _pair(image_size),
            "patch_size": _pair(patch_size),
            "channels": channels,
            "classes": len(class_names) if classes is None and class_names else classes,
            "depth": depth,
            "width": width,
            "heads": heads,
            "mlp_ratio": mlp_ratio,
            "pooling": pooling,
            "registers": registers,
            "embedding_dropout": embedding_dropout,
            "projection_dropout": projection_dropout,
            "mlp_dropout": mlp_dropout,
            "stochastic_depth": stochastic_depth,
            "layer_scale": layer_scale,
        }
        config = json.loads(torch.ops.sape2._preset(preset))
        config["vit"].update({name: value for name, value in changes.items() if value is not None})
        config.update(encoding=encoding, class_names=list(class_names), mean=list(mean), deviation=list(deviation))
        self._build(config, {"device": device, "dtype": dtype})
        self.reset_parameters(seed)

    @classmethod
    def from_config(
        cls, config: dict[str, Any], *, seed: int | None = None, device: Any = None, dtype: Any = None
    ) -> ViT:
        """The model that a configuration describes, such as `config` of another model."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model._build(config, {"device": device, "dtype": dtype})
        model.reset_parameters(seed)
        return model

    def _build(self, config: dict[str, Any], where: dict[str, Any]) -> None:
        self.config: dict[str, Any] = json.loads(torch.ops.sape2._model_config(json.dumps(config)))
        self.metadata: dict[str, str] = {}
        vit, self.encoding = self.config["vit"], self.config["encoding"]
        self.patch_size: Grid = tuple(vit["patch_size"])
        self.grid: Grid = (vit["image_size"][0] // self.patch_size[0], vit["image_size"][1] // self.patch_size[1])
        self.pooling: str = vit["pooling"]
        self.prefix: int = vit["registers"] + (self.pooling == "class-token")
        self.shape: Shape = (vit["width"], vit["heads"], *self.grid, self.prefix)
        width = vit["width"]
        for name, count in (("cls_token", self.pooling == "class-token"), ("reg_token", vit["registers"])):
            self.register_parameter(name, nn.Parameter(torch.empty(1, count, width, **where)) if count else None)
        info = described(self.encoding, self.shape)
        register(self, info.model_parameters, where["device"], where["dtype"])
        self._at_input, self._input_names = info.at_input, tuple(name for name, _ in info.model_parameters)
        self.patch_embed = PatchEmbed(vit["channels"], self.patch_size, width, **where)
        self.pos_drop = nn.Dropout(vit["embedding_dropout"])
        self.blocks = nn.ModuleList(
            Block(vit, self.encoding, layer, self.prefix, self.grid, where) for layer in range(vit["depth"])
        )
        norm, none = nn.LayerNorm(width, eps=_NORM_EPS, **where), nn.Identity()
        self.norm: nn.Module = none if self.pooling == "mean" else norm
        self.fc_norm: nn.Module = norm if self.pooling == "mean" else none
        self.seq_pool: nn.Module = nn.Linear(width, 1, **where) if self.pooling == "sequence" else none
        self.head = nn.Linear(width, vit["classes"], **where)

    def reset_parameters(self, seed: int | None = None) -> None:
        """First weights; those of a seed are the program's. Nothing is done on the meta device."""
        if not self.head.weight.is_meta:
            names, values = torch.ops.sape2._model_parameters(
                json.dumps(self.config), drawn_seed() if seed is None else seed
            )
            parameters = dict(self.named_parameters())
            refill([parameters[name] for name in names], values)

    def decayed_parameters(self) -> set[str]:
        """Names of the parameters that weight decay applies to: weights of linear layers, nothing of an encoding."""
        return set(torch.ops.sape2._decayed_parameters(json.dumps(self.config)))

    def normalise(self, images: Tensor) -> Tensor:
        """Pixels as the model wants them: bytes (uint8), or numbers in [0, 1].

        Bytes, and what they are after `/ 255` in float32 on the CPU, become to the bit what the program makes of them.
        """
        wide = images.to(torch.promote_types(images.dtype, torch.float32))
        is_bytes = images.dtype == torch.uint8
        mean, deviation = self.config["mean"] or [0.0], self.config["deviation"] or [1.0]
        offset = wide.new_tensor([255 * value for value in mean]).view(-1, 1, 1)
        factor = wide.new_tensor([1 / (255 * value) for value in deviation]).view(-1, 1, 1)
        normalised = ((wide if is_bytes else wide * 255) - offset) * factor
        return normalised if is_bytes else normalised.to(images.dtype)

    def _grid_of(self, images: Tensor) -> Grid:
        channels = self.config["vit"]["channels"]
        if images.dim() != 4 or images.shape[1] != channels:
            raise ValueError(f"images are {list(images.shape)}, expected [images, {channels} channels, height, width]")
        (height, width), (tall, wide) = images.shape[2:], self.patch_size
        if height < tall or width < wide or height % tall or width % wide:
            raise ValueError(f"images are {height}×{width}, which patches of {tall}×{wide} do not divide")
        return height // tall, width // wide

    def forward_features(self, images: Tensor) -> Tensor:
        """The tokens `[B, N, width]` after the last layer, prefix tokens first."""
        grid = self._grid_of(images)
        x = self.patch_embed(images)
        tokens = [t.to(x.dtype).expand(x.shape[0], -1, -1) for t in (self.cls_token, self.reg_token) if t is not None]
        if tokens:
            x = torch.cat([*tokens, x], 1)
        carried = x
        if self._at_input:
            x, carried = torch.ops.sape2._encoded_input.default(
                x, self.encoding, self.shape, [getattr(self, name) for name in self._input_names], *grid
            )
        x = self.pos_drop(x)
        for block in self.blocks:
            x, carried = block(x, carried, grid)
        out: Tensor = self.norm(x)
        return out

    def forward_head(self, features: Tensor) -> Tensor:
        """Pools such tokens and classifies."""
        if self.pooling == "class-token":
            pooled = features[:, 0]
        elif self.pooling == "mean":
            pooled = self.fc_norm(features[:, self.prefix :].mean(1))
        else:
            patches = features[:, self.prefix :]
            weights: Tensor = self.seq_pool(patches).softmax(1)
            pooled = (weights.transpose(1, 2) @ patches).squeeze(1)
        logits: Tensor = self.head(pooled)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[B, classes]` of normalised images."""
        return self.forward_head(self.forward_features(images))


def _pair(size: int | Size | None) -> list[int] | None:
    return None if size is None else [size, size] if isinstance(size, int) else list(size)
