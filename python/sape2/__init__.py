"""SaPE²: semantic-aware position encoding for vision transformers, in PyTorch.

- `sape2.ops`: the operators, fused attention with positions, differentiable on CPU and CUDA
- `sape2.nn`: modules, `sape2.nn.Attention` for a model of your own and `sape2.nn.ViT` for a whole one
- `sape2.patch`: any of the encodings in a model of timm or transformers that exists already
- `sape2.accelerate`: SAM, ViTDet and MViTv2 without a stored bias; `sape2.report`: what is fused in a model
- `sape2.load`, `sape2.save`: model files of the `sape2` program
- `sape2.explain`: gates, positions, bias and attention of a model on an image
- `sape2.onnx`: models as ONNX files
- `sape2.encodings`: every position encoding and its options

>>> import torch, sape2
>>> attention = sape2.nn.Attention(64, 4, encoding="sape2-rel-k", grid=(6, 6), prefix=1)
>>> attention(torch.randn(2, 1 + 6 * 6, 64)).shape
torch.Size([2, 37, 64])
"""

from . import (
    _library,  # loads the operators, before anything else asks for them
    nn,
    onnx,
    ops,
)
from ._accelerate import accelerate
from ._encodings import EncodingInfo, EncodingOption, encodings
from ._explain import Explanation, LayerRows, explain
from ._model_file import load, save
from ._patch import attn_layer, follow_grid, patch
from ._report import LayerReport, Report, report

__version__ = _library.VERSION

__all__ = [
    "EncodingInfo",
    "EncodingOption",
    "Explanation",
    "LayerReport",
    "LayerRows",
    "Report",
    "__version__",
    "accelerate",
    "attn_layer",
    "encodings",
    "explain",
    "follow_grid",
    "load",
    "nn",
    "onnx",
    "ops",
    "patch",
    "report",
    "save",
]
