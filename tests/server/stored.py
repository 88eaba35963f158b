"""Results as the store takes them, without a server before it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from npumark.record.canonical import canonical_bytes
from npumark.record.envelope import Envelope, Registration, Withdrawal
from npumark.record.model import Payload
from npumark.record.signing import InstallKey, sign_statement
from npumark.server.store import NewResult, Store
from tests import forge

RULES = "0" * 64


@cache
def small() -> Payload:
    return forge.forge_payload(small=True)


def new_result(
    n: int = 0,
    *,
    payload: Payload | None = None,
    install: InstallKey = forge.INSTALL,
    machine_id: str = forge.MACHINE_ID,
    **over: Any,
) -> NewResult:
    """Return the ``n``-th of any number of different results, verified and ranked."""
    made, record, envelope = _signed(n, payload, install, machine_id)
    given: dict[str, Any] = {
        "trust": "release",
        "ranked": True,
        "not_ranked_because": [],
        "faults": [],
        "rules_sha256": RULES,
        **over,
    }
    return NewResult(
        record=record,
        payload=made,
        signatures=json.loads(record)["signatures"],
        envelope=envelope,
        **given,
    )


def _signed(
    n: int, payload: Payload | None, install: InstallKey, machine_id: str
) -> tuple[Payload, bytes, Envelope]:
    if payload is None:
        return _numbered(n, install, machine_id)
    record = forge.forge_record(payload, install)
    body = forge.forge_submission(record, install=install, machine_id=machine_id)
    return payload, canonical_bytes(record), Envelope.model_validate(json.loads(body)["envelope"])


@cache
def _numbered(n: int, install: InstallKey, machine_id: str) -> tuple[Payload, bytes, Envelope]:
    payload = small().model_copy(update={"run_id": f"run-{n}"})
    return _signed(n, payload, install, machine_id)


def registration(
    install: InstallKey = forge.INSTALL, machine_id: str = forge.MACHINE_ID
) -> Registration:
    statement = {
        "schema": "npumark-registration/1",
        "origin": forge.ORIGIN,
        "machine_id": machine_id,
        "public_key": install.public.hex(),
        "signed_at": forge.stamp(forge.NOW),
    }
    signature = sign_statement(statement, "registration", install)
    return Registration.model_validate({**statement, "signature": signature})


def withdrawal(
    result_id: str, install: InstallKey = forge.INSTALL, machine_id: str = forge.MACHINE_ID
) -> Withdrawal:
    statement = {
        "schema": "npumark-withdrawal/1",
        "origin": forge.ORIGIN,
        "machine_id": machine_id,
        "key_id": install.key_id,
        "result_id": result_id,
        "signed_at": forge.stamp(forge.NOW),
    }
    signature = sign_statement(statement, "withdrawal", install)
    return Withdrawal.model_validate({**statement, "signature": signature})


def submit(store: Store, *ns: int) -> list[str]:
    """Register the key and store results; return their names."""
    store.register_key(registration())
    receipts = [store.accept(new_result(n)) for n in ns]
    return [json.loads(receipt)["result_id"] for receipt in receipts]
