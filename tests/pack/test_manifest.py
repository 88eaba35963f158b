"""The manifest is read whole or refused in a sentence, whatever stands in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.errors import PackError, UsageError
from npumark.pack import manifest as module
from npumark.pack.manifest import load_manifest, parse_manifest
from npumark.policy import DATA

Edit = Callable[[dict[str, Any]], object]
HUGE = "1e400"


def edited(edit: Edit) -> bytes:
    doc = json.loads((DATA / "manifest.json").read_bytes())
    edit(doc)
    return json.dumps(doc).replace(f'"{HUGE}"', HUGE).encode()


def test_the_shipped_one_is_read() -> None:
    assert parse_manifest(edited(lambda _: None)).files == load_manifest().files


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["files"][0].update(size=HUGE),
        lambda d: d["files"][0].update(size=float("nan")),
        lambda d: d["files"][0].update(size="x"),
        lambda d: d["files"][0].update(size="12"),
        lambda d: d["files"][0].update(size=-1),
        lambda d: d["files"][0].update(size=True),
        lambda d: d["files"][0].update(size=1.5),
        lambda d: d["files"][0].pop("size"),
        lambda d: d["suite"].update(name=7),
        lambda d: d.update(suite=[]),
        lambda d: d["files"].append(d["files"][0]),
        lambda d: d["workloads"].append(d["workloads"][0]),
        lambda d: d["workloads"][0].update(macs=HUGE),
        lambda d: d["workloads"][0].update(params=-4),
        lambda d: d["workloads"][0].update(id=7),
        lambda d: d["workloads"][0]["eval"].update(n=float("inf")),
        lambda d: d["workloads"][0]["eval"]["inputs"][0].update(shape=["x"]),
        lambda d: d["workloads"][0]["variants"][0]["inputs"][0].update(perm=[0, 0]),
        lambda d: d["workloads"][0]["variants"][0]["inputs"][0].update(perm=[0]),
        lambda d: d["workloads"][0]["variants"][0]["inputs"][0].update(perm=["1", "0"]),
        lambda d: d["workloads"][0]["gates"]["standard"].update(bounds={"snr_db": "x"}),
        lambda d: d["workloads"][0]["gates"]["standard"].update(bounds={"snr_db": HUGE}),
    ],
)
def test_what_is_no_number_is_refused_in_a_sentence(edit: Edit) -> None:
    with pytest.raises(PackError) as told:
        parse_manifest(edited(edit))
    assert "\n" not in told.value.message
    assert "Error(" not in told.value.message


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(PackError):
        parse_manifest(b"[" * 200_000)


def test_a_file_without_end_is_not_read_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 1000)
    path = tmp_path / "m.json"
    path.write_bytes(b" " * 1001)
    with pytest.raises(UsageError, match="larger than"):
        load_manifest(path)
    if Path("/dev/zero").exists():
        with pytest.raises(UsageError, match="/dev/zero is no manifest"):
            load_manifest(Path("/dev/zero"))
