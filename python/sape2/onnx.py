"""Models as ONNX files, which run where neither PyTorch nor sape2 is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from . import _formula
from ._evaluation import in_evaluation
from ._site import check_module
from .nn._vit import ViT

__all__ = ["OPSETS", "export"]

OPSETS = (18, 19, 20, 21, 22, 23)
"""Versions of ONNX's standard operators that `export` can write."""


def export(
    model: nn.Module,
    file: str | os.PathLike[str],
    example: Tensor | Sequence[Tensor] | None = None,
    *,
    opset: int = 18,
    input_names: Sequence[str] = ("images",),
    output_names: Sequence[str] = ("logits",),
) -> None:
    """Writes a model as an ONNX file of standard operators: it runs in any ONNX runtime, without sape2.

    The number of images stays open, their size is the example's. Attention is written as plain matrix products with a
    stored bias: an ONNX file has no fused kernels. The model is exported as in `eval()`, and stays as it was.

    A `sape2.nn.ViT` of float32 is written as `sape2 export` writes it, which needs nothing else. Any other module is
    traced by PyTorch; that needs PyTorch 2.6 or later, and `pip install onnx onnxscript`.

    Args:
        model: a `sape2.nn.ViT`, a patched or accelerated model, or any module with sape2 attention.
        file: where to; it appears whole or not at all.
        example: an input of the model, or all of them, of the size that the file will take; values and device do not
            matter. If it is left out: images of the size that the model says it was trained at.
        opset: version of ONNX's operators, one of `OPSETS`.
        input_names: names of the inputs in the file.
        output_names: names of the outputs; those without a name get one.

    Raises:
        ImportError: if onnx or onnxscript is not installed, or PyTorch is too old.
        ValueError: for another opset, or if `example` is needed.

    >>> import onnx
    >>> from sape2.nn import ViT
    >>> path = os.path.join(tempfile.mkdtemp(), "model.onnx")
    >>> export(ViT("vit-micro", encoding="sape2-rel-k", depth=1, seed=0), path)
    >>> {node.domain for node in onnx.load(path).graph.node}
    {''}
    """
    if opset not in OPSETS:
        raise ValueError(f"opset is {opset}; one from {OPSETS[0]} to {OPSETS[-1]} was expected")
    check_module(model)
    folder, name = os.path.split(os.fspath(file))
    if not os.path.isdir(folder or "."):
        raise FileNotFoundError(f'"{folder}" is no folder to write "{name}" into; make it first')
    inputs = _inputs(model, example)
    if isinstance(model, ViT) and _is_as_built(model) and len(inputs) == len(input_names) == len(output_names) == 1:
        _export_vit(model, file, inputs[0], opset, input_names[0], output_names[0])
        return
    _check()
    with in_evaluation(model), _quiet(), torch.no_grad():
        batch = torch.export.Dim("batch")
        exported = torch.export.export(
            model, inputs, dynamic_shapes=tuple({0: batch} if x.dim() else None for x in inputs), strict=False
        )
        program = torch.onnx.export(
            exported.run_decompositions(_formula.table()),
            dynamo=True,
            opset_version=opset,
            input_names=list(input_names),
            output_names=list(output_names),
            verbose=False,
        )
    assert program is not None
    written = program.model.opset_imports[""]
    if written != opset:  # PyTorch keeps its own version if it cannot convert
        raise ValueError(f"this PyTorch cannot write opset {opset}; opset={written} was expected")
    with tempfile.TemporaryDirectory(dir=folder or None, prefix=f".{name}.") as scratch:
        whole = os.path.join(scratch, name)
        program.save(whole)  # weights of more than 2 GiB come as a second file beside it
        for part in sorted(os.listdir(scratch), key=lambda part: part == name):
            os.replace(os.path.join(scratch, part), os.path.join(folder, part))


def _is_as_built(model: ViT) -> bool:
    """Whether the model is the one that its configuration says: of its modules none was exchanged, no weight cast."""
    built = ViT.from_config(model.config, device="meta")
    return [type(m) for m in model.modules()] == [type(m) for m in built.modules()] and all(
        weight.dtype == torch.float32 for weight in model.parameters()
    )


def _export_vit(
    model: ViT, file: str | os.PathLike[str], images: Tensor, opset: int, input_name: str, output_name: str
) -> None:
    model._grid_of(images)  # says what is wrong with them
    names, values = list(model.state_dict()), list(model.state_dict().values())
    torch.ops.sape2._export_onnx(
        os.fspath(file), json.dumps(model.config), names, values, *images.shape[2:], opset, input_name, output_name
    )


def _check() -> None:
    if not hasattr(torch.onnx, "ONNXProgram") or not hasattr(torch, "export"):
        raise ImportError(f"sape2.onnx.export needs PyTorch 2.6 or later, but this is {torch.__version__}")
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"sape2.onnx.export needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def _inputs(model: nn.Module, example: Tensor | Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """At least two images: PyTorch takes the number 1 for part of the model."""
    if example is None:
        example = _images_of(model)
    weight = next(model.parameters(), None)
    given = (example,) if isinstance(example, Tensor) else tuple(example)
    inputs = given if weight is None else tuple(x.to(weight.device) for x in given)
    return tuple(torch.cat([x, x]) if x.dim() and x.shape[0] == 1 else x for x in inputs)


def _images_of(model: nn.Module) -> Tensor:
    """Images of the size that a model says it was trained at; ValueError if it says none."""
    size: Any = None
    config = cast(Any, getattr(model, "config", None))
    if isinstance(model, ViT):
        size = (model.config["vit"]["channels"], *model.config["vit"]["image_size"])
    elif getattr(getattr(model, "patch_embed", None), "img_size", None) is not None:  # timm
        embedding = cast(Any, model.patch_embed)
        size = (embedding.proj.in_channels, *embedding.img_size)
    elif hasattr(config, "image_size") and hasattr(config, "num_channels"):  # transformers
        side = config.image_size
        size = (config.num_channels, *((side, side) if isinstance(side, int) else side))
    if size is None:
        raise ValueError(
            f"{type(model).__name__} does not say what it takes: give one of its inputs as example=torch.zeros(…)"
        )
    weight = next(model.parameters())
    return torch.zeros(2, *size, device=weight.device, dtype=weight.dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about itself
        yield
