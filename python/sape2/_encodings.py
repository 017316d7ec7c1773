"""The position encodings as the library knows them: one list and one parser for C++ and Python."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, SupportsIndex, cast

import torch

Grid = tuple[int, int]
"""Rows and columns of patches."""

Shape = tuple[int, int, int, int, int]
"""Width, heads, rows, columns and prefix tokens of a model: what an encoding has to know of it."""


def rows_and_cols(grid: Any) -> Grid:
    """The two sides of a grid that a user gave, as numbers; ValueError if it has not two, or they are not whole."""
    try:
        rows, cols = grid
    except (TypeError, ValueError, RuntimeError):  # the last is a tensor's
        rows = cols = None
    if not all(isinstance(side, SupportsIndex) for side in (rows, cols)):
        raise ValueError(f"grid is {grid}; rows and columns were expected, as whole numbers such as (14, 14)")
    return cast(Grid, (rows, cols))


Parameters = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes."""


@dataclass(frozen=True)
class EncodingOption:
    """One option of an encoding, written `name[option=value,…]`."""

    name: str
    kind: str
    """`choice`, `number` or `integer`."""
    description: str
    choices: tuple[str, ...]
    """The values of a choice."""
    default: str
    """As it would be written; a formula if it depends on the model."""


@dataclass(frozen=True)
class EncodingInfo:
    """One position encoding: what `sape2 info` shows of it."""

    name: str
    summary: str
    options: tuple[EncodingOption, ...]


@functools.cache
def encodings() -> tuple[EncodingInfo, ...]:
    """Every position encoding, with its options, in the order of `sape2 info`.

    >>> [encoding.name for encoding in encodings()][:4]
    ['none', 'ape', 'sinusoidal', 'sinusoidal2d']
    >>> rel_k, = (e for e in encodings() if e.name == "sape2-rel-k")
    >>> rel_k.options[0].name, rel_k.options[0].choices, rel_k.options[0].default
    ('span', ('suffix', 'between'), 'between')
    """
    return tuple(
        EncodingInfo(
            entry["name"],
            entry["summary"],
            tuple(EncodingOption(**{**option, "choices": tuple(option["choices"])}) for option in entry["options"]),
        )
        for entry in json.loads(torch.ops.sape2._encodings())
    )


@dataclass(frozen=True)
class SilentStart:
    """How an encoding begins without any effect, in a model that was trained without it."""

    encoding: str
    """As asked for, or with an option more that this takes."""
    zeroed: tuple[str, ...]
    """The parameters that start at 0."""


@dataclass(frozen=True)
class Described:
    """An encoding in a model of a certain shape."""

    encoding: str
    """The canonical string."""
    name: str
    with_ape: bool
    at_input: bool
    """It adds something to the tokens before the first layer."""
    in_layers: bool
    """It takes part in the attention."""
    carries: bool
    """One layer hands positions to the next."""
    silent_start: SilentStart | None
    """None: it acts from the start."""
    model_parameters: Parameters
    """Names and sizes of parameters of the model as a whole."""
    layer_parameters: Parameters
    """Names and sizes of the parameters of each layer."""


def described(encoding: str, shape: Shape) -> Described:
    """What an encoding is in a model of that shape; ValueError with the library's sentence if it cannot be."""
    # Before the cache, to which 14 and 14.0 are the same.
    if not isinstance(encoding, str):
        raise TypeError(f'encoding is {encoding!r}; a string such as "sape2-rel-k" was expected')
    if not all(isinstance(size, SupportsIndex) and abs(int(size)) < 2**63 for size in shape):
        raise ValueError(f"width, heads, rows, cols and prefix are {shape}; whole numbers were expected")
    return _described(encoding, shape)


@functools.lru_cache(maxsize=256)
def _described(encoding: str, shape: Shape) -> Described:
    entry: dict[str, Any] = json.loads(torch.ops.sape2._encoding(encoding, list(shape)))
    for key in ("model_parameters", "layer_parameters"):
        entry[key] = tuple((item["name"], tuple(item["shape"])) for item in entry[key])
    start = entry["silent_start"]
    if start is not None:
        entry["silent_start"] = SilentStart(start["encoding"], tuple(start["zeroed"]))
    return Described(**entry)
