"""Why a server refuses a request: a code, a sentence, the numbers; one table of all codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

CODES: Final[dict[str, tuple[int, str]]] = {
    # The request itself
    "not_http": (400, "it is not a request that HTTP/1.1 knows"),
    "too_large": (413, "the body is larger than the server takes"),
    "too_slow": (408, "the request's head or its body did not arrive in time"),
    "media_type": (415, "the body is not application/json"),
    "encoding": (415, "the body is compressed; the server takes plain bytes"),
    "too_deep": (400, "the body is nested deeper than a record may be"),
    "not_json": (400, "the body is not strict JSON"),
    "not_canonical": (400, "the body is not byte for byte its RFC 8785 form"),
    "wrong_form": (422, "a field is missing, unknown or of another type"),
    "busy": (503, "the server has more to verify than it can; send it again later"),
    "not_found": (404, "there is no such thing here"),
    "method_not_allowed": (405, "the address takes other methods"),
    "internal": (500, "the server failed; its log tells more under the id in the details"),
    # Who sent it
    "wrong_origin": (403, "it is meant for another server"),
    "clock_skew": (403, "the sender's clock and the server's differ too much"),
    "bad_envelope_signature": (401, "the envelope's signature does not hold"),
    "unknown_key": (403, "the key is not registered here"),
    "key_of_another_machine": (403, "the key belongs to another machine"),
    "key_refused": (403, "the key was banned or replaced"),
    "machine_refused": (403, "the machine was banned"),
    "too_many_keys": (429, "the machine has as many keys as it may; wait for the cool-down"),
    "not_the_owner": (403, "only its owner may withdraw a result"),
    # The record's integrity
    "digest": (422, "the payload's sha256 is not the one that is stated"),
    "bad_signature": (401, "the installation's signature does not hold"),
    "key_mismatch": (403, "the record was signed by another key than the envelope"),
    "unknown_build_key": (403, "the build key is unknown or retired"),
    "bad_build_signature": (401, "the build's signature does not hold"),
    "development_build": (403, "a development build made it, and this server takes none"),
    "replayed": (409, "another installation submitted this record already"),
    "run_already_submitted": (409, "another record of this run was accepted already"),
    "withdrawn": (410, "its owner withdrew it"),
    # What it claims
    "record_form": (422, "it is not a record of the form that this server reads"),
    "unknown_score_version": (422, "the score version is unknown here"),
    "another_policy": (422, "the policy or the formula is unknown here"),
    "another_pack": (422, "the pack is not the one that is pinned"),
    "future_date": (422, "it lies in the future"),
    "private_data": (422, "it holds what must not leave a computer"),
    "local_only": (422, "it holds results that may not be published"),
    "stopped_too_early": (422, "an entry stopped at attempts that do not agree"),
    "single_attempt": (422, "a figure counts that comes from a single attempt"),
    "plan_incomplete": (422, "it claims to be complete and lacks part of the platform's plan"),
    "above_ceiling": (422, "a peak is above what the chip can compute"),
    "box_above_solo": (422, "the box total is above what the solo peaks allow"),
    "inconsistent": (422, "its attempts contradict each other or the rules"),
    "figures_differ": (422, "its figures are not what its attempts give"),
}
"""Code -> HTTP status and what it means. ``docs/SERVER.md`` lists them from here."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason: ``code`` of ``CODES``, a sentence of its own, and the numbers behind it."""

    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)


class Refused(Exception):
    """A request that is not carried out. ``retry_after_s``: when to try again, where that helps."""

    def __init__(self, fault: Fault, *, retry_after_s: int | None = None) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        return CODES[self.fault.code][0]


def refuse(code: str, message: str, *, retry_after_s: int | None = None, **details: Any) -> Refused:
    """Return the refusal to raise; ``details`` are the numbers behind it."""
    return Refused(Fault(code, message, details), retry_after_s=retry_after_s)
