"""The box stage in a record: every card of a role at once (methodology §3b).

``BoxCardRun`` holds what one worker reported and ``BoxAttempt`` what the orchestrator saw; their
fields named under *derived*, and all of ``BoxCard``, ``BoxRole`` and ``Box`` beside the attempts,
follow from those by ``score.box`` and by nothing else. A card is named by its processor's id.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from npumark.worker.protocol import Status

Nanoseconds = Annotated[int, Field(ge=0, le=2**53 - 1)]
Offset = Annotated[int, Field(ge=-(2**53 - 1), le=2**53 - 1)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _pair(told: Any) -> Any:
    """Return a JSON array as the tuple that it stands for; a strict reading takes no other."""
    return tuple(told) if isinstance(told, list) else told


Cut = Annotated[tuple[Offset, Offset], BeforeValidator(_pair)]

BoxRoleName = Literal["iGPU", "dGPU", "NPU"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BoxCheck(_Model):
    """The outputs of the window's last call against the reference of its input; ``snr_db`` is
    null where it is not finite, with ``why``."""

    iteration: Count
    sample: Count
    snr_db: Finite | None
    why: str | None


class BoxWindow(_Model):
    """What one card did in the window (worker.protocol.Window). Times are nanoseconds after the
    window's start; ``straddling`` are (begin, end) of the calls that an end of the window cuts."""

    late_ns: Offset
    inside: Count
    straddling: list[Cut]
    calls: Count
    check: BoxCheck
    load_ns: Nanoseconds
    warmup_ns: Nanoseconds
    samples_sha256: str | None
    peak_rss_bytes: Count | None


class BoxPin(_Model):
    """What a card's worker was bound to: the NUMA node nearest to the card and its CPUs, or null
    with ``why``; ``cpus`` as the worker read them back."""

    numa_node: Count | None
    cpus: list[Count] | None
    why: str | None


class BoxCardRun(_Model):
    """One card in one attempt. ``status`` is its worker's fate; ``ok`` means that it ran to the
    end of the window, and whether its answer was right is judged.

    Derived: ``passed`` (null where nothing was checked), ``counted`` (calls by their share inside
    the window) and ``tops``; null where the card did not run to the end.
    """

    card: str
    engine: str
    workload: str
    variant: str
    status: Status
    why: str | None
    pid_exit: int | None
    window: BoxWindow | None
    pin: BoxPin
    log_tail: str | None
    passed: bool | None
    counted: Finite | None
    tops: Finite | None


class BoxAttempt(_Model):
    """All cards of a role at once, once. ``started_ns`` and ``wall_ns`` are on the run's clock,
    ``window_ns`` is the window's length. One that is ``skipped`` was not made, ``why`` says why;
    it has no cards, nor has one whose end nobody saw.

    Derived: ``counts``; ``void_because`` (a sentence for each card at fault, empty where it
    counts); ``skew_ns`` (from the first card's first call to the last card's, null where a card
    did not start) and ``tops`` (the sum over cards, null where the attempt does not count).
    """

    role: BoxRoleName
    n: int
    status: Literal["ran", "interrupted", "skipped"]
    why: str | None
    started_ns: Nanoseconds
    wall_ns: Nanoseconds
    window_ns: Nanoseconds
    cards: list[BoxCardRun]
    counts: bool
    void_because: list[str]
    skew_ns: Nanoseconds | None
    tops: Finite | None


class BoxSource(_Model):
    """The record that a card's solo peak was taken from, where it is not this one: whether its
    run was quick, and its computer noisy, as that record states."""

    run_id: str
    payload_sha256: str
    quick: bool
    noisy: bool


class BoxSolo(_Model):
    """A card's best solo peak configuration. ``source`` is null where this record measured it;
    otherwise the figure is that record's statement."""

    card: str
    engine: str
    workload: str
    variant: str
    format: str
    label: str
    tops: Finite
    unstable: bool
    source: BoxSource | None


class BoxCard(_Model):
    """A card's part in the box: ``in_box_tops`` is its median over the counted attempts, null
    where there is none; ``of_solo`` that over its solo peak. ``slow_alone`` and ``slow_in_box``
    say that it lies under the policy's share of the median of its identical cards (same role and
    name, itself included); null where it has none, or a figure is missing."""

    card: str
    name: str
    number: int
    solo: BoxSolo
    in_box_tops: Finite | None
    of_solo: Finite | None
    slow_alone: bool | None
    slow_in_box: bool | None


class BoxLeftOut(_Model):
    """A device of the role that is not in the box, and why."""

    card: str
    why: str


class BoxRole(_Model):
    """The box total of a role: the median over the counted attempts of the sum over cards.

    ``tops`` is null, with ``why``, until enough attempts count. ``scaling`` is it over the sum of
    the cards' solo peaks. ``agreement`` is (max - min) / median over the counted attempts.
    ``finished`` says that no attempt is wanted any more.
    """

    role: BoxRoleName
    tops: Finite | None
    why: str | None
    solo_tops: Finite | None
    scaling: Finite | None
    agreement: Finite | None
    cards: list[BoxCard]
    left_out: list[BoxLeftOut]
    attempts: list[BoxAttempt]
    finished: bool


class Box(_Model):
    """The box stage: each role that has two or more devices, or was asked for by name."""

    roles: list[BoxRole]


class BoxPlan(_Model):
    """What was asked of the box stage: ``auto`` measures every role with two or more devices of
    a whole run, ``on`` insists, ``only`` measures nothing else than it needs, ``off`` leaves it
    out. ``roles`` and ``cards`` (processor ids) are null where all are meant. ``solo`` holds the
    peaks that another record gave, empty where this run measures its own."""

    mode: Literal["auto", "on", "only", "off"]
    roles: list[BoxRoleName] | None
    cards: list[str] | None
    solo: list[BoxSolo]
