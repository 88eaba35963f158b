"""Words for figures: number formats, TOPS, the score's label, processors' roles."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.record.model import EngineRecord, Processor
from npumark.worker.protocol import EngineInfo


def engine_marks(engine: EngineRecord | EngineInfo) -> tuple[str, ...]:
    """Return the words that go with an engine's figures wherever they are quoted; mostly none."""
    marks = {
        "emulated": engine.emulated,
        "virtual": engine.virtual,
        "not for publication": engine.local_only,
        "third party": engine.package is not None,
    }
    return tuple(mark for mark, holds in marks.items() if holds)


def declared_label(declared: str, variant: str) -> str:
    """Return a declared format, with what tells ``variant`` from others of its family: ``INT8
    (A16W8)`` has activations of 16 bits, ``INT8`` alone of 8."""
    return _noted(declared, _apart(variant))


def format_label(
    declared: str, ran: str | None, marks: Sequence[str] = (), *, variant: str = ""
) -> str:
    """Return a number format as it may be claimed: what sets its ``variant`` apart within the
    family, what ran if another, and the engine's ``marks``: ``FP16 (computed in FP32, emulated)``.

    ``ran`` null means that the runtime does not say: the declared format is then only what was
    asked for.
    """
    notes = _apart(variant)
    if ran is None:
        notes.append("unconfirmed")
    elif ran != declared:
        notes.append(f"computed in {ran}")
    return _noted(declared, [*notes, *marks])


def _apart(variant: str) -> list[str]:
    return ["A16W8"] if variant.endswith("-a16w8") else []


def _noted(declared: str, notes: Sequence[str]) -> str:
    return f"{declared} ({', '.join(notes)})" if notes else declared


def tops_text(tops: float) -> str:
    """Return TOPS with the digits that a measurement bears: 49.3, 5.21, 0.83, 0.0042."""
    if tops >= 9.995:
        return f"{tops:.1f}"
    if tops >= 0.0995:
        return f"{tops:.2f}"
    return f"{tops:#.2g}" if tops >= 0.0001 else f"{tops:.1e}"


def role_text(processor: Processor, processors: Sequence[Processor]) -> str:
    """Return a processor's role, numbered where there is more than one of it: ``dGPU 2``. What
    an emulator stands for is none of them."""
    same = sum(p.role == processor.role and not p.details.get("emulated") for p in processors)
    return f"{processor.role} {processor.number}" if same > 1 else processor.role


def score_label(
    tops: float,
    processor: Processor,
    processors: Sequence[Processor],
    runtime_title: str,
    format_text: str,
    *,
    quick: bool,
) -> str:
    """Return the headline: ``0.83 TOPS · CPU · AMD EPYC (ONNX Runtime) · INT8``.

    A quick run's says so, wherever the label is quoted.
    """
    parts = [
        f"{tops_text(tops)} TOPS",
        role_text(processor, processors),
        f"{processor.name} ({runtime_title})",
        format_text,
    ]
    if quick:
        parts.append("quick run")
    return " · ".join(parts)
