"""The machine ID: tells a server that two results come from one machine, and nothing else of it.

It is a digest, with a prefix of its own, of the id that the operating system keeps. It travels in
envelopes alone and stands in no record.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from npumark import paths
from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.machine.host import THIS, Host, Reading
from npumark.record.files import write_atomically

_DOMAIN = b"npumark-machine/1\n"
_LINUX = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_IOREG = ("ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
_APPLE = re.compile(r'"IOPlatformUUID"\s*=\s*"([^"]+)"')
_WINDOWS = (r"SOFTWARE\Microsoft\Cryptography", "MachineGuid")
_FORM = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class MachineId:
    """``value``: 64 hexadecimal digits. ``why``: why it was drawn at random and is kept by npumark
    alone, null where it follows from the system's own id."""

    value: str
    why: str | None


def machine_id() -> str:
    """Return this machine's ID, 64 hexadecimal digits. Raises as ``identify``."""
    return identify().value


def identify(host: Host = THIS) -> MachineId:
    """Return the ID of ``host``; where its system has none, a random one that is kept.

    Raises SetupError where that cannot be kept or read, IntegrityError where it is damaged.
    """
    system = _of_system(host)
    own = system.value if system.value is not None else _kept(paths.config_dir() / "machine-id")
    return MachineId(
        hashlib.sha256(_DOMAIN + own.encode()).hexdigest(),
        system.why if system.value is None else None,
    )


def _of_system(host: Host) -> Reading:
    """Return the operating system's own id in lower case, or why there is none."""
    if host.system == "linux":
        readings = [_checked(host.read(path), path) for path in _LINUX]
        return next((r for r in readings if r.value is not None), readings[0])
    if host.system == "darwin":
        answer = host.output(_IOREG)
        found = _APPLE.search(answer.value or "")
        return _checked(Reading(found[1] if found else None, answer.why), "IOPlatformUUID")
    if host.system == "win32":
        return _checked(host.registry(*_WINDOWS), "MachineGuid")
    return Reading(None, f"npumark knows no machine id of {host.system}")


def _checked(reading: Reading, source: str) -> Reading:
    if reading.value is None:
        return Reading(None, reading.why or f"{source} is not stated")
    text = reading.value.strip().lower()
    if not _FORM.fullmatch(text) or not text.strip("0-"):
        return Reading(None, f"{source} holds no id")  # `uninitialized`, or all zeros
    return Reading(text)


def _kept(path: Path) -> str:
    """Return the random id in ``path``, drawn where there is none yet."""
    if not os.path.lexists(path):  # a link to nothing is there, and nothing can be drawn in it
        return _drawn(path)
    try:
        text = path.read_text("ascii", "replace").strip()
    except OSError as fault:
        raise SetupError(
            f"the machine ID in {path} cannot be read: {fault.strerror or fault}",
            "Make it readable for this user.",
        ) from fault
    if not _FORM.fullmatch(text):
        raise IntegrityError(
            f"the machine ID in {path} is damaged",
            "Put a copy back; without it, remove the file, and this is a new machine to servers.",
        )
    return text


def _drawn(path: Path) -> str:
    """Draw an id and keep it in ``path``; return that of another process that was first."""
    text = secrets.token_hex(16)
    paths.make(path.parent)
    try:
        write_atomically(path, text.encode() + b"\n", mode=0o600)
    except SetupError:
        raise
    except UsageError:  # it exists
        return _kept(path)
    return text
