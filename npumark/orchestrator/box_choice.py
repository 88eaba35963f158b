"""Which cards a box total is asked of, and what is said where none can be formed (pure).

What is decided here is decided before anything is measured, from probes alone; which
configuration stands for a card, and whether a total exists, ``score.box`` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.select import closest
from npumark.record.box import BoxRoleName
from npumark.record.model import Processor
from npumark.score.box_cards import ROLES
from npumark.worker.protocol import EngineInfo

_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class RoleChoice:
    """The cards of a role that are to be measured at once, by processor, and their engines'
    ids. ``why`` says why there can be no total, null where there may be one."""

    role: BoxRoleName
    cards: tuple[Processor, ...]
    engines: frozenset[str]
    why: str | None


def role_named(word: str) -> BoxRoleName:
    """Return the role that a word means, whatever its letters' case. Raises UsageError."""
    for role in ROLES:
        if role.lower() == word.lower():
            return role
    if word.lower() == "cpu":
        raise UsageError("the CPU is never summed", f"Name one of {', '.join(ROLES)}.")
    raise UsageError(f"there is no role {word!r}", f"The roles are: {', '.join(ROLES)}.")


def with_card_ids(request: RunRequest, processors: Sequence[Processor]) -> RunRequest:
    """Return ``request`` with its cards as processor ids, and its roles those of the cards.

    A card is named by its processor's id or, within the one role that is asked for, by its
    number there (``dgpu-3`` is 3); no role needs to be named where cards of one alone are here.
    Raises UsageError for a card that there is none of, that is no card, or that is of a role
    which was not asked for.
    """
    if request.box_cards is None:
        return request
    cards = {p.id: p for p in processors if p.role in ROLES and not p.details.get("emulated")}
    chosen = [cards[_card_id(word, request, processors, cards)] for word in request.box_cards]
    roles = tuple(role for role in ROLES if any(p.role == role for p in chosen))
    if request.box_roles is not None:
        odd = [p.id for p in chosen if p.role not in request.box_roles]
        if odd:
            raise UsageError(
                f"{', '.join(odd)} is no {' or '.join(request.box_roles)}",
                "Leave out --role, or name cards of that role.",
            )
        empty = [role for role in request.box_roles if role not in roles]
        if empty:
            raise UsageError(
                f"--cards names no {' and no '.join(empty)}",
                "Leave out that role, or name its cards too.",
            )
    ids = tuple(dict.fromkeys(p.id for p in chosen))
    return replace(request, box_cards=ids, box_roles=roles)


def _card_id(
    word: str,
    request: RunRequest,
    processors: Sequence[Processor],
    cards: Mapping[str, Processor],
) -> str:
    listed = f"There is: {', '.join(cards)}." if cards else "`npumark engines` lists what there is."
    name = word.lower()
    if _NUMBER.fullmatch(name):
        roles = request.box_roles or tuple(
            role for role in ROLES if any(p.role == role for p in cards.values())
        )
        if not cards:
            raise UsageError(f"there is no card {word} here: no iGPU, dGPU or NPU", listed)
        if len(roles) != 1:
            raise UsageError(
                f"the number {word} names a card only within one role",
                f"Add --role, or name the card in full. {listed}",
            )
        role = roles[0]
        alike = [p.id for p in cards.values() if p.role == role]
        # The only one of its role has no number in its id.
        single = alike[0] if len(alike) == 1 and int(name) == 1 else None
        name = single or f"{role.lower()}-{int(name)}"
    if name in cards:
        return name
    known = next((p for p in processors if p.id == name), None)
    if known is not None:
        why = "is the CPU, which is never summed" if known.role == "CPU" else "is emulated"
        raise UsageError(f"{name} {why}", listed)
    guess = closest(name, list(cards))
    raise UsageError(
        f"there is no card {name[:60]!r} here",
        f"Did you mean {guess}? {listed}" if guess else listed,
    )


def choose(
    request: RunRequest,
    engines: Iterable[EngineInfo],
    processors: Sequence[Processor],
    owner: Mapping[str, str],
) -> tuple[RoleChoice, ...]:
    """Return the roles that are to be measured at once, with the cards of each.

    ``engines`` are those that may be measured, ``owner`` their processors. A role is meant where
    it has two or more devices or is asked for by name. Cards that no engine whose results may be
    published reaches are left out.
    """
    able = [e for e in engines if e.available and not e.emulated and not e.local_only]
    if not all(e.virtual for e in able):
        able = [e for e in able if not e.virtual]
    found = []
    for role in ROLES:
        devices = [p for p in processors if p.role == role and not p.details.get("emulated")]
        asked = _asked(role, devices, request)
        if not asked and (request.box_roles is None or role not in request.box_roles):
            continue
        found.append(_choice(role, asked, able, owner, request))
    return tuple(found)


def _asked(
    role: BoxRoleName, devices: Sequence[Processor], request: RunRequest
) -> tuple[Processor, ...]:
    if request.box_roles is not None and role not in request.box_roles:
        return ()
    if request.box_cards is not None:
        return tuple(p for p in devices if p.id in request.box_cards)
    return tuple(devices) if len(devices) > 1 or request.box_roles is not None else ()


def _choice(
    role: BoxRoleName,
    asked: Sequence[Processor],
    engines: Sequence[EngineInfo],
    owner: Mapping[str, str],
    request: RunRequest,
) -> RoleChoice:
    by_card = {p.id: frozenset(e.id for e in engines if owner[e.id] == p.id) for p in asked}
    cards = tuple(p for p in asked if by_card[p.id])
    reaching = frozenset(e for p in cards for e in by_card[p.id])
    unreached = [p.id for p in asked if not by_card[p.id]]
    lacking = "no engine here whose results may be published reaches"
    if request.engines is not None:
        lacking = "no engine that was asked for, and whose results may be published, reaches"
    missed = f"{lacking} {', '.join(unreached)}" if unreached else ""
    why: str | None
    if request.box_cards is not None and unreached:
        why = missed
    elif len(cards) < 2:
        few = _too_few(role, cards, named=request.box_cards is not None)
        why = f"nothing to sum: {few}" + f" ({missed})" * bool(missed)
    else:
        doubts = [
            f"which device {p.id} is cannot be told: {p.details['identity']}"
            for p in cards
            if p.details.get("identity")
        ]
        why = "; ".join(doubts) or None
    return RoleChoice(role, cards, reaching, why)


def _too_few(role: str, cards: Sequence[Processor], *, named: bool) -> str:
    if not cards:
        return f"no {role} can be measured here"
    what = "was asked for" if named else "can be measured here"
    return f"only one {role}, {cards[0].id} ({cards[0].name}), {what}"


def require(choices: Sequence[RoleChoice], processors: Sequence[Processor]) -> None:
    """Raise NothingToMeasure, with each reason, where no role can have a total."""
    if any(c.why is None for c in choices):
        return
    there = [p.role for p in processors if p.role in ROLES and not p.details.get("emulated")]
    few = " and ".join(f"only one {role}" for role in there) or "no iGPU, dGPU or NPU"
    raise NothingToMeasure(
        "; ".join(c.why for c in choices if c.why) or f"nothing to sum: there is {few} here",
        "A box total needs two or more cards of one role that engines reach and can tell apart; "
        "`npumark engines` lists them.",
    )
