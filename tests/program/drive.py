"""Runs a request in a process of its own, for tests that send it signals.

    drive.py REQUEST.json POLICY.toml

One line per event on stdout; the exit status is the run's.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from npumark.errors import NpumarkError
from npumark.orchestrator.events import AttemptStarted, Event
from npumark.orchestrator.resume import request_from_json
from npumark.orchestrator.run import execute
from npumark.policy import parse_policy


def show(event: Event) -> None:
    words = [type(event).__name__, getattr(event, "name", "")]
    if isinstance(event, AttemptStarted):
        words += [event.entry.workload, event.entry.variant, str(event.n)]
    print(*[w for w in words if w], flush=True)


def main() -> int:
    # A test run in the background may have been started with signals ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    request = request_from_json(json.loads(Path(sys.argv[1]).read_text()))
    policy = parse_policy(Path(sys.argv[2]).read_bytes())
    try:
        outcome = execute(request, show, policy=policy)
    except NpumarkError as fault:
        print("error", fault.message, flush=True)
        return fault.exit_code
    print("record", outcome.path, flush=True)
    print("modules", *sorted({m.split(".")[0] for m in sys.modules}), flush=True)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
