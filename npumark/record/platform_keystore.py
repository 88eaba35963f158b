"""The platform's keystore (macOS keychain, Windows Credential Manager, Secret Service).

Each question is asked in a child process without a terminal and within a deadline: a keystore may
hang, ask for a password, or end the process. Secrets pass over pipes only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from npumark.plain import bounded, one_line

DEADLINE_S: Final = 5.0
"""For one question. A keystore that is slower than this is waiting for somebody."""

SECRET_BYTES: Final = 32

SERVICE: Final = "npumark"
CHILD: tuple[str, ...] = (
    sys.executable,
    "-P",
    str(Path(__file__).with_name("keyring_child.py")),
)

_TITLES = {"darwin": "the macOS keychain", "win32": "the Windows Credential Manager"}
_LONGEST = 200


class KeystoreFault(Exception):
    """The keystore did not do what it was asked; the text says why, without a secret."""


def title() -> str:
    """Return how people call this platform's keystore."""
    return _TITLES.get(sys.platform, "the desktop's keyring (Secret Service)")


def lacking(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> str | None:
    """Return why there is no keystore worth asking, null where there may be one.

    On Linux one without a display could only open itself by a dialog that nobody sees.
    """
    if platform in _TITLES:
        return None
    if not platform.startswith("linux"):
        return f"npumark knows no keystore of {platform}"
    runtime = environ.get("XDG_RUNTIME_DIR")
    if not environ.get("DBUS_SESSION_BUS_ADDRESS") and not (
        runtime and os.path.exists(f"{runtime}/bus")  # noqa: PTH110 - Path raises where it may not look
    ):
        return "there is no session bus, and so no desktop keyring"
    if not environ.get("DISPLAY") and not environ.get("WAYLAND_DISPLAY"):
        return "there is no display, and so no desktop keyring"
    return None


def store(name: str, secret: bytes) -> None:
    """Keep ``secret`` under ``name``, and read it back. Raises KeystoreFault."""
    _ask("put", name, secret)
    if fetch(name) != secret:
        with suppress(KeystoreFault):
            remove(name)
        raise KeystoreFault("it does not give back what was put into it")


def fetch(name: str) -> bytes | None:
    """Return what is kept under ``name``, null where nothing is. Raises KeystoreFault."""
    secret = _ask("get", name)
    if secret is None:
        return None
    try:
        found = bytes.fromhex(secret)
    except (TypeError, ValueError):
        found = b""
    if len(found) != SECRET_BYTES:
        raise KeystoreFault("it holds something else than a key")
    return found


def remove(name: str) -> None:
    """Forget what is kept under ``name``. Raises KeystoreFault."""
    _ask("remove", name)


def _ask(do: str, name: str, secret: bytes | None = None) -> Any:
    request = {"do": do, "service": SERVICE, "name": name, "secret": secret and secret.hex()}
    raw = _answer(json.dumps(request).encode())
    try:
        told = json.loads(raw)
        if "error" in told:
            raise KeystoreFault(bounded(one_line(str(told["error"])), _LONGEST))
        return told["secret"]
    except (ValueError, KeyError, TypeError):
        raise KeystoreFault("asking it ended without an answer") from None


def _answer(request: bytes) -> bytes:
    """Return what the child says to ``request``; end it, and all it started, at the deadline."""
    try:
        child = subprocess.Popen(
            CHILD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # No terminal to ask on, and out of reach of the Ctrl-C that ends a run.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as fault:
        raise KeystoreFault(f"it cannot be asked: {fault.strerror or fault}") from fault
    try:
        return child.communicate(request, timeout=DEADLINE_S)[0]
    except subprocess.TimeoutExpired:
        raise KeystoreFault(f"it did not answer within {DEADLINE_S:g} s") from None
    finally:
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child that has not ended by itself, with what it started, and close its pipes."""
    if child.returncode is None:
        with suppress(OSError):
            if os.name == "posix":
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    child.wait()
