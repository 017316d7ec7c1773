"""Reads safetensors files with the standard library and NumPy alone, for tests."""

import json
import pathlib
import struct

import numpy
import torch

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden"
TYPES = {"F64": numpy.float64, "F32": numpy.float32}


def load(path):
    """The tensors and the metadata of one file."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = numpy.frombuffer(data[8 + size + begin : 8 + size + end], TYPES[entry["dtype"]])
        tensors[name] = torch.from_numpy(raw.reshape(entry["shape"]).copy())
    return tensors, metadata


def sape2_cases():
    """(name, tensors, metadata) of every SaPE² case."""
    for path in sorted(FOLDER.glob("sape2*.safetensors")):
        yield (path.stem, *load(path))
