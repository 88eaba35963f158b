"""Every error a user can meet, each with a sentence, a next step and an exit code.

NpumarkError
├── UsageError            2  the request cannot be carried out as asked
│   └── SetupError        2  no space, an unwritable place, another run in progress
├── NothingToMeasure      3  no engine here can be measured
├── NoScore               4  workers crashed or timed out and left no score
├── IntegrityError        5  a file, record or digest is not what it should be
│   └── PackError         5  a pack file is missing or changed and cannot be rebuilt
├── NetworkError          6  a server could not be reached
├── Interrupted         130  stopped by the user; what was measured is saved
└── EngineError           -  inside a worker only; becomes an attempt's status
    ├── Unsupported          the engine cannot run this variant
    └── WrongDevice          the work did not run where it was asked to
"""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_MEASURED_WITH_FAULTS = 1
"""Measured, but an attempt crashed, timed out or ran on the wrong device."""


class NpumarkError(Exception):
    """Base of every error shown to a user: ``message`` says what, ``hint`` what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(NpumarkError):
    exit_code = 2


class SetupError(UsageError):
    """The machine's state stops the run before anything is measured."""


class NothingToMeasure(NpumarkError):
    exit_code = 3


class NoScore(NpumarkError):
    exit_code = 4


class IntegrityError(NpumarkError):
    exit_code = 5


class PackError(IntegrityError):
    """``path`` names the pack file, relative to the pack root."""

    def __init__(self, message: str, hint: str | None = None, *, path: str | None = None) -> None:
        super().__init__(message, hint)
        self.path = path


class NetworkError(NpumarkError):
    exit_code = 6


class Interrupted(NpumarkError):
    exit_code = 130


class EngineError(NpumarkError):
    """What an engine raises in a worker; any foreign exception is converted to this."""


class Unsupported(EngineError):
    pass


class WrongDevice(EngineError):
    pass
