"""How a command ends when it cannot go on: one sentence, the next step, the exit code.

A traceback never reaches the screen. An error nobody foresaw is kept in a log file, whose
path is the next step.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from npumark import __version__
from npumark.cli import output
from npumark.errors import EXIT_MEASURED_WITH_FAULTS, Interrupted, NpumarkError, UsageError
from npumark.plain import bounded, printable

INTERRUPTED = Interrupted.exit_code
UNFORESEEN = EXIT_MEASURED_WITH_FAULTS

_SHORTER = "Name a file or folder by a shorter path."


def end(fault: BaseException) -> int:
    """Say on stderr what ``fault`` means for the user; return the exit status."""
    if isinstance(fault, NpumarkError):
        tell(fault.message, fault.hint)
        return fault.exit_code
    if isinstance(fault, KeyboardInterrupt):
        tell("stopped", None)
        return INTERRUPTED
    if isinstance(fault, BrokenPipeError):
        return UNFORESEEN
    if isinstance(fault, OSError) and _of_the_parser(fault):
        return end(output.refused(fault))
    if isinstance(fault, OSError) and fault.errno == errno.ENAMETOOLONG:
        tell(f"the path {str(fault.filename)[:60]!r}… is longer than this system takes", _SHORTER)
        return UsageError.exit_code
    log = keep(fault)
    what = " ".join(str(fault).split())[:200]
    tell(
        f"npumark met an error it does not know: {type(fault).__name__}"
        + (f": {what}" * bool(what)),
        f"Read {log} and report it; it holds the details." if log else None,
    )
    return UNFORESEEN


def _of_the_parser(fault: OSError) -> bool:
    """Say whether the command line's own parser raised it: all it does is write (help, usage)."""
    innermost = fault.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None:
        return False
    module = str(innermost.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in {"click", "typer"}


def tell(message: str, hint: str | None) -> None:
    """Write an error and its next step on stderr, as plain text."""
    lines = [f"error: {message}"]
    if hint:
        lines.append(f"next: {hint}")
    if sys.stderr is None:  # print would take standard output instead
        return
    try:
        print(
            *("\n".join(map(printable, bounded(line).split("\n"))) for line in lines),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
    except (OSError, ValueError):
        return  # nobody is left to read it; the exit status still tells


def keep(fault: BaseException) -> Path | None:
    """Write the traceback of ``fault`` to a log file; return its path, or None if none can be."""
    text = "".join(traceback.format_exception(fault))
    now = datetime.now(UTC)
    head = f"npumark {__version__}\npython {sys.version}\nargv {sys.argv[1:]!r}\n{now:%FT%TZ}\n\n"
    name = f"fault-{now:%Y%m%dT%H%M%S}-{os.getpid()}.log"
    for folder in (_log_folder(), Path(tempfile.gettempdir())):
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            path.write_text(head + text, encoding="utf-8")
        except OSError:
            continue
        return path
    return None


def _log_folder() -> Path | None:
    try:
        from npumark.paths import data_dir

        return data_dir() / "logs"
    except Exception:  # noqa: BLE001 - the fault being kept may be in there
        return None
