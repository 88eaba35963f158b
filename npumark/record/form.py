"""A document that is not of the form that this npumark reads: damaged, or of another npumark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

import npumark
from npumark.errors import IntegrityError
from npumark.record.canonical import payload_sha256

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,39}")


def another(version: object) -> str:
    """Name the npumark whose ``version`` a document of another form states.

    Where it states this very version, another build of it wrote the document.
    """
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        return "another version of npumark"
    if version == npumark.__version__:
        return f"another build of npumark {version}"
    return f"another version of npumark ({version})"


def misfit(
    what: str, schema: str, fault: ValidationError, document: Mapping[str, Any]
) -> IntegrityError:
    """Return the refusal of a document with a payload, called ``what``, that ``fault`` finds not to
    be of the form ``schema``.

    A payload whose digest holds is as it was written: another npumark wrote it. Any other was
    damaged or edited.
    """
    first = fault.errors(include_url=False, include_input=False)[0]
    odd = f"{_place(first['loc'])}: {first['msg']}"
    payload: Mapping[str, Any] = document["payload"]
    covered = first["loc"][:1] == ("payload",)
    if not covered or payload_sha256(payload) != document.get("payload_sha256"):
        return IntegrityError(
            f"{what} does not follow {schema}: {odd}",
            "It was damaged or edited after it was written; use another copy.",
        )
    tool = payload.get("tool")
    maker = another(tool.get("version") if isinstance(tool, dict) else None)
    return IntegrityError(
        f"{what} was written by {maker}, in another form than this one reads: {odd}",
        "Use the npumark that wrote it.",
    )


def _place(location: tuple[int | str, ...]) -> str:
    """Return a field's path as people write it: ``payload.entries[3].status``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or "the document"
