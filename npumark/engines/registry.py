"""Which engines there are: entry points of the group ``npumark.engines``, named, not imported."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from npumark.engines.base import Engine
from npumark.engines.telemetry import silence
from npumark.errors import EngineError
from npumark.plain import one_line
from npumark.worker.probe_answer import usable_id

GROUP = "npumark.engines"

BUILT_IN = {
    "coreml": "npumark.engines.coreml:CoreMl",
    "litert": "npumark.engines.litert:LiteRt",
    "mlx": "npumark.engines.mlx:Mlx",
    "ort": "npumark.engines.ort:OnnxRuntime",
    "openvino": "npumark.engines.openvino:OpenVino",
    "virtual": "npumark.engines.virtual:Virtual",
}
"""The same table as pyproject's, so that a checkout that is not installed has its engines."""

RUNTIME_TITLES = {
    "coreml": "Core ML",
    "litert": "LiteRT",
    "mlx": "MLX",
    "openvino": "OpenVINO",
    "ort": "ONNX Runtime",
}
"""What the built-in runtimes are called where they cannot say so themselves."""

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Registered:
    """``ref`` is ``module:Class``; ``fault`` says why this entry cannot be used, or is null.
    ``package`` is the distribution that registers it, with its version; null for a built-in."""

    name: str
    ref: str
    fault: str | None
    package: str | None = None


def registered() -> tuple[Registered, ...]:
    """Return every registered engine by name, without importing one; none is left out.

    A built-in's name belongs to the built-in: another package that claims it is listed with a
    fault, and so is the second of two packages that claim one name.
    """
    return collect(tuple(entry_points(group=GROUP)))


def collect(points: tuple[EntryPoint, ...]) -> tuple[Registered, ...]:
    """Return the built-ins and ``points`` as one list, sorted by name, faults told."""
    found = [Registered(name, ref, None) for name, ref in BUILT_IN.items()]
    owners: dict[str, str] = {}
    for point in sorted(points, key=lambda p: (p.name, p.value)):
        if BUILT_IN.get(point.name) == point.value:
            continue
        owner = one_line(point.dist.name) if point.dist else "an unnamed package"
        fault = None
        if point.name in BUILT_IN:
            fault = f"{owner} registers the name of a built-in engine"
        elif not usable_id(point.name):
            fault = f"{owner} registers {point.name!r}, not a name of a-z, 0-9, dots and dashes"
        elif not _REFERENCE.fullmatch(point.value):
            fault = f"{owner} registers {point.value!r}, which is not module:Class"
        elif owners.setdefault(point.name, owner) != owner:
            fault = f"{owner} and {owners[point.name]} both register {point.name}"
        found.append(Registered(point.name, point.value, fault, _package(point)))
    return tuple(sorted(found, key=lambda r: (r.name, r.ref)))


def _package(point: EntryPoint) -> str:
    if point.dist is None:
        return "an unnamed package"
    version = getattr(point.dist, "version", None)
    return one_line(f"{point.dist.name} {version or '(version unknown)'}")


def resolve(ref: str) -> Engine:
    """Import and return the engine that ``module:Class`` names, its runtime's telemetry off.

    Raises EngineError, in one sentence, where the module cannot be imported or holds no engine.
    """
    silence()
    module_name, _, class_name = ref.partition(":")
    try:
        module = importlib.import_module(module_name)
        kind = getattr(module, class_name)
    except Exception as fault:
        text = " ".join(str(fault).split())[:300]
        raise EngineError(f"the engine {ref} cannot be imported: {text}") from fault
    if not (isinstance(kind, type) and issubclass(kind, Engine)):
        raise EngineError(f"{ref} is not an engine")
    return kind()
