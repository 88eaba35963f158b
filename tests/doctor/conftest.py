"""A fake computer to examine, in a home of its own and with disks that have room."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from npumark.doctor.examine import examine
from npumark.doctor.examined import Examined
from npumark.doctor.scene import Outside
from npumark.machine.host import Host
from npumark.pack.manifest import Manifest
from npumark.policy import load_policy
from tests import synthetic
from tests.machine.conftest import Fake

PLENTY = 1 << 40


@dataclass
class Clinic:
    """``seen`` examines the fake computer and returns the checks by id."""

    fake: Fake
    manifest: Manifest
    outside: Outside
    host: Host | None = None

    def seen(self, **outside: Any) -> dict[str, Examined]:
        found = examine(
            self.host or self.fake.host,
            replace(self.outside, **outside),
            load_policy(),
            self.manifest,
        )
        return {one.id: one for one in found}

    def problems(self, **outside: Any) -> set[str]:
        return {one.id for one in self.seen(**outside).values() if one.state == "problem"}


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NPUMARK_ENGINES", raising=False)
    machine = Fake(tmp_path / "root")
    machine.stat()
    machine.tree({"/proc/meminfo": "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB"})
    here = tmp_path / "here"
    here.mkdir()
    outside = Outside(
        free=lambda _: PLENTY,
        writable=lambda _: True,
        temporary=lambda: tmp_path,
        installed=lambda _: (),
        import_path=(),
        here=here,
        variables={},
    )
    return Clinic(machine, synthetic.manifest(), outside)
