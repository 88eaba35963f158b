"""The out-of-memory counter: read where it is, unknown where it is not."""

from __future__ import annotations

from pathlib import Path

from npumark.orchestrator.oom import oom_kills


def test_the_kernels_counter_is_read(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill 7\n")
    assert oom_kills(tmp_path) == 7


def test_unknown_is_not_zero(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) is None
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill many\n")
    assert oom_kills(tmp_path) is None
