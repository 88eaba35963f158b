"""What no comparison with a reference and no two loops can give: levels beyond a perfect answer,
and raw samples that are the same to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterator

from npumark.gates.measures import MEASURES, SNR_CAP_DB
from npumark.record.model import Payload
from npumark.score.difference import Difference

_ROUNDING = 1e-9
"""By so much the sums behind a measure may miss what it cannot exceed."""

_LEVELS = frozenset(m.name for m in MEASURES.values() if m.floor and m.unit != "dB")
_ERRORS = frozenset(m.name for m in MEASURES.values() if not m.floor)


def beyond_perfect(path: str, name: str, value: float | None) -> Iterator[Difference]:
    """Yield where a measure is better than that of an answer without any error."""
    if value is None:
        return
    if name.endswith("snr_db") and value > SNR_CAP_DB:
        yield Difference(path, value, SNR_CAP_DB, "more than an exact answer has")
    elif name in _LEVELS and value > 1 + _ROUNDING:
        yield Difference(path, value, 1.0, "more than an exact answer has")
    elif name in _ERRORS and value < -_ROUNDING:
        yield Difference(path, value, 0.0, "less than an exact answer has")


def bounds(payload: Payload) -> Iterator[Difference]:
    """Yield every measure beyond a perfect answer's, and every digest of raw samples that stands
    at two attempts or windows; a virtual engine's clock may well repeat itself."""
    virtual = {e.id for e in payload.engines if e.virtual}
    digests: list[tuple[str, str, str | None]] = []
    for i, entry in enumerate(payload.entries):
        for j, attempt in enumerate(entry.attempts):
            measured = attempt.measurement
            if measured is None:
                continue
            path = f"entries[{i}].attempts[{j}].measurement"
            for name, value in measured.measures.items():
                yield from beyond_perfect(f"{path}.measures.{name}", name, value)
            least = measured.timed_check.min_snr_db
            yield from beyond_perfect(f"{path}.timed_check.min_snr_db", "min_snr_db", least)
            digests.append((f"{path}.samples_sha256", entry.engine, measured.samples_sha256))
    for i, role in enumerate(payload.box.roles if payload.box else []):
        for j, joint in enumerate(role.attempts):
            for k, run in enumerate(joint.cards):
                if run.window is None:
                    continue
                path = f"box.roles[{i}].attempts[{j}].cards[{k}].window"
                level = run.window.check.snr_db
                yield from beyond_perfect(f"{path}.check.snr_db", "snr_db", level)
                digests.append((f"{path}.samples_sha256", run.engine, run.window.samples_sha256))
    seen: dict[str, str] = {}
    for path, engine, digest in digests:
        if digest is None or engine in virtual:
            continue
        if digest in seen:
            why = f"the raw samples of {seen[digest]}: no two loops are alike to the nanosecond"
            yield Difference(path, digest, None, why)
        seen.setdefault(digest, path.removesuffix(".samples_sha256"))
