"""Who sent a statement: whether it is meant for this server, of the present, and signed with a key
that its machine may use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeVar

from pydantic import ValidationError

from npumark.record.envelope import Envelope, Registration, Signed, Withdrawal
from npumark.record.signing import Purpose, statement_holds
from npumark.server.answers import instant, misfit
from npumark.server.config import ServerConfig
from npumark.server.keys import KeyRow, check_usable, machine_digest
from npumark.server.refusal import refuse
from npumark.server.store import Store

Statement = TypeVar("Statement", bound=Signed)

_MOST_FIELDS = 16
"""More than any statement has, and few enough to list what is wrong with each."""


def statement_of(kind: type[Statement], stated: object) -> Statement:
    """Return a JSON value as the statement that it is. Raises Refused (wrong_form)."""
    if not isinstance(stated, dict) or len(stated) > _MOST_FIELDS:
        raise refuse("wrong_form", f"this is no {kind.__name__.lower()}", field="", faults=1)
    try:
        found = kind.model_validate(stated, strict=True)
    except ValidationError as fault:
        raise misfit("wrong_form", fault) from None
    if found.model_dump(mode="json", by_alias=True) != stated:  # a field by its inner name
        raise refuse("wrong_form", f"this is no {kind.__name__.lower()}", field="", faults=1)
    return found


def check_for(origin: str, at: str, config: ServerConfig, now: float) -> None:
    """Check whom a statement is meant for and when it was made (``Instant``), against the
    server's clock. Raises Refused (wrong_origin, wrong_form, clock_skew)."""
    if origin != config.origin:
        raise refuse(
            "wrong_origin",
            f"it is meant for {origin}, and this is {config.origin}",
            stated=origin,
            origin=config.origin,
        )
    try:
        made = datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise refuse("wrong_form", f"{at} is no instant", field="sent_at", faults=1) from None
    difference = made - now
    if abs(difference) > config.limits.skew_s:
        raise refuse(
            "clock_skew",
            f"the sender's clock is {abs(difference):.0f} s "
            f"{'ahead' if difference > 0 else 'behind'}; {config.limits.skew_s:.0f} s are allowed",
            server_time=instant(now),
            difference_s=round(difference),
            skew_s=config.limits.skew_s,
        )


def check_registration(registration: Registration, config: ServerConfig, now: float) -> None:
    """Check a registration, which the key that it registers has signed. Raises Refused."""
    check_for(registration.origin, registration.signed_at, config, now)
    key = registration.public_key
    if not statement_holds(registration.statement(), "registration", key, registration.signature):
        raise refuse("bad_envelope_signature", "the registration's signature does not hold")


def check_signed(
    statement: Envelope | Withdrawal, store: Store, config: ServerConfig, now: float
) -> KeyRow:
    """Check a statement that a registered key signs, and return that key. Raises Refused."""
    at, purpose = _made(statement)
    check_for(statement.origin, at, config, now)
    machine = machine_digest(statement.machine_id)
    key = check_usable(store.key(statement.key_id), statement.key_id, machine)
    signature = statement.signature
    if not statement_holds(statement.statement(), purpose, key.public_key, signature):
        raise refuse("bad_envelope_signature", f"the signature of the {purpose} does not hold")
    return key


def _made(statement: Envelope | Withdrawal) -> tuple[str, Purpose]:
    if isinstance(statement, Envelope):
        return statement.sent_at, "submission"
    return statement.signed_at, "withdrawal"
