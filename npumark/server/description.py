"""The API's description of itself (OpenAPI), with the bodies that endpoints read by themselves."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from npumark.record.envelope import Registration, Withdrawal
from npumark.server.answers import ErrorBody, documented
from npumark.server.api.submissions import Submission

_BODIES: Final = (Submission, Registration, Withdrawal, ErrorBody)
_REF: Final = "#/components/schemas/{model}"

_THEIRS: Final = "HTTPValidationError"
"""What FastAPI names where an endpoint has parameters and says nothing of their faults."""

_NOTHING_SAID: Final = "Successful Response"
"""What FastAPI says of an answer that nothing is said of."""


def description(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of ``app``, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        _, bodies = models_json_schema(
            [(model, "validation") for model in _BODIES], ref_template=_REF
        )
        known = document["components"]["schemas"]
        for name, schema in bodies["$defs"].items():
            known.setdefault(name, schema)
        for methods in document["paths"].values():
            for told in methods.values():
                for reply in told["responses"].values():
                    if reply["description"] == _NOTHING_SAID:
                        reply["description"] = "It went well"
                if _THEIRS in str(told["responses"].get("422")):
                    told["responses"]["422"] = documented("wrong_form")[422]
        for name in (_THEIRS, "ValidationError"):
            known.pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema
