"""The API described as a page of the site: made from the OpenAPI document, without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from npumark.server.refusal import CODES
from npumark.server.web.pages import render

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    where: str
    required: bool
    form: str
    about: str


@dataclass(frozen=True, slots=True)
class Reply:
    status: str
    about: str
    form: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One endpoint. ``body`` is the model of what it reads, empty where it reads none."""

    method: str
    path: str
    about: str
    parameters: tuple[Parameter, ...]
    body: str
    replies: tuple[Reply, ...]


@router.get("/docs")
def docs(request: Request) -> Response:
    """Every address of the API, what it takes and what it answers."""
    operations = list(operations_of(request.app.openapi()))
    return render(request, "api.html", operations=operations, codes=CODES, kept_s=600)


def operations_of(document: dict[str, Any]) -> Iterator[Operation]:
    """Yield the operations of an OpenAPI document in its order."""
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            content = told.get("requestBody", {}).get("content", {})
            yield Operation(
                method=method.upper(),
                path=path,
                about=told.get("description", "").replace("`", ""),
                parameters=tuple(map(_parameter, told.get("parameters", ()))),
                body=_form(content),
                replies=tuple(
                    Reply(status, reply["description"], _form(reply.get("content", {})))
                    for status, reply in told["responses"].items()
                ),
            )


def _parameter(told: dict[str, Any]) -> Parameter:
    return Parameter(
        name=told["name"],
        where=told["in"],
        required=told.get("required", False),
        form=_type(told["schema"]),
        about=told.get("description", ""),
    )


def _form(content: dict[str, Any]) -> str:
    """Return which model, or else which media type, a body has."""
    return ", ".join(_type(entry.get("schema", {})) or media for media, entry in content.items())


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("type", ""))
