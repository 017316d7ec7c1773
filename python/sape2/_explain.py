"""What a model's positions do on an image: gates, soft positions, bias and attention as chosen patches see them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Union

import torch
from torch import Tensor, nn

from ._encodings import Grid
from ._evaluation import in_evaluation
from ._site import check_module
from .nn._encoding import LayerEncoding
from .nn._vit import ViT

Patch = tuple[int, int]
"""Row and column of a patch, counted from 0."""

WHAT = ("bias", "bias-x", "bias-y", "gates", "positions", "attention")
"""What `Explanation.maps` shows."""


@dataclass(frozen=True)
class LayerRows:
    """One attention layer as R chosen patches see it: per head, `h` of them, on a grid of `rows·cols` patches.

    What the layer's encoding does not have is None.
    """

    name: str
    """Where the layer is in the model."""
    encoding: str
    grid: Grid
    prefix: int
    is_distance: bool
    """The bias is a distance: 0 or more, and 0 to the patch itself."""
    attention: Tensor
    """`[h, R, prefix + rows·cols]`: weights of all tokens; a row sums to 1."""
    bias: Tensor | None = None
    """`[h, R, rows·cols]`: the bias to every patch, before gain and scale."""
    bias_x: Tensor | None = None
    """`[h, R, rows·cols]`: the part of it that comes from the patch's row."""
    bias_y: Tensor | None = None
    """`[h, R, rows·cols]`: the part that comes from its column."""
    gates_x: Tensor | None = None
    """`[h, R, cols]`: the gates of the patch's own row, 0 to 1."""
    gates_y: Tensor | None = None
    """`[h, R, rows]`: those of its column."""
    positions_x: Tensor | None = None
    """`[h, R, cols]`: the soft positions that the gates of the row add up to."""
    positions_y: Tensor | None = None
    """`[h, R, rows]`: those of the column."""
    gates: Tensor | None = None
    """`[h, R, prefix + rows·cols]`: CoPE's gates, over all tokens in raster order."""
    positions: Tensor | None = None
    """`[h, R, prefix + rows·cols]`: CoPE's positions."""

    def __repr__(self) -> str:
        shapes = [f"{f.name} {list(getattr(self, f.name).shape)}" for f in fields(self) if _is_tensor(self, f.name)]
        return f'LayerRows("{self.name}", "{self.encoding}", grid={self.grid}, {", ".join(shapes)})'

    def maps(self, what: str, patches: Sequence[Patch]) -> Tensor | None:
        """`[h, R, rows, cols]`: from each chosen patch to every patch; None if the encoding has no such thing."""
        rows, cols = self.grid
        found = {
            "bias": self.bias, "bias-x": self.bias_x, "bias-y": self.bias_y, "attention": self.attention,
            "gates": self.gates, "positions": self.positions,
        }[what]  # fmt: skip
        if found is not None:
            on_grid = found[..., -rows * cols :].reshape(*found.shape[:2], rows, cols)
            return _from_own(on_grid, patches) if what == "positions" else on_grid
        if what == "gates" and self.gates_x is not None and self.gates_y is not None:
            crosses = self.gates_x.new_full((*self.gates_x.shape[:2], rows, cols), float("nan"))
            for index, (y, x) in enumerate(patches):
                crosses[:, index, y] = self.gates_x[:, index]
                crosses[:, index, :, x] = self.gates_y[:, index]
            return crosses
        if what == "positions" and self.positions_x is not None and self.positions_y is not None:
            along_x = self.positions_x.unsqueeze(2).expand(-1, -1, rows, -1)
            along_y = self.positions_y.unsqueeze(3).expand(-1, -1, -1, cols)
            return _from_own(along_x, patches) + _from_own(along_y, patches)
        return None


def _is_tensor(rows: LayerRows, name: str) -> bool:
    return isinstance(getattr(rows, name), Tensor)


def _from_own(positions: Tensor, patches: Sequence[Patch]) -> Tensor:
    """How far each position of `[h, R, rows, cols]` is from that of the chosen patch itself."""
    own = torch.stack([positions[:, index, y, x] for index, (y, x) in enumerate(patches)], 1)
    return (positions - own[:, :, None, None]).abs()


@dataclass(frozen=True)
class Explanation:
    """What `explain` found. In a notebook it shows itself as a picture, if matplotlib is installed."""

    image: Tensor
    """`[3, height, width]`, the picture as it is shown, 0 to 1."""
    output: Any
    """What the model returned for the image: logits, in a classifier."""
    patches: tuple[Patch, ...]
    """The chosen patches, row and column."""
    layers: tuple[LayerRows, ...]

    @property
    def offers(self) -> tuple[str, ...]:
        """What this model has of `"bias"`, `"bias-x"`, `"bias-y"`, `"gates"`, `"positions"` and `"attention"`."""
        return tuple(what for what in WHAT if self.layers[0].maps(what, self.patches) is not None)

    def maps(self, what: str, *, layer: int | None = None, head: int | None = None) -> Tensor:
        """A map per chosen patch, to every patch: `[R, rows, cols]`.

        Args:
            what: `"bias"` (before its gain), `"bias-x"`, `"bias-y"`, `"gates"` (NaN outside of the patch's own row and
                column), `"positions"` (how far the soft positions are from the patch's own) or `"attention"`.
            layer: a layer, counted from 0; the mean of all if it is left out.
            head: a head, counted from 0; the mean of all if it is left out.
        """
        if what not in WHAT:
            raise ValueError(f'"{what}" cannot be shown; one of {", ".join(WHAT)} was expected')
        if what not in self.offers:
            raise ValueError(
                f"the encoding {self.layers[0].encoding} has no {what}; look at its {', '.join(self.offers)}"
            )
        if layer is not None and not 0 <= layer < len(self.layers):
            raise ValueError(f"layer is {layer}, but the model has layers 0 to {len(self.layers) - 1}")
        heads = self.layers[0].attention.shape[0]
        if head is not None and not 0 <= head < heads:
            raise ValueError(f"head is {head}, but the model has heads 0 to {heads - 1}")
        chosen = self.layers if layer is None else self.layers[layer : layer + 1]
        found = [maps for rows in chosen if (maps := rows.maps(what, self.patches)) is not None]
        return torch.stack([maps.mean(0) if head is None else maps[head] for maps in found]).mean(0)

    def figure(
        self, what: str | Sequence[str] | None = None, *, layer: int | None = None, head: int | None = None
    ) -> Any:
        """A matplotlib figure: a line per chosen patch, with the image and a map of each quantity.

        Args:
            what: what `maps` takes, or several; all that the encoding has if it is left out.
            layer: as in `maps`.
            head: as in `maps`.

        Returns:
            A `matplotlib.figure.Figure`; `figure.savefig("explained.png")` writes it.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError(
                "a figure needs matplotlib: pip install matplotlib; the numbers need nothing: see maps and layers"
            ) from None
        shown = [w for w in self.offers if w not in ("bias-x", "bias-y")] if what is None else what
        shown = [shown] if isinstance(shown, str) else list(shown)
        maps = {w: self.maps(w, layer=layer, head=head) for w in shown}
        figure = Figure(figsize=(2.6 * (1 + len(shown)), 2.5 * len(self.patches)), layout="constrained")
        panels = figure.subplots(len(self.patches), 1 + len(shown), squeeze=False)
        for line, (patch, axes) in enumerate(zip(self.patches, panels)):
            self._draw_image(axes[0], patch)
            axes[0].set_ylabel(f"from patch {patch[0]}, {patch[1]}")
            for w, axis in zip(shown, axes[1:]):
                drawn = axis.imshow(maps[w][line].numpy(), **self._colours(w, maps[w]))
                axis.add_patch(_outline(patch[1] - 0.5, patch[0] - 0.5, 1, 1))
                figure.colorbar(drawn, ax=axis, shrink=0.8)
        for axis, title in zip(panels[0], ("image", *shown)):
            axis.set_title(title)
        for axis in panels.flat:
            axis.set_xticks([])
            axis.set_yticks([])
        return figure

    def _draw_image(self, axis: Any, patch: Patch) -> None:
        rows, cols = self.layers[0].grid
        tall, wide = self.image.shape[1] / rows, self.image.shape[2] / cols
        axis.imshow(self.image.permute(1, 2, 0).numpy())
        axis.add_patch(_outline(patch[1] * wide - 0.5, patch[0] * tall - 0.5, wide, tall))

    def _colours(self, what: str, maps: Tensor) -> dict[str, Any]:
        known = maps[~maps.isnan()]
        if what == "gates":
            return {"cmap": "Greens", "vmin": 0, "vmax": 1}
        if what.startswith("bias") and not self.layers[0].is_distance:
            most = float(known.abs().max()) or 1.0
            return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
        return {"cmap": "Greens", "vmin": 0, "vmax": float(known.max()) or 1.0}

    def _repr_png_(self) -> bytes | None:
        try:
            figure = self.figure()
        except ImportError:
            return None
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=100)
        return written.getvalue()

    def __repr__(self) -> str:
        return f"Explanation({len(self.layers)} layers of {self.layers[0].encoding}, from patches {list(self.patches)})"


def _outline(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, fill=False, edgecolor="red", linewidth=1.5)


Image = Union[Tensor, Any]
"""A tensor, a PIL image or an array."""


def explain(model: nn.Module, image: Image, *, patches: Sequence[Patch] | None = None) -> Explanation:
    """Looks into every attention layer of a model while it sees an image.

    Numbers are computed by the code that `sape2 explain` runs. The model computes nothing else than before, and keeps
    nothing.

    Args:
        model: a `sape2.nn.ViT`, a patched model, or any module with sape2 attention.
        image: one image: a tensor as the model takes it, `[C, height, width]` or with an axis of 1 before. A
            `sape2.nn.ViT` also takes a PIL image or an array `[height, width, 3]` of bytes, which are normalised for
            it.
        patches: row and column of each patch to look from. If they are left out, one of the subject and one of the
            background, found from what the model made of the image.

    Returns:
        Arrays per layer (`layers`), maps (`maps`) and a figure (`figure`). All are on the CPU, wherever the model is;
        `output` is as the model returned it.

    >>> model = ViT("vit-micro", encoding="sape2-rel-k", seed=0)
    >>> explained = explain(model, torch.rand(3, 32, 32), patches=[(3, 4)])
    >>> explained.layers[0].gates_x.shape, explained.layers[0].attention.shape
    (torch.Size([3, 1, 8]), torch.Size([3, 1, 64]))
    >>> explained.maps("bias", layer=0).shape
    torch.Size([1, 8, 8])
    """
    check_module(model)
    tensor, picture = _as_input(model, image)
    with torch.no_grad(), in_evaluation(model), _watched(model) as seen:
        if isinstance(model, ViT):
            features = model.forward_features(tensor)
            output: Any = model.forward_head(features)
            of_patches = features[0, model.prefix :]
        else:
            output = model(tensor)
            of_patches = None
        if not seen:
            raise ValueError(
                f"{type(model).__name__} has no sape2 attention to look into: make it with sape2.nn.Attention, or "
                "call sape2.patch(model)"
            )
        rows, cols = seen[0].grid
        if of_patches is None:  # what the last layer compares, of all heads
            last = seen[-1].k[0, :, seen[-1].layer.prefix :]
            of_patches = last.transpose(0, 1).flatten(1)
        if patches is None:
            y, x, y_behind, x_behind = torch.ops.sape2._chosen_patches(of_patches.float().cpu(), *seen[-1].grid)
            patches = [(y, x), (y_behind, x_behind)]
        for y, x in patches:
            if not (0 <= y < rows and 0 <= x < cols):
                raise ValueError(f"patch {y}, {x} is outside the grid of {rows}×{cols}; rows and columns count from 0")
        chosen = tuple((int(y), int(x)) for y, x in patches)
        layers = tuple(call.rows(chosen) for call in seen)
    return Explanation(picture, output, chosen, layers)


@dataclass(frozen=True)
class _Call:
    """One call of an attention layer."""

    name: str
    layer: LayerEncoding
    q: Tensor
    k: Tensor
    grid: Grid

    def rows(self, patches: Sequence[Patch]) -> LayerRows:
        rows, cols = self.grid
        numbers = [y * cols + x for y, x in patches]
        parts, is_distance = torch.ops.sape2._encoded_rows(
            self.q, self.k, self.layer.encoding, list(self.layer.shape), self.layer.tensors(), rows, cols, numbers
        )
        names = ("attention", "bias", "bias_x", "bias_y", "gates_x", "gates_y", "positions_x", "positions_y", "gates",
                 "positions")  # fmt: skip
        assert set(names) < {field.name for field in fields(LayerRows)}
        found = {name: part[0].cpu() for name, part in zip(names, parts) if part.numel()}
        return LayerRows(self.name, self.layer.encoding, self.grid, self.layer.prefix, is_distance, **found)


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[_Call]]:
    """Keeps q and k of every attention layer, while it lasts."""
    calls: list[_Call] = []

    def watch(name: str, layer: LayerEncoding) -> Any:
        def keep(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any] | None = None) -> None:
            given = dict(zip(("q", "k", "v", "grid"), inputs)) | (named or {})
            grid = given.get("grid") or layer.current_grid()
            q, k = given["q"], given.get("k")
            if k is None:  # all in one
                q, k, _ = q.unflatten(2, (3, layer.shape[1], -1)).permute(2, 0, 3, 1, 4).unbind(0)
            calls.append(_Call(name, layer, q.contiguous(), k.contiguous(), grid))

        if int(torch.__version__.split(".")[0]) < 2:
            return layer.register_forward_pre_hook(keep)
        return layer.register_forward_pre_hook(keep, with_kwargs=True)

    hooks = [
        watch(name.removesuffix(".pos"), module)
        for name, module in model.named_modules()
        if isinstance(module, LayerEncoding)
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _as_input(model: nn.Module, image: Image) -> tuple[Tensor, Tensor]:
    """The image as the model takes it, `[1, C, height, width]`, and as it is shown."""
    weight = next(model.parameters())
    if isinstance(image, Tensor):
        tensor = image if image.dim() == 4 else image.unsqueeze(0)
        if tensor.dim() != 4 or tensor.shape[0] != 1:
            raise ValueError(f"image is {list(image.shape)}; one image, [channels, height, width], was expected")
        return tensor.to(weight), _shown(model, tensor[0].detach().float().cpu())
    if not isinstance(model, ViT):
        raise TypeError(
            f"image is a {type(image).__name__}; {type(model).__name__} has preprocessing of its own: give the tensor "
            "that it takes"
        )
    if hasattr(image, "convert"):
        image = image.convert("RGB")
        size = (image.height, image.width, 3)
        values = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(size)
    else:
        values = torch.as_tensor(image, device="cpu")
        if values.dtype != torch.uint8 or values.dim() != 3 or values.shape[2] != 3:
            raise ValueError(
                f"image is an array {list(values.shape)} of {values.dtype}; [height, width, 3] of bytes was expected"
            )
    pixels = values.permute(2, 0, 1).float() / 255
    return model.normalise(pixels.unsqueeze(0)).to(weight), pixels


def _shown(model: nn.Module, tensor: Tensor) -> Tensor:
    """Pixels of 0 to 1: normalisation undone if the model says what it was, else its values stretched."""
    if isinstance(model, ViT) and model.config["mean"]:
        mean, deviation = (tensor.new_tensor(model.config[name]).view(-1, 1, 1) for name in ("mean", "deviation"))
        pixels = tensor * deviation + mean
    else:
        pixels = (tensor - tensor.min()) / (tensor.max() - tensor.min()).clamp_min(1e-12)
    return pixels.clamp(0, 1).expand(3, -1, -1) if pixels.shape[0] == 1 else pixels.clamp(0, 1)
