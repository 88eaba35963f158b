"""Names of the user and the machine are replaced, the longest place first."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from npumark.orchestrator.redaction import redact, replacements


def test_places_and_host_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUMARK_HOME", "/home/ann/marks")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))
    monkeypatch.setattr(platform, "node", lambda: "anns-laptop")
    text = "/home/ann/marks/cache/x, /home/ann/y on anns-laptop"
    assert redact(text) == "<cache>/x, ~/y on <host>"


def test_short_names_would_hit_ordinary_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "vm")
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert all(old not in ("vm", "/") for old, _ in replacements())
