"""A process that is killed between any two steps loses nothing and sends nothing twice."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from npumark.errors import NpumarkError, SetupError
from npumark.upload import item, servers
from tests.upload.paper_server import FIRST_KEY, Desk

MOST_STEPS = 60


class Killed(BaseException):
    """What a signal that cannot be caught does to a process: nothing after it runs."""


class Steps:
    """Counts the steps that leave something behind, and ends the process before or after one."""

    def __init__(self, at: int, *, after: bool, fault: Callable[[], BaseException]) -> None:
        self._left = at
        self._after = after
        self._fault = fault
        self.done = False

    def step(self, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left != 0:
            return act(*args, **options)
        self.done = True
        if self._after:
            act(*args, **options)
        raise self._fault()


def watch(desk: Desk, patch: pytest.MonkeyPatch, steps: Steps) -> None:
    """Have every write, every renaming and every answer of the server count as a step."""

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: steps.step(act, *args, **options)

    for module in (item, servers):
        patch.setattr(module, "write_atomically", counted(module.write_atomically))
    patch.setattr(Path, "rename", counted(Path.rename))
    patch.setattr(desk.server, "answer", counted(desk.server.answer))


def cut_short(desk: Desk, runs: tuple[str, ...], steps: Steps) -> None:
    with pytest.MonkeyPatch.context() as patch:
        watch(desk, patch, steps)
        try:
            done = desk.submit(*runs)
        except (Killed, NpumarkError):
            return
        assert done.fault is not None or not steps.done


def every_step(home: Path, **how: Any) -> list[tuple[Desk, Steps]]:
    """Return a computer for each step at which it was ended; the last one reached the end."""
    found = []
    for at in range(1, MOST_STEPS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NPUMARK_HOME", str(home / f"{at}-{how}"))
            desk, steps = Desk(), Steps(at, **how)
            desk.submit("run-0")
            desk.server.refused_keys.add(FIRST_KEY.public.hex())
            cut_short(desk, ("run-1", "run-2"), steps)
            again(desk)
            found.append((desk, steps))
            if not steps.done:
                return found
    pytest.fail("it never came to its end")


def again(desk: Desk) -> None:
    """Submit once more, as a user would, and check that everything is there exactly once."""
    desk.clock += 60
    done = desk.submit("run-1")
    done = desk.submit("run-2")
    assert done.fault is None
    assert desk.statuses() == dict.fromkeys(("run-0", "run-1", "run-2"), "sent")
    assert sorted(run for run, _ in desk.server.receipts.values()) == ["run-0", "run-1", "run-2"]
    assert len(desk.server.log.entries) == 3
    for sent in desk.queue.items()[0]:
        kept = (sent.folder / item.RECEIPT).read_bytes()
        assert kept == desk.server.receipts[sent.state.payload_sha256][1]
    assert not [p for p in desk.queue.folder.iterdir() if p.name.startswith(".passing")]


@pytest.mark.parametrize("after", [False, True])
def test_killed_anywhere_everything_arrives_once_in_the_end(home: Path, after: bool) -> None:
    tried = every_step(home, after=after, fault=Killed)
    assert len(tried) > 10


def test_a_full_disk_anywhere_loses_nothing(home: Path) -> None:
    def full() -> BaseException:
        return SetupError("no space left while writing")

    assert len(every_step(home, after=False, fault=full)) > 10


def test_a_full_disk_is_told_as_one(desk: Desk) -> None:
    def full(self: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(SetupError, match="no space left"):
            desk.submit("run-1")
    assert desk.statuses() == {}


def test_the_steps_would_show_what_is_lost(desk: Desk) -> None:
    def lost(request: httpx.Request) -> httpx.Response:
        desk.server.receipts.clear()
        return desk.server.by_rule(request)

    desk.submit("run-0")
    desk.server.overrides["/api/v1/results"] = [lost]
    with pytest.raises(AssertionError):
        again(desk)
