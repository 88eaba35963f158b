"""Binding a worker to CPUs, on systems that can and on those that cannot."""

from __future__ import annotations

import os

import pytest

from npumark.worker import affinity


def test_no_cpus_leave_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *a: asked.append(a), raising=False)
    affinity.bind(())
    assert asked == []
    affinity.bind((2, 5))
    assert asked == [(0, (2, 5))]


def test_a_system_that_cannot_bind_says_nothing_of_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    affinity.bind((0,))
    assert affinity.bound() is None


def test_what_is_read_back_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9, 1, 4}, raising=False)
    assert affinity.bound() == (1, 4, 9)
