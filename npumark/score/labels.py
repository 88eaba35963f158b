"""Words for figures: number formats, TOPS, the score's label, processors' roles."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.record.model import Processor


def format_label(declared: str, ran: str | None) -> str:
    """Return a number format as it may be claimed: what ran, and what was declared if another.

    ``ran`` null means that the runtime does not say: the declared format is then only what was
    asked for.
    """
    if ran is None:
        return f"{declared} (unconfirmed)"
    if ran == declared:
        return declared
    return f"{declared} (computed in {ran})"


def tops_text(tops: float) -> str:
    """Return TOPS with the digits that a measurement bears: 49.3, 5.21, 0.83, 0.0042."""
    if tops >= 9.995:
        return f"{tops:.1f}"
    if tops >= 0.0995:
        return f"{tops:.2f}"
    return f"{tops:#.2g}" if tops >= 0.0001 else f"{tops:.1e}"


def role_text(processor: Processor, processors: Sequence[Processor]) -> str:
    """Return a processor's role, numbered where there is more than one of it: ``dGPU 2``."""
    same = sum(p.role == processor.role for p in processors)
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
