"""The shipped policy: every threshold is used, and says where it comes from."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from npumark.policy import DATA, load_policy

ROOT = Path(__file__).parents[1]

ORIGIN = re.compile(r'methodology 3\.2(( §\d+\w?)( and §\d+\w?)*|, ".+)|own choice: .{20,}')


def settings(section: Any) -> list[str]:
    found = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        found += settings(value) if dataclasses.is_dataclass(value) else [field.name]
    return found


@pytest.mark.parametrize("key", settings(load_policy()))
def test_each_setting_is_read_somewhere(key: str) -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for folder in ("npumark", "workloads", "tool")
        for path in (ROOT / folder).rglob("*.py")
        if path != ROOT / "npumark" / "policy.py"
    ]
    read = re.compile(rf"\.{key}\b|[\"']{key}[\"']")
    assert any(read.search(text) for text in sources), f"nothing reads {key}"


def test_each_origin_can_be_opened_or_judged() -> None:
    text = (DATA / "policy.toml").read_text(encoding="utf-8")
    origins = re.findall(r"# origin: (.+)", text)
    assert origins
    for origin in origins:
        assert ORIGIN.fullmatch(origin), origin
        for path in re.findall(r"docs/[\w./-]+", origin):
            assert (ROOT / path).is_file(), path
