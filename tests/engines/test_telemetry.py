"""No runtime reports home: nothing is written under HOME, and no sender is even imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npumark.engines.registry import BUILT_IN

PROBE = """
import sys
from npumark.engines.registry import resolve
engine = resolve({ref!r})
engine.prepare()
assert any(info.available for info in engine.probe({{}}))
print(sorted(n for n, m in sys.modules.items() if m and n.startswith("openvino_telemetry")))
"""


@pytest.mark.parametrize("name", ["ort", "openvino"])
def test_a_runtime_leaves_no_trace_and_loads_no_sender(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    places = {"HOME": str(home), "USERPROFILE": str(home), "LOCALAPPDATA": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(ref=BUILT_IN[name])],
        env={**kept, **places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert list(home.rglob("*")) == []
