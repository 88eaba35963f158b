"""Which row of the catalogue an engine of a record belongs to, and what that row says of it.

The catalogue is data that every part reads. An engine that it does not hold is a third party's:
nothing is known of it beforehand, and nothing is held against it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.record.model import EngineRecord

EVIDENCE: dict[str, tuple[str, ...]] = {
    "ort": ("graph assignment and profile",),
    "openvino": ("execution-devices and profile",),
    "litert": ("only the CPU registered, and profile", "full acceleration"),
    "mlx": ("stream-device",),
    "coreml": ("plan",),
}
"""By runtime, the words that its engines give for what proves a placement."""

BENEATH = {
    "ort-qnn": "QNN's detailed profile",
    "ort-openvino": "OpenVINO's primitives",
    "ort-vitisai": "Vitis AI's report",
}
"""By provider, the further witness that a proof of it names where its device is no CPU."""


def row_of(engine: EngineRecord) -> Provider | None:
    """Return the row that an engine's id belongs to, null for a third party's and a scripted
    engine."""
    if engine.virtual:
        return None
    return next((row for row in PROVIDERS if _is_of(engine.id, row)), None)


def evidence_of(row: Provider, role: str) -> Sequence[str]:
    """Return the words that an engine of ``row`` on a device of ``role`` may prove by."""
    witness = BENEATH.get(row.id) if role != "CPU" else None
    return [f"{told}, {witness}" if witness else told for told in EVIDENCE[row.runtime]]


def _is_of(identifier: str, row: Provider) -> bool:
    stems = {row.engine_id(role) for role in row.roles}
    return identifier in stems or re.sub(r"-[1-9][0-9]*$", "", identifier) in stems
