"""How the calibration scales the layers of a network, by role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Gain:
    """How a role scales its layer.

    ``gain``: standard deviation of a channel before the activation; ``shift``: its mean (for
    the role ``body`` only where an activation follows); ``layerwise``: one variance for the
    whole layer, for layers whose output has one position per picture, too few for a variance
    per channel; ``centre``: factor on the centre tap of the kernels.
    """

    gain: float = 1.0
    shift: float = 0.0
    layerwise: bool = False
    centre: int = 1


Recipe = Mapping[str, Gain]
"""Role -> gain. Nodes whose role is ``head`` are left to ``workloads.heads``."""
