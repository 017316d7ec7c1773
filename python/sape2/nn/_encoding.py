"""Position encodings as modules: parameters in PyTorch's hands, everything else the library's own code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._encodings import Described, Grid, Parameters, Shape, described, rows_and_cols
from ._grid_record import GridRecord


def drawn_seed() -> int:
    """A seed for first values, from PyTorch's own generator: `torch.manual_seed` decides them."""
    return int(torch.randint(2**62, (), device="cpu"))


def register(module: nn.Module, parameters: Parameters, device: Any, dtype: Any) -> None:
    """Registers parameters without values."""
    for name, shape in parameters:
        module.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))


def refill(parameters: list[Tensor], values: list[Tensor]) -> None:
    """Copies first values into parameters."""
    with torch.no_grad():
        for parameter, value in zip(parameters, values):
            parameter.copy_(value)


class _Encoding(nn.Module):
    """What every encoding has: the parameters that the library describes, and their first values."""

    encoding: str
    grid: Grid
    prefix: int
    shape: Shape
    _in_layers: bool

    def _take(self, encoding: str, parameters: Parameters, device: Any, dtype: Any) -> None:
        _, _, rows, cols, self.prefix = self.shape
        self.encoding, self.grid = encoding, (rows, cols)
        register(self, parameters, device, dtype)
        self._names = tuple(name for name, _ in parameters)
        self.reset_parameters()

    def tensors(self) -> list[Tensor]:
        """The parameters, in the order in which the library takes them."""
        # Every call asks for them, and nn.Module's own way takes six times as long. It is needed only where a
        # parametrization computes a parameter.
        own: dict[str, Any] = self._parameters
        return list(own.values()) if tuple(own) == self._names else [getattr(self, name) for name in self._names]

    def __prepare_scriptable__(self) -> Any:
        """What torch.jit.script asks every module for first."""
        raise NotImplementedError(
            "torch.jit.script cannot read sape2's attention; use torch.compile, torch.export or torch.jit.trace"
        )

    def reset_parameters(self) -> None:
        """First values, drawn from PyTorch's generator. Nothing is done on the meta device."""
        tensors = self.tensors()
        if tensors and not tensors[0].is_meta:
            inside, names = self._in_layers, "pos" if self._in_layers else ""
            drawn = torch.ops.sape2._encoding_parameters(self.encoding, list(self.shape), inside, drawn_seed(), names)
            refill(tensors, drawn)


class LayerEncoding(_Encoding):
    """Attention with positions for q, k and v of your own.

    Args:
        encoding: an encoding that acts in attention, such as `"sape2-rel-k"` or `"rope2d"`.
        dim: width of all heads together.
        num_heads: heads; `dim / num_heads` is the head size `d`.
        grid: rows and columns of patches that the model is trained at.
        prefix: tokens before the patches (class token, registers).

    Shapes:
        q, k, v and the result: `[B, h, N, d]` with `N = prefix + rows·cols`; patch `(y, x)` is token
        `prefix + y·cols + x`. Or, with less work for the host, one tensor `[B, N, 3·dim]` in place of the three, as
        one projection makes it: q's heads side by side, then k's, then v's. The result is then `[B, N, dim]`.

    >>> positions = LayerEncoding("sape2-rel-k", dim=64, num_heads=4, grid=(6, 6), prefix=1)
    >>> q, k, v = torch.randn(3, 2, 4, 37, 16)
    >>> positions(q, k, v).shape
    torch.Size([2, 4, 37, 16])
    >>> positions(*torch.randn(3, 2, 4, 1 + 5 * 8, 16), grid=(5, 8)).shape
    torch.Size([2, 4, 41, 16])
    >>> positions(torch.randn(2, 37, 3 * 64)).shape
    torch.Size([2, 37, 64])
    """

    _in_layers = True
    record: GridRecord | None = None
    """Where a call that names no grid finds it; the one trained at if this is None."""

    def __init__(
        self,
        encoding: str,
        dim: int,
        num_heads: int,
        grid: Grid,
        prefix: int = 0,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.shape = (dim, num_heads, *rows_and_cols(grid), prefix)
        info = described(encoding, self.shape)
        self._check(info)
        self._take(info.encoding, info.layer_parameters, device, dtype)

    def _check(self, info: Described) -> None:
        if info.carries:
            raise ValueError(
                f'encoding "{info.encoding}" hands positions from layer to layer, which only sape2.nn.ViT does'
            )
        if not info.at_input:
            return
        at_input, in_layers = ("ape", info.encoding[: -len("+ape")]) if info.with_ape else (info.encoding, "none")
        raise ValueError(
            f'encoding "{info.encoding}" adds positions to the tokens before the first layer, which attention cannot '
            f'do: give "{in_layers}" here and put sape2.nn.InputEncoding("{at_input}", …) before the first layer'
        )

    def current_grid(self) -> Grid:
        """The grid of the last images, or the one trained at."""
        return self.grid if self.record is None else (self.record.rows, self.record.cols)

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None, grid: Grid | None = None) -> Tensor:
        """Attention; another grid than the one trained at adapts the tables as the encoding's options say.

        `q` alone is a projection's output, all three in one.
        """
        packed = k is None
        if packed != (v is None):
            raise ValueError("k or v is missing; give q, k and v, or one tensor that holds all three")
        if grid is not None:
            rows, cols = rows_and_cols(grid)
        elif self.record is not None:
            rows, cols = self.record.grid_of(q.shape[1 if packed else 2] - self.prefix)
        else:
            rows, cols = self.grid
        attended: Tensor
        if packed:
            attended = torch.ops.sape2._encoded_packed_attention.default(
                q, self.encoding, self.shape, self.tensors(), rows, cols
            )
        else:
            attended = torch.ops.sape2._encoded_attention.default(
                q, k, v, self.encoding, self.shape, self.tensors(), rows, cols
            )
        return attended

    def extra_repr(self) -> str:
        """What stands between the brackets of `repr`."""
        return f'"{self.encoding}", grid={self.grid}, prefix={self.prefix}'


class InputEncoding(_Encoding):
    """Positions added to the tokens once, before the first layer: `ape`, `sinusoidal`, `sinusoidal2d`.

    Args:
        encoding: such an encoding.
        dim: width of the tokens.
        grid: rows and columns of patches that the model is trained at.
        prefix: tokens before the patches.

    Shapes:
        tokens and the result: `[B, prefix + rows·cols, dim]`.

    >>> ape = InputEncoding("ape", dim=64, grid=(6, 6), prefix=1)
    >>> ape.pos_embed.shape
    torch.Size([1, 37, 64])
    >>> ape(torch.zeros(2, 1 + 4 * 8, 64), grid=(4, 8)).shape
    torch.Size([2, 33, 64])
    """

    _in_layers = False

    def __init__(
        self, encoding: str, dim: int, grid: Grid, prefix: int = 0, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.shape = (dim, 1, *rows_and_cols(grid), prefix)
        info = described(encoding, self.shape)
        if info.in_layers or not info.at_input:
            raise ValueError(
                f'encoding "{info.encoding}" acts in attention: give it to sape2.nn.Attention or '
                "sape2.nn.LayerEncoding; sape2.nn.ViT takes encodings of every kind"
            )
        self._take(info.encoding, info.model_parameters, device, dtype)

    def forward(self, tokens: Tensor, grid: Grid | None = None) -> Tensor:
        """The tokens with their positions; vectors learnt for another grid are resampled as an image."""
        rows, cols = self.grid if grid is None else rows_and_cols(grid)
        added: Tensor = torch.ops.sape2._encoded_input.default(
            tokens, self.encoding, self.shape, self.tensors(), rows, cols
        )[0]
        return added

    def extra_repr(self) -> str:
        """What stands between the brackets of `repr`."""
        return f'"{self.encoding}", grid={self.grid}, prefix={self.prefix}'
