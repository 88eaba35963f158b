"""What records are held to: the pack, the policy, the chips, and the code that judges."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.pin import PINNED_MANIFEST_SHA256
from npumark.policy import Policy, load_policy
from npumark.record.model import Payload
from npumark.score.formula import formula_files, hash_sources
from npumark.server.ceilings import Chips, load_chips

_SERVER: Final = ("ceilings", "plan", "plausibility", "privacy", "rules", "stopping")
_JUDGES: Final = ("record/published.py", *(f"server/{name}.py" for name in _SERVER))
"""Sources that are part of the rules, beside those of the formula."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What records are held to. ``sha256`` names all of it, the code included: another one may
    judge otherwise. ``skew`` is how far ahead of the server's a sender's clock may be."""

    manifest: Manifest
    policy: Policy
    chips: Chips
    pinned_sha256: str
    skew: timedelta = timedelta(minutes=10)

    @property
    def score_versions(self) -> tuple[str, ...]:
        return (self.policy.score_version,)

    @property
    def sha256(self) -> str:
        parts = (self.manifest.sha256, self.policy.sha256, self.chips.sha256, _code_sha256())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def _code_sha256() -> str:
    """Return the digest of everything that computes and judges."""
    package = Path(__file__).parent.parent
    files = tuple(package / name for name in _JUDGES)
    return hash_sources((*formula_files(), *files))


def load_rules() -> Rules:
    """Return the rules of this build."""
    return Rules(load_manifest(), load_policy(), load_chips(), PINNED_MANIFEST_SHA256)


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at: a payload, the rules, and the present."""

    payload: Payload
    rules: Rules
    now: datetime
