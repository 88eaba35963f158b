"""Asks the platform's keystore for one thing; ``platform_keystore`` starts it as a program.

A JSON object comes on standard input: ``do`` (``put``, ``get`` or ``remove``), ``service``,
``name`` and, to put, ``secret``. One goes to standard output: ``secret`` (null where there is
none) or ``error``. It imports nothing of npumark, and whatever it meets (a library that hangs,
prints or ends the process) stays in here.

It names the platform's backend itself: what else ``keyring`` may be set up to use asks for
passwords, or keeps them in plain text.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import closing
from typing import Any


class Refused(Exception):
    """The keystore cannot be used without asking somebody."""


def main() -> int:
    """Carry out what standard input asks for."""
    answer_to = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no answer
    try:
        told = answer(json.loads(sys.stdin.buffer.read()), backend())
    except Exception as fault:  # noqa: BLE001 - the parent falls back to a file, and says why
        told = {"error": str(fault) or type(fault).__name__}
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        json.dump(told, out)
    return 0


def answer(asked: dict[str, Any], keystore: Any) -> dict[str, Any]:
    """Carry out one request and return the answer."""
    service, name = asked["service"], asked["name"]
    if asked["do"] == "put":
        keystore.set_password(service, name, asked["secret"])
    elif asked["do"] == "remove":
        keystore.delete_password(service, name)
    else:
        return {"secret": keystore.get_password(service, name)}
    return {"secret": None}


def backend() -> Any:
    """Return the platform's backend of ``keyring``. Raises Refused where it would ask somebody."""
    if sys.platform == "darwin":
        module, name = "macOS", "Keyring"
        _forbid_dialogs()
    elif sys.platform == "win32":
        module, name = "Windows", "WinVaultKeyring"
    else:
        module, name = "SecretService", "Keyring"
        _require_unlocked()
    return getattr(importlib.import_module(f"keyring.backends.{module}"), name)()


def _forbid_dialogs() -> None:
    """Let the keychain refuse what it would show a dialog for (Security framework,
    ``SecKeychainSetUserInteractionAllowed``)."""
    import ctypes

    security = ctypes.CDLL("/System/Library/Frameworks/Security.framework/Security")
    if status := security.SecKeychainSetUserInteractionAllowed(ctypes.c_ubyte(0)):
        raise Refused(f"the keychain cannot be kept from showing dialogs (OSStatus {status})")


def _require_unlocked() -> None:
    """Raises Refused unless the Secret Service has a default collection that is open.

    ``keyring`` itself would make a missing one, and open a locked one, both with a dialog.
    """
    import secretstorage
    from secretstorage.exceptions import ItemNotFoundException

    with closing(secretstorage.dbus_init()) as bus:
        if not secretstorage.check_service_availability(bus):
            raise Refused("no Secret Service runs in this session")
        try:
            locked = secretstorage.Collection(bus).is_locked()
        except ItemNotFoundException:
            raise Refused("the Secret Service has no default keyring yet") from None
    if locked:
        raise Refused("the keyring is locked")


if __name__ == "__main__":
    sys.exit(main())
