"""Delivered TOPS: what the real networks get, as a geometric mean over the scored ones."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.pack.manifest import Manifest
from npumark.record.model import Delivered, EngineRecord, Entry, NetworkFigure
from npumark.score import stats


def scored_networks(manifest: Manifest) -> tuple[str, ...]:
    """Return the networks that the delivered figure needs, in manifest order."""
    return tuple(w.id for w in manifest.workloads.values() if w.tier == "scored")


def winner(
    engine: str, workload: str, entries: Sequence[Entry], *, strict: bool = False
) -> Entry | None:
    """Return an engine's fastest counting variant of a network; the earlier one on a tie.

    With ``strict`` only variants count that also pass the near-lossless gate. Medians are
    compared, never single attempts.
    """
    best: Entry | None = None
    for entry in entries:
        if (entry.engine, entry.workload) != (engine, workload):
            continue
        if not (entry.high_accuracy if strict else entry.counts) or entry.figure is None:
            continue
        if best is None or best.figure is None or entry.figure.ips > best.figure.ips:
            best = entry
    return best


def delivered(
    engine: str, entries: Sequence[Entry], manifest: Manifest, *, strict: bool = False
) -> Delivered | None:
    """Return an engine's delivered TOPS, or with ``strict`` its high-accuracy figure.

    Where a scored network is missing the figure is partial: the mean over the others, shown
    and never ranked. Null where no network counts.
    """
    networks: dict[str, NetworkFigure] = {}
    missing = []
    for workload in scored_networks(manifest):
        best = winner(engine, workload, entries, strict=strict)
        if best is None or best.figure is None:
            missing.append(workload)
            continue
        networks[workload] = NetworkFigure(
            variant=best.variant,
            format=best.format or best.label,
            tops=best.figure.tops,
            ips=best.figure.ips,
            unstable=best.stats.unstable,
            screened_outlier=any(
                e.stats.screened_outlier
                for e in entries
                if (e.engine, e.workload) == (engine, workload)
            ),
        )
    if not networks:
        return None
    return Delivered(
        tops=stats.geometric_mean([n.tops for n in networks.values()]),
        complete=not missing,
        unstable=any(n.unstable for n in networks.values()),
        missing=missing,
        networks=networks,
    )


def rankable(engine: EngineRecord) -> bool:
    """Whether an engine's delivered figure may be ranked: complete and stable (methodology §10),
    of a device that is neither emulated nor virtual, by an engine of npumark's own whose results
    are published."""
    figure = engine.delivered
    if figure is None or engine.emulated or engine.virtual or engine.local_only:
        return False
    if engine.package is not None:
        return False
    return figure.complete and not figure.unstable
