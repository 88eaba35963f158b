"""The form of a record's ``signatures``: ``npumark-sig/v1`` (``signing`` makes and checks them)."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from npumark.record.envelope import Hex32, Hex64, Hex128

SCHEME: Final = "npumark-sig/v1"

Development = Literal["a development build holds no build key"]


class _Part(BaseModel):
    # Published, and covered by no signature: nothing but the signatures may be in them.
    model_config = ConfigDict(extra="forbid", frozen=True)


class BuildSignature(_Part):
    """HMAC-SHA256 with the key that only release builds hold."""

    key_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    hmac: Hex64


class InstallSignature(_Part):
    """Ed25519 with the installation's key; ``key_id`` is the start of the public key's sha256."""

    key_id: Hex32
    public_key: Hex64
    signature: Hex128


class Signatures(_Part):
    """``build`` is null in a record of a development build; ``build_why`` then says so."""

    scheme: Literal["npumark-sig/v1"]
    build: BuildSignature | None
    build_why: Development | None
    install: InstallSignature

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.build is None) == (self.build_why is None):
            raise ValueError("either build or build_why is null, and not both")
        return self
