"""What is measured: ours, and everything one could use instead."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    function: str  # in formulas.py
    form: str  # of the bias: none, distance or direct
    compiled: bool = False
    backward: bool = True
    longest_line: int = 1 << 30  # of the grid


# The most telling first: where time runs out, the last are left out.
PEERS = [
    Peer("plain SDPA", "plain_sdpa", "none"),
    Peer("ours, plain", "ours_plain", "none"),
    Peer("ours, sape2-k", "ours", "distance"),
    Peer("ours, sape2-rel-k", "ours_relative", "direct"),
    Peer("listing", "listing", "distance"),
    Peer("listing, compiled", "listing", "distance", compiled=True),
    Peer("matrix form, compiled", "matrix_form", "distance", compiled=True),
    Peer("SDPA + stored distances", "sdpa_with_distances", "distance"),
    Peer("rel listing", "relative_listing", "direct"),
    Peer("rel listing, compiled", "relative_listing", "direct", compiled=True),
    Peer("SDPA + stored rel bias", "sdpa_with_relative", "direct"),
    Peer("FlexAttention, rel", "flex_relative", "direct", compiled=True),
    Peer("FlexAttention, distances", "flex_distances", "distance", compiled=True, backward=False,
         longest_line=16),  # its score function has a term for each entry of a line
]
QUICK = [index for index, peer in enumerate(PEERS) if peer.function in ("plain_sdpa", "ours_plain", "ours", "ours_relative")]
