"""What the read API answers with, in version 1: fields may be added, and none is taken away."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from npumark.record.envelope import Hex64, Instant, ResultId


class Out(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class SeriesOut(Out):
    """Figures of one series may be ranked together, and of no other."""

    score_version: str
    suite: str
    edition: str


class ProcessorOut(Out):
    slug: str
    name: str
    role: str


class Item(Out):
    """A figure on the board. ``position`` is its rank within what was asked for, null where what
    is not ranked was asked for too, or the order is no ranking. ``tops`` is the peak in TOPS;
    ``delivered`` null unless it is complete and stable."""

    position: int | None
    result_id: ResultId
    url: str
    tops: float
    unstable: bool
    delivered: float | None
    processor: ProcessorOut
    runtime: str
    engine: str
    format: str
    label: str
    workload: str
    os: str
    series: SeriesOut
    created: str
    received_at: Instant
    trust: str
    attestation: str
    quick: bool
    comparable: bool
    ranked: bool
    not_ranked_because: list[str]


class Total(Out):
    """``exact`` is false where more than ``lines`` fit and counting ended there."""

    lines: int
    exact: bool


class BoardOut(Out):
    """A page. ``next`` and ``previous`` are cursors to ask with, null at the ends; ``series`` is
    null where nothing fits."""

    items: list[Item]
    next: str | None
    previous: str | None
    total: Total
    series: SeriesOut | None


class Summary(Out):
    """What a server knows of a result; everything measured is in its record."""

    result_id: ResultId
    url: str
    label: str | None
    tops: float | None
    unstable: bool
    series: SeriesOut
    os: str
    created: str
    received_at: Instant
    tool_version: str
    trust: str
    attestation: str
    quick: bool
    comparable: bool
    ranked: bool
    not_ranked_because: list[str]
    rules_sha256: Hex64
    verified_at: Instant
    faults: list[dict[str, Any]]
    key_id: str
    run_id: str
    payload_sha256: Hex64
    record_sha256: Hex64
    leaf_index: int


class ProcessorLineOut(ProcessorOut):
    runs: int


class ProcessorsOut(Out):
    """``more``: there are others, which a search by name finds."""

    items: list[ProcessorLineOut]
    more: bool


class EngineOut(Out):
    """Medians over machines, in TOPS."""

    runtime: str
    format: str
    tops: float
    delivered: float | None
    machines: int


class ProcessorDetail(ProcessorOut):
    """``peaks`` holds each machine's median best peak (TOPS), greatest first; ``cut`` says that
    only the newest figures were read."""

    series: SeriesOut | None
    peaks: list[float]
    median: float | None
    runs: int
    cut: bool
    engines: list[EngineOut]


class ComparedOut(Out):
    """A figure of each result in TOPS; ``best`` is the place of the greatest, null where they may
    not be ranked."""

    name: str
    values: list[float | None]
    best: int | None


class ApartOut(Out):
    what: str
    values: list[str]


class ComparisonOut(Out):
    """``one_series`` false: the figures stand beside each other and may not be ranked."""

    results: list[Summary]
    one_series: bool
    score: ComparedOut
    peaks: list[ComparedOut]
    delivered: list[ComparedOut]
    apart: list[ApartOut]
