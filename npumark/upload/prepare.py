"""A record made ready to be sent: its upload payload, sealed and signed by this installation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npumark.errors import IntegrityError
from npumark.orchestrator.redaction import replacements
from npumark.pack.manifest import Manifest, load_manifest
from npumark.policy import Policy, load_policy
from npumark.record.canonical import payload_sha256
from npumark.record.model import Payload, Record
from npumark.record.signing import (
    BuildKey,
    InstallKey,
    build_holds,
    check_install,
    sign_record,
)
from npumark.upload.payload import upload_payload


@dataclass(frozen=True, slots=True)
class Keys:
    """What signs for this installation. ``rotate`` replaces the key and returns the new one;
    ``build`` is null in a development build."""

    install: Callable[[], InstallKey]
    rotate: Callable[[], InstallKey]
    build: Callable[[], BuildKey | None]
    machine_id: Callable[[], str]


def own_keys() -> Keys:
    """Return the keys of this installation; none is read before it is asked for."""
    from npumark.machine.machine_id import machine_id
    from npumark.record.build_key import build_key
    from npumark.record.keystore import install_key, rotate

    return Keys(install_key, rotate, build_key, machine_id)


@dataclass(frozen=True, slots=True)
class Prepared:
    """``local`` is the run's payload, ``upload`` what is sent of it. ``build`` signs it as well:
    null where the run was not measured by this very release."""

    local: Payload
    upload: Payload
    build: BuildKey | None

    def signed(self, key: InstallKey) -> dict[str, Any]:
        """Return the record that is sent, as plain JSON values."""
        payload = self.upload.model_dump(by_alias=True)
        digest = payload_sha256(payload)
        return {
            "payload": payload,
            "payload_sha256": digest,
            "signatures": sign_record(digest, key, self.build),
        }


def prepare(
    record: Record,
    build: BuildKey | None,
    *,
    manifest: Manifest | None = None,
    policy: Policy | None = None,
) -> Prepared:
    """Return what is sent of a local record. ``build`` is the key of this npumark.

    Raises UsageError where nothing of it can be sent, and IntegrityError where it is not what
    this installation measured: its signature does not hold, or its figures do not recompute.
    """
    payload, signatures = record.payload, record.signatures
    if signatures is not None:
        try:
            check_install(record.payload_sha256, signatures.model_dump())
        except IntegrityError as fault:
            raise IntegrityError(
                f"run {payload.run_id} is not submitted: {fault.message}",
                "Use an unedited copy of its record; the run's own folder keeps one.",
            ) from None
    upload = upload_payload(
        payload, manifest or load_manifest(), policy or load_policy(), replacements()
    )
    return Prepared(payload, upload, build if _measured_by(record, build) else None)


def resigned(record: dict[str, Any], key: InstallKey) -> dict[str, Any]:
    """Return a record signed by another key of this installation; the build's signature stays."""
    install = sign_record(record["payload_sha256"], key, None)["install"]
    return {**record, "signatures": {**record["signatures"], "install": install}}


def _measured_by(record: Record, build: BuildKey | None) -> bool:
    """Whether the record was signed by the same build when it was measured. A release signs for
    what it measured itself, never for what another program left in its folder."""
    made = record.signatures.build if record.signatures is not None else None
    if build is None or made is None:
        return False
    return build_holds(record.payload_sha256, made.hmac, build)
