"""Modules: attention with any position encoding, and a whole vision transformer.

An encoding is the string that the `sape2` program takes, `name[option=value,…]` and perhaps `+ape`;
`sape2.encodings()` lists them. Encodings act in two places. Those of attention (`sape2-…`, `rpe…`, `rope…`, `cope`)
are part of each layer: `Attention`, or `LayerEncoding` for q, k and v of your own. Those of the input (`ape`,
`sinusoidal…`) are added to the tokens
once: `InputEncoding`. `ViT` has both.
"""

from ._attention import Attention
from ._encoding import InputEncoding, LayerEncoding
from ._vit import Block, Mlp, PatchEmbed, ViT, presets

__all__ = ["Attention", "Block", "InputEncoding", "LayerEncoding", "Mlp", "PatchEmbed", "ViT", "presets"]
