"""``keys/install.json``: where the installation's key is kept, and the public halves of all.

It holds no secret. It is written when a key is made or replaced, so that the same place is read
again whatever the computer looks like later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npumark import paths
from npumark.errors import IntegrityError, SetupError
from npumark.record import platform_keystore
from npumark.record.envelope import Hex32, Hex64, Instant
from npumark.record.files import write_atomically
from npumark.record.signing import key_id_of

Where = Literal["file", "keyring"]

ROTATE = "`npumark keys rotate` makes a new one."


class FormerKey(BaseModel):
    """A key that was replaced. ``removed`` tells whether its private half is gone for certain."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: Where
    key_id: Hex32
    public_key: Hex64
    created: Instant
    retired: Instant
    removed: bool


class KeyInfo(BaseModel):
    """What is known of the key without its private half. ``why_file`` says why no keystore of the
    platform keeps it, null where one does."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal["npumark-install/1"] = Field(default="npumark-install/1", alias="schema")
    where: Where
    why_file: str | None
    key_id: Hex32
    public_key: Hex64
    created: Instant
    former: tuple[FormerKey, ...]

    @property
    def place(self) -> str:
        """Where the private half is kept, as people call it."""
        return platform_keystore.title() if self.where == "keyring" else str(file_of(self.key_id))

    @property
    def notice(self) -> str | None:
        """What is to be known of a key in a file."""
        if self.why_file is None:
            return None
        return (
            f"the key is kept in a file that only this user can read, as {self.why_file}; whoever "
            "copies the file can sign as this installation"
        )

    def whose(self, key_id: str) -> Literal["own", "former", "foreign"]:
        """Return whether a key is the installation's, one that it replaced, or somebody else's."""
        if key_id == self.key_id:
            return "own"
        return "former" if any(key_id == key.key_id for key in self.former) else "foreign"


def folder() -> Path:
    """Return the folder of keys; naming it creates nothing."""
    return paths.config_dir() / "keys"


def file_of(key_id: str) -> Path:
    """Return where a private half lies that no keystore keeps."""
    return folder() / f"{key_id}.key"


def info_path() -> Path:
    return folder() / "install.json"


def describe() -> KeyInfo | None:
    """Return what is known of the key, null where none was made yet. Asks no keystore.

    Raises IntegrityError where ``install.json`` is damaged, SetupError where it cannot be read.
    """
    path = info_path()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise SetupError(
            f"{path} cannot be read: {fault.strerror or fault}", "Make it readable for this user."
        ) from fault
    try:
        info = KeyInfo.model_validate_json(raw)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise _damaged(path, f"{place}: {first['msg']}") from None
    if key_id_of(bytes.fromhex(info.public_key)) != info.key_id:
        raise _damaged(path, "its key id is not that of its public key")
    return info


def remember(info: KeyInfo) -> None:
    """Write ``install.json``. Raises SetupError."""
    text = info.model_dump_json(by_alias=True, indent=1) + "\n"
    write_atomically(info_path(), text.encode(), force=True)


def _damaged(path: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{path}, which says where this installation's key is, is damaged: {why}",
        f"Put a copy back. Without one the key is lost; {ROTATE}",
    )
