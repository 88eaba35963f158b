"""The generated parts of docs/SERVER.md: what a server refuses, and its limits."""

from __future__ import annotations

from npumark.record.model import MAX_DEPTH
from npumark.server.api.keys import MOST_BYTES
from npumark.server.body import PACE
from npumark.server.config import Limits
from npumark.server.database import BUSY_MS
from npumark.server.document import MOST_VALUES
from npumark.server.process import FINISH_S
from npumark.server.refusal import CODES


def refusal_table() -> str:
    """Return every code that an error may have, with its status and meaning."""
    lines = ["| code | status | meaning |", "| --- | ---: | --- |"]
    lines += [f"| `{code}` | {status} | {meaning} |" for code, (status, meaning) in CODES.items()]
    return "\n".join(lines) + "\n"


def limits_table() -> str:
    """Return what a server's process bounds."""
    of = Limits()
    rows = {
        "body of a submission": f"{_bytes(of.body_bytes)}, {MOST_VALUES:,} JSON values, "
        f"{MAX_DEPTH} levels",
        "body of any other statement": _bytes(MOST_BYTES),
        "time for a body (`--body-seconds`)": f"{of.body_s:g} s; after a quarter of it, at least "
        f"{_bytes(PACE)} a second",
        "time for a request's head": f"{of.head_s:g} s",
        "difference of clocks": f"{of.skew_s / 60:g} min",
        "keys of one machine": f"{of.keys_per_machine}; one more replaces the oldest, "
        f"{of.key_cooldown_s / 3600:g} h after the newest",
        "connections of a process": f"{of.connections:,}",
        "submissions verified at once in a process": str(of.verifying),
        "submissions that wait in a process": f"{of.waiting}, {_bytes(of.held_bytes)} of bodies",
        "results on a page": str(of.page),
        "wait for a lock of the database": f"{BUSY_MS / 1000:g} s",
        "time to finish after SIGTERM": f"{FINISH_S} s",
    }
    lines = ["| what | at most |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {what} | {most} |" for what, most in rows.items())]) + "\n"


def _bytes(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
