"""What ``npumark verify`` says of a record's signatures; no connection is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npumark.errors import IntegrityError

if TYPE_CHECKING:
    from npumark.record.model import Record
    from npumark.record.signed import Shown

_WHOSE = {
    "own": "this computer's key",
    "former": "a former key of this computer",
    "foreign": "another installation's key",
    None: "the key (whether it is this computer's is not known)",
}
_BUILD = {
    "release": "the build's signature holds as well",
    "unchecked": "the build's signature is not checked here: only a server or the release build "
    "itself holds the build key",
    "development": "a development build made it, which no build key vouches for",
}


@dataclass(frozen=True, slots=True)
class SignatureReport:
    """A sentence for people and a JSON object; ``fault`` where a signature does not hold."""

    line: str
    document: dict[str, Any]
    fault: IntegrityError | None = None


def signatures_of(whole: Record, digest: str, path: Path) -> SignatureReport:
    """Check the signatures of a record over ``digest``, that of its payload as it is."""
    if whole.signatures is None:
        return SignatureReport("unsigned: nothing says who made it.", _document(whole, None, None))
    from npumark.record.signed import check_signatures

    try:
        shown = check_signatures(digest, whole.signatures)
    except IntegrityError as refused:
        fault = IntegrityError(
            f"{path} is not what was signed: {refused.message}",
            "Use an unedited copy from where it was measured.",
        )
        return SignatureReport("", _document(whole, None, refused.message), fault)
    line = f"signed with {_WHOSE[shown.whose]}, {shown.key_id}; {_BUILD[shown.build]}."
    return SignatureReport(line, _document(whole, shown, None))


def _document(whole: Record, shown: Shown | None, error: str | None) -> dict[str, Any]:
    """``verified`` is of the installation's signature, and null in an unsigned record. ``whose``
    is its key: ``own``, ``former`` or ``foreign``; null where that is not known. ``build`` is what
    is known of the build that made it: ``release``, ``unchecked`` or ``development``."""
    stated = whole.signatures
    return {
        "signed": stated is not None,
        "verified": None if stated is None else shown is not None,
        "error": error,
        "key_id": stated.install.key_id if stated else None,
        "whose": shown.whose if shown else None,
        "build": shown.build if shown else None,
        "build_key_id": stated.build.key_id if stated and stated.build else None,
    }
