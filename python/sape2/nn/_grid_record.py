"""The grid of the forward pass under way, for layers that are handed tokens alone."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.fx

from .._encodings import Grid


def is_traced() -> bool:
    """Whether torch.compile, torch.export or torch.jit.trace is at work."""
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)  # PyTorch has it since 2.3
    return bool((is_compiling is not None and is_compiling()) or torch._C._get_tracing_state())


def is_in_backward() -> bool:
    """Whether this is called by autograd, on the way back."""
    task = getattr(torch._C, "_current_graph_task_id", None)  # PyTorch 1 does not tell
    return task is not None and task() != -1


class GridRecord:
    """Rows and columns of patches in the forward pass under way; one for a model, shared by its layers.

    Several threads may run one model on images of different sizes: each finds the grid that it noted itself.
    Activation checkpointing goes through layers once more in the backward pass, when images of another size may have
    come since, and on a GPU in another thread: it finds the last grid of as many patches.
    """

    def __init__(self, rows: int, cols: int) -> None:
        self.rows = rows
        self.cols = cols
        """Those noted last, by any thread."""
        self._own = threading.local()
        self._by_patches = {rows * cols: (rows, cols)}
        self._waiting: set[Grid] = set()  # whose backward pass may still come
        self._went_back = False
        self._was_traced = False

    def note(self, rows: int, cols: int) -> None:
        """Keeps the grid of the images that come."""
        self.rows, self.cols = rows, cols
        # A traced model has no other grid in between, and sides that are left open are no keys.
        self._was_traced = is_traced()
        if self._was_traced:
            return
        self._own.grid = self._by_patches[rows * cols] = rows, cols
        if self._went_back:
            self._waiting, self._went_back = set(), False
        if torch.is_grad_enabled():
            self._waiting.add((rows, cols))

    def grid_of(self, patches: Any) -> Grid:
        """The grid for so many patches, or the last one if none is known; attention says that it does not fit."""
        # Where only what notes the grid was compiled, that one is still the last.
        if is_traced() or isinstance(patches, torch.fx.Proxy) or self._was_traced:
            return self.rows, self.cols
        if is_in_backward():
            self._went_back = True
            like = sorted(grid for grid in self._waiting if grid[0] * grid[1] == patches)
            if len(like) > 1:
                raise ValueError(
                    "activation checkpointing computes a layer again, and cannot know whether for images of "
                    + " or ".join(f"{rows}×{cols}" for rows, cols in like)
                    + " patches; call backward() after each of these shapes, or train without checkpointing"
                )
        own: Grid | None = getattr(self._own, "grid", None)
        if own is not None and own[0] * own[1] == patches:
            return own
        return self._by_patches.get(patches, (self.rows, self.cols))

    def __reduce__(self) -> Any:
        return GridRecord, (self.rows, self.cols)
