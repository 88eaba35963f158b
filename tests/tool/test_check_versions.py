"""The version check, and every change that must trip it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tool import check_versions as check

A, B = "a" * 64, "b" * 64
CHANGELOG = "- Suite `npumark-open` 1.0.0.\n- policy 1: first.\n- formula 1: first.\n"


def _now(**hashes: str) -> dict[str, check.Current]:
    return {
        "suite": check.Current("1.0.0", hashes.get("suite", A), ("suite", "npumark-open")),
        "policy": check.Current("1", hashes.get("policy", A), ("policy",)),
        "formula": check.Current("1", hashes.get("formula", A), ("formula",)),
    }


def _lock() -> check.Lock:
    return {"suite": {"1.0.0": A}, "policy": {"1": A}, "formula": {"1": A}}


def test_nothing_changed_nothing_said() -> None:
    assert check.complaints(_now(), _lock(), _lock(), CHANGELOG) == []


@pytest.mark.parametrize("kind", ["suite", "policy", "formula"])
def test_a_change_without_a_new_version_fails(kind: str) -> None:
    (text,) = check.complaints(_now(**{kind: B}), _lock(), None, CHANGELOG)
    assert f"the {kind} changed" in text
    # recording does not paper over it
    assert check.recorded(_now(**{kind: B}), _lock(), None, unreleased=False) == _lock()


@pytest.mark.parametrize("kind", ["suite", "policy", "formula"])
def test_a_new_version_must_be_recorded_and_in_the_changelog(kind: str) -> None:
    now = _now()
    now[kind] = now[kind]._replace(version="2.0.0", sha256=B)
    missing, unlisted = check.complaints(now, _lock(), _lock(), CHANGELOG)
    assert "--record" in missing
    assert f"no line about {kind} 2.0.0" in unlisted
    lock = check.recorded(now, _lock(), _lock(), unreleased=False)
    assert lock[kind]["2.0.0"] == B
    assert len(lock[kind]) == 2
    assert check.complaints(now, lock, _lock(), CHANGELOG + f"- {kind} 2.0.0: why\n") == []


def test_a_longer_version_is_another_version() -> None:
    changelog = CHANGELOG.replace("policy 1:", "policy 1.1:").replace("formula 1:", "formula 12:")
    texts = check.complaints(_now(), _lock(), None, changelog)
    assert len(texts) == 2
    assert (
        check.complaints(_now(), _lock(), None, CHANGELOG.replace("policy 1:", "policy 1.")) == []
    )


def test_what_was_released_cannot_be_rewritten_or_dropped() -> None:
    now, released = _now(suite=B), _lock()
    lock = check.recorded(now, _lock(), released, unreleased=True)
    assert lock == _lock()
    lock["suite"]["1.0.0"] = B
    assert any("was released" in text for text in check.complaints(now, lock, released, CHANGELOG))
    del lock["policy"]["1"]
    assert any("policy 1 was released" in t for t in check.complaints(now, lock, released, ""))


def test_before_a_release_a_version_in_the_making_may_change() -> None:
    now = _now(suite=B)
    lock = check.recorded(now, _lock(), None, unreleased=True)
    assert lock["suite"] == {"1.0.0": B}
    assert check.complaints(now, lock, None, CHANGELOG) == []


def test_the_release_is_read_from_its_tag(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)

    git("init", "-q")
    assert check.released_lock(tmp_path) is None
    lock = tmp_path / check.LOCK.relative_to(check.ROOT)
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps(_lock()))
    git("add", ".")
    git("commit", "-q", "-m", "release")
    git("tag", "v1.0.0")
    lock.write_text("{}")
    git("commit", "-q", "-am", "later")
    assert check.released_lock(tmp_path) == _lock()


def test_the_command_records_and_then_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    monkeypatch.setattr(check, "LOCK", tmp_path / "versions.lock.json")
    monkeypatch.setattr(check, "CHANGELOG", changelog)
    monkeypatch.setattr(check, "released_lock", lambda: None)
    assert check.main([]) == 1
    now = check.current()
    changelog.write_text("".join(f"- {kind} {c.version}: first\n" for kind, c in now.items()))
    assert check.main(["--record"]) == 0
    assert check.main([]) == 0
    changelog.write_text("")
    assert check.main([]) == 1
    assert "no line about" in capsys.readouterr().err
