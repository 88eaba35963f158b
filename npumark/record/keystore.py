"""The installation's key: an Ed25519 key of its own for each home of npumark, made on first use.

    keys/install.json     where the key is kept, and public halves (``key_info``)
         <key id>.key     the private half, where no keystore of the platform keeps it
         install.lock     held while a key is made or replaced

What was decided when the key was made stays: a keystore that refuses later is told of, and never
leads to another key in silence. ``NPUMARK_KEYSTORE`` (``file`` or ``keyring``) decides for keys
that are made from then on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from filelock import FileLock, Timeout

from npumark import paths
from npumark.errors import IntegrityError, SetupError, UsageError
from npumark.record import platform_keystore
from npumark.record.key_file import NoKey, read_key, write_key
from npumark.record.key_info import (
    ROTATE,
    FormerKey,
    KeyInfo,
    Where,
    file_of,
    folder,
    info_path,
    remember,
)
from npumark.record.key_info import describe as describe
from npumark.record.platform_keystore import KeystoreFault
from npumark.record.signing import InstallKey

VARIABLE = "NPUMARK_KEYSTORE"

_WAIT_S = 30.0
"""For another process that makes the key: longer than the keystore's deadlines together."""


def install_key() -> InstallKey:
    """Return the installation's key; make it where there is none yet.

    It asks nobody and takes a few seconds at the most. Raises SetupError where the key cannot be
    kept, or the keystore that keeps it refuses; IntegrityError where what is kept is damaged.
    """
    if (info := describe()) is not None:
        with suppress(NoKey):  # another process may just have replaced it
            return _private(info)
    with _locked():
        info = describe()
        return _private(info) if info is not None else _first()


def rotate() -> InstallKey:
    """Replace the installation's key and return the new one.

    The old one's private half is removed and its public half remembered, with those before it.
    Serves too where the old key cannot be read any more. Raises SetupError.
    """
    with _locked():
        try:
            old = describe()
        except IntegrityError:
            _set_aside()
            old = None
        key, info = _made(old)
        remember(info)
        if old is not None and _removed(old):
            last = info.former[-1].model_copy(update={"removed": True})
            remember(info.model_copy(update={"former": (*info.former[:-1], last)}))
        for path in folder().glob("*.key"):  # also what an interrupted rotation left
            if path.stem != key.key_id:
                with suppress(OSError):
                    path.unlink()
        return key


def _first() -> InstallKey:
    """Make the first key, or take the one whose maker was ended before it was remembered."""
    left = sorted(folder().glob("*.key"))
    if not left:
        key, info = _made(None)
    else:
        key = read_key(left[0])
        if key.key_id != left[0].stem:
            raise IntegrityError(
                f"the key file {left[0]} holds another key than its name says",
                f"Put the right one back. Without it the key is lost; {ROTATE}",
            )
        info = _info(key, "file", "it was found there")
    remember(info)
    return key


def _made(old: KeyInfo | None) -> tuple[InstallKey, KeyInfo]:
    """Make a key and keep it; nothing is remembered of it yet."""
    key = InstallKey(os.urandom(32))
    where, why_file = _keep(key)
    former: tuple[FormerKey, ...] = ()
    if old is not None:
        last = FormerKey(
            where=old.where,
            key_id=old.key_id,
            public_key=old.public_key,
            created=old.created,
            retired=_now(),
            removed=False,
        )
        former = (*old.former, last)
    return key, _info(key, where, why_file, former)


def _keep(key: InstallKey) -> tuple[Where, str | None]:
    """Put ``key`` where it is to be kept; return where, and why in a file."""
    chosen = _chosen()
    why = f"{VARIABLE} says so" if chosen == "file" else None
    if chosen is None:
        why = platform_keystore.lacking()
    if why is None:
        try:
            platform_keystore.store(key.key_id, key.seed)
            return "keyring", None
        except KeystoreFault as fault:
            why = f"{platform_keystore.title()} cannot be used ({fault})"
            if chosen == "keyring":
                hint = f"Leave {VARIABLE} unset, and the key is kept in a file."
                raise SetupError(why, hint) from None
    write_key(file_of(key.key_id), key)
    return "file", why


def _private(info: KeyInfo) -> InstallKey:
    """Return the key that ``info`` tells of, from where it is kept."""
    key = read_key(file_of(info.key_id)) if info.where == "file" else _from_keyring(info)
    if key.public.hex() != info.public_key:
        raise IntegrityError(
            f"{info.place} holds another key than this installation's, {info.key_id}",
            f"Put the right one back. Without it the key is lost; {ROTATE}",
        )
    return key


def _from_keyring(info: KeyInfo) -> InstallKey:
    try:
        seed = platform_keystore.fetch(info.key_id)
    except KeystoreFault as fault:
        raise SetupError(
            f"{info.place} keeps this installation's key and does not give it: {fault}",
            f"Unlock it and try again. Where that does not help, {ROTATE}",
        ) from None
    if seed is None:
        raise NoKey(
            f"{info.place} no longer holds this installation's key {info.key_id}",
            f"Put it back if you can. Without it the key is lost; {ROTATE}",
        )
    return InstallKey(seed)


def _removed(old: KeyInfo) -> bool:
    """Remove the private half of a key; return whether it is gone."""
    try:
        if old.where == "keyring":
            platform_keystore.remove(old.key_id)
        else:
            file_of(old.key_id).unlink(missing_ok=True)
    except (KeystoreFault, OSError):
        return False
    return True


def _set_aside() -> None:
    """Keep a damaged ``install.json`` under another name."""
    path = info_path()
    try:
        path.replace(path.with_name(f"install.damaged-{_now().replace(':', '')}.json"))
    except OSError as fault:
        raise paths.unwritable(path, fault) from fault


def _info(
    key: InstallKey, where: Where, why_file: str | None, former: tuple[FormerKey, ...] = ()
) -> KeyInfo:
    return KeyInfo(
        where=where,
        why_file=why_file,
        key_id=key.key_id,
        public_key=key.public.hex(),
        created=_now(),
        former=former,
    )


def _chosen() -> Where | None:
    """Return where the user wants new keys. Raises UsageError for what is no place."""
    value = os.environ.get(VARIABLE, "").strip()
    if value == "file":
        return "file"
    if value == "keyring":
        return "keyring"
    if value:
        raise UsageError(
            f"{VARIABLE} is {value!r}, and a key can be kept in `file` or `keyring`",
            f"Set {VARIABLE} to one of them, or leave it unset.",
        )
    return None


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock of whoever makes or replaces the key. Raises SetupError."""
    place = paths.make(folder())
    with suppress(OSError):
        place.chmod(0o700)
    lock = FileLock(place / "install.lock")
    try:
        lock.acquire(timeout=_WAIT_S)
    except Timeout:
        raise SetupError(
            f"another npumark has been making this installation's key for {_WAIT_S:g} s",
            "Try again later.",
        ) from None
    except (OSError, NotImplementedError) as fault:
        cause = fault if isinstance(fault, OSError) else OSError(str(fault))
        raise paths.unwritable(place, cause) from fault
    try:
        yield
    finally:
        lock.release()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
