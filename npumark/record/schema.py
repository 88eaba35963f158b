"""The record's JSON Schema and field tables, both made from the models and from nothing else."""

from __future__ import annotations

import json
from typing import Any

from npumark.policy import DATA
from npumark.record.model import SCHEMA, Record

SCHEMA_PATH = DATA / "record.schema.json"
"""The published schema, as this build ships it."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHORT = {"integer": "integer", "number": "number", "string": "text", "boolean": "yes/no"}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a record.

    A schema sees shapes only: the digest, canonical form and every derived figure are what
    ``npumark verify`` checks.
    """
    made = Record.model_json_schema(by_alias=True, mode="validation")
    return {"$schema": _DIALECT, "title": SCHEMA, **{k: v for k, v in made.items() if k != "title"}}


def schema_text() -> str:
    """Return the schema as the file that is shipped."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def field_tables() -> str:
    """Return one Markdown table per object of a record: field, type, whether it may be null."""
    made = schema()
    parts = [_table("Record", made)]
    parts += [_table(name, made["$defs"][name]) for name in _reached(made)]
    return "\n".join(parts)


def _reached(made: dict[str, Any]) -> list[str]:
    """Return the definitions in the order in which a reader of the record meets them."""
    order: list[str] = []
    waiting = _references(made["properties"])
    while waiting:
        name = waiting.pop(0)
        if name not in order:
            order.append(name)
            waiting += _references(made["$defs"][name])
    return order


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for value in node.values() for name in _references(value)]
    if isinstance(node, list):
        return [name for value in node for name in _references(value)]
    return []


def _table(name: str, made: dict[str, Any]) -> str:
    about = " ".join(made.get("description", "").split()).replace("``", "`")
    rows = [f"### {name}", ""]
    if about:
        rows += [about, ""]
    rows += ["| field | type | null |", "| --- | --- | --- |"]
    for field, kind in made["properties"].items():
        text, nullable = _type(kind)
        rows.append(f"| `{field}` | {text} | {'yes' if nullable else ''} |")
    return "\n".join(rows) + "\n"


def _type(kind: dict[str, Any]) -> tuple[str, bool]:
    """Return a type's words and whether null is one of its values."""
    if "anyOf" in kind:
        options = [option for option in kind["anyOf"] if option.get("type") != "null"]
        words = " or ".join(_type(option)[0] for option in options)
        return words, len(options) < len(kind["anyOf"])
    if "$ref" in kind:
        return kind["$ref"].rpartition("/")[2], False
    if "const" in kind:
        return f"`{kind['const']}`", False
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"]), False
    if "prefixItems" in kind:
        return f"({', '.join(_type(item)[0] for item in kind['prefixItems'])})", False
    if kind.get("type") == "array":
        return f"list of {_type(kind['items'])[0]}", False
    if kind.get("type") == "object":
        inner = kind.get("additionalProperties")
        held = _type(inner) if isinstance(inner, dict) and inner else ("any", False)
        return f"object of {held[0]}{' or null' if held[1] else ''}", False
    return _SHORT.get(kind.get("type", ""), "any"), "type" not in kind
