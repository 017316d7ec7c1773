"""Model files of the `sape2` program: safetensors with timm's names, and the configuration in the metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch

from .nn._encoding import refill
from .nn._vit import ViT


def load(file: str | os.PathLike[str], *, device: Any = None) -> ViT:
    """The model in a file that `sape2 train` or `save` wrote, ready for inference.

    Its logits are the program's. `model.metadata` holds what else the file says, such as how the model was trained.
    A file that is no model file, or lacks a tensor, raises ValueError with the library's sentence.

    Args:
        file: where it is.
        device: where the model is to be; by default where PyTorch makes tensors: on the CPU, or what
            `torch.set_default_device` said.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(ViT("vit-micro", encoding="rope2d+ape", class_names=["cat", "dog"]), path, metadata={"note": "untrained"})
    >>> model = load(path)
    >>> model.encoding, model.config["class_names"], model.metadata
    ('rope2d+ape', ['cat', 'dog'], {'note': 'untrained'})
    """
    config, metadata, names, values = torch.ops.sape2._load_model(os.fspath(file))
    model = ViT.from_config(json.loads(config), device="meta")
    model.to_empty(device=torch.empty(0).device if device is None else device)
    parameters = dict(model.named_parameters())
    refill([parameters[name] for name in names], values)
    model.metadata = json.loads(metadata)
    return model.eval()


def save(
    model: ViT,
    file: str | os.PathLike[str],
    *,
    dtype: torch.dtype = torch.float32,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a model as a file that `sape2 eval`, `predict`, `serve` and `load` read.

    Args:
        model: a `sape2.nn.ViT`, on any device.
        file: where to; it appears whole or not at all.
        dtype: how weights are stored, `torch.float32` or `torch.bfloat16`.
        metadata: further strings by name; by default those that the model was loaded with.
    """
    if not isinstance(model, ViT):
        raise TypeError(
            f"a model file holds a sape2.nn.ViT, but the model is a {type(model).__name__}; save its state_dict() with "
            "torch.save"
        )
    if dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"dtype is {dtype}; torch.float32 or torch.bfloat16 was expected")
    extra = model.metadata if metadata is None else metadata
    parameters = dict(model.named_parameters())
    torch.ops.sape2._save_model(
        os.fspath(file),
        json.dumps(model.config),
        json.dumps(dict(extra)),
        list(parameters),
        [p.detach().to("cpu") for p in parameters.values()],
        dtype == torch.bfloat16,
    )
