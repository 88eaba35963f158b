"""The threat model ties each of its lines to a test; the tests are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEXT = (TESTS.parent / "docs" / "THREAT_MODEL.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py): (test_\w+)`", TEXT)))


@cache
def names_in(file: str) -> frozenset[str]:
    source = (TESTS / file).read_text(encoding="utf-8")
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", source, re.MULTILINE))


def lines() -> list[str]:
    """Return every line that claims something: rows of the tables of attempts, and limits."""
    attempts = TEXT.partition("## Forged and edited results")[2]
    tables, _, limits = attempts.partition("## What cannot be stopped")
    rows = [row for row in tables.splitlines() if row.startswith("| ")]
    claims = [row for row in rows if not row.startswith(("| attempt ", "| --- "))]
    return claims + re.findall(r"^- .+(?:\n  .+)*", limits, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_test_that_is_named_exists(file: str, test: str) -> None:
    assert test in names_in(file)


@pytest.mark.parametrize("line", lines(), ids=lambda line: line[:40])
def test_every_line_names_a_test(line: str) -> None:
    assert re.search(r"`[\w/]+\.py: test_\w+`", line)


def test_there_is_something_to_check() -> None:
    assert len(lines()) > 50
    assert len(NAMED) > 50
