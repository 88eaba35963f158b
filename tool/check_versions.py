"""Fail where the pack, the policy or the formula changed and its version did not.

``npumark/data/versions.lock.json`` maps every version ever used to the hash it stands for:

- ``suite``: SUITE_VERSION (``npumark/pack/pin.py``) and the sha256 of ``manifest.json``;
- ``policy``: ``version`` and the sha256 of ``policy.toml``;
- ``formula``: FORMULA_VERSION (``npumark/score/formula.py``) and the hash of its sources.

A change needs a new version, a line in CHANGELOG.md that names it (``policy 2``), and
``tool/check_versions.py --record``. What a release tag holds can never be recorded otherwise;
before that ``--record --unreleased`` replaces the hash of a version still being made.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.pack.manifest import load_manifest  # noqa: E402
from npumark.pack.pin import SUITE_NAME, SUITE_VERSION  # noqa: E402
from npumark.policy import DATA, load_policy  # noqa: E402
from npumark.score.formula import FORMULA_VERSION, formula_sha256  # noqa: E402

LOCK = DATA / "versions.lock.json"
CHANGELOG = ROOT / "CHANGELOG.md"

Lock = dict[str, dict[str, str]]
"""Kind -> version -> sha256."""


class Current(NamedTuple):
    """What this tree holds of one kind; ``named`` is how the changelog may call it."""

    version: str
    sha256: str
    named: tuple[str, ...]


def current() -> dict[str, Current]:
    """Return versions and hashes of this tree."""
    policy = load_policy()
    return {
        "suite": Current(SUITE_VERSION, load_manifest().sha256, ("suite", SUITE_NAME)),
        "policy": Current(policy.version, policy.sha256, ("policy",)),
        "formula": Current(FORMULA_VERSION, formula_sha256(), ("formula",)),
    }


def complaints(
    now: Mapping[str, Current], lock: Lock, released: Lock | None, changelog: str
) -> list[str]:
    """Return what is wrong, one sentence each; ``released`` is the lock of the last release."""
    found = []
    for kind, (version, sha256, named) in now.items():
        recorded = lock.get(kind, {}).get(version)
        if recorded is None:
            found.append(
                f"{kind} {version} is not in {LOCK.name}: run tool/check_versions.py --record"
            )
        elif recorded != sha256:
            found.append(
                f"the {kind} changed ({recorded[:12]}… to {sha256[:12]}…) and is still called "
                f"{version}: give it a new version and a line in {CHANGELOG.name}, then --record"
            )
        if not _mentions(changelog, named, version):
            found.append(f"{CHANGELOG.name} has no line about {kind} {version}")
    for kind, versions in (released or {}).items():
        for version, sha256 in versions.items():
            if lock.get(kind, {}).get(version) != sha256:
                found.append(f"{kind} {version} was released and {LOCK.name} no longer says so")
    return found


def recorded(
    now: Mapping[str, Current], lock: Lock, released: Lock | None, *, unreleased: bool
) -> Lock:
    """Return the lock with this tree's versions added.

    With ``unreleased`` a version that no release holds may take another hash; without it, or
    where one does, the old hash stays (and :func:`complaints` says so).
    """
    result = {kind: dict(versions) for kind, versions in lock.items()}
    for kind, (version, sha256, _) in now.items():
        frozen = version in (released or {}).get(kind, {})
        versions = result.setdefault(kind, {})
        if version not in versions or (unreleased and not frozen):
            versions[version] = sha256
    return result


def released_lock(root: Path = ROOT) -> Lock | None:
    """Return the lock of the last release tag (``v…``), or None where there is none."""
    tag = _git(root, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    text = _git(root, "show", f"{tag}:{LOCK.relative_to(ROOT).as_posix()}") if tag else None
    return json.loads(text) if text else None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="add this tree's versions")
    parser.add_argument("--unreleased", action="store_true", help="with --record: also replace")
    args = parser.parse_args(argv)
    now, released = current(), released_lock()
    lock: Lock = json.loads(LOCK.read_text()) if LOCK.exists() else {}
    if args.record:
        lock = recorded(now, lock, released, unreleased=args.unreleased)
        LOCK.write_text(json.dumps(lock, indent=1) + "\n")
    changelog = CHANGELOG.read_text(encoding="utf-8") if CHANGELOG.exists() else ""
    found = complaints(now, lock, released, changelog)
    for complaint in found:
        print(complaint, file=sys.stderr)
    if not found:
        print(", ".join(f"{kind} {c.version}" for kind, c in now.items()) + ": recorded")
    return 1 if found else 0


def _mentions(changelog: str, named: Sequence[str], version: str) -> bool:
    names = "|".join(map(re.escape, named))
    return bool(re.search(rf"(?<!\w)(?:{names})`? {re.escape(version)}(?![\w.]*\w)", changelog))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
