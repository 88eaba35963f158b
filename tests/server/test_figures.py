"""What of a payload the board shows."""

from __future__ import annotations

import pytest

from npumark.record.model import Payload
from npumark.server.facets import ELSE, ENGINE, FORMAT, ROLE, RUN
from npumark.server.figures import Device, device_of, figures_of, summary_of, system_of
from tests import forge


@pytest.fixture(scope="module")
def rich() -> Payload:
    """A CPU and an NPU of several formats, and two cards."""
    return forge.forge_payload(cards=2, npu=forge.NPU)


def test_each_engine_and_format_has_its_best_counted_peak(rich: Payload) -> None:
    rows = figures_of(rich)
    counted = {
        (e.engine, e.format): 0.0
        for e in rich.entries
        if e.counts and e.workload in ("peak-512x2048x8", "peak-2048x2048x4")
    }
    for entry in rich.entries:
        key = (entry.engine, entry.format)
        if key in counted and entry.counts and entry.workload.startswith("peak-"):
            assert entry.figure is not None
            if entry.workload != "peak-8192x4096x4":
                counted[key] = max(counted[key], entry.figure.tops)
    assert {(row["engine"], row["format"]): row["tops"] for row in rows} == counted
    assert len({row["engine"] for row in rows}) == len([e for e in rich.engines if e.peak])


def test_an_engines_first_row_is_its_peak(rich: Payload) -> None:
    rows = figures_of(rich)
    for engine in rich.engines:
        own = [row for row in rows if row["engine"] == engine.id]
        assert engine.peak is not None
        assert own[0]["tops"] == engine.peak.tops
        assert own[0]["label"] == engine.peak.label
        assert [row["level"] for row in own[1:]] == [FORMAT] * (len(own) - 1)
        assert all(row["delivered"] is None for row in own[1:])


def test_one_row_leads_the_run_and_one_each_role(rich: Payload) -> None:
    rows = figures_of(rich)
    (leading,) = [row for row in rows if row["level"] == RUN]
    assert rich.score is not None
    assert (leading["engine"], leading["tops"]) == (rich.score.engine, rich.score.tops)
    for role in ("CPU", "dGPU", "NPU"):
        best = [row for row in rows if row["role"] == role and row["level"] >= ROLE]
        top = max(row["tops"] for row in rows if row["role"] == role)
        assert [row["tops"] for row in best] == [top]
    others = [row for row in rows if row["level"] == ENGINE]
    assert {row["role"] for row in others} <= {"dGPU", "CPU", "NPU"}
    assert len(others) == len(rich.engines) - 3


def test_delivered_counts_only_complete_and_stable(rich: Payload) -> None:
    engine = next(e for e in rich.engines if e.delivered and e.delivered.complete)
    assert engine.delivered is not None

    def shown(**over: bool) -> object:
        assert engine.delivered is not None
        changed = engine.model_copy(update={"delivered": engine.delivered.model_copy(update=over)})
        engines = [changed if e.id == engine.id else e for e in rich.engines]
        rows = figures_of(rich.model_copy(update={"engines": engines}))
        return next(row["delivered"] for row in rows if row["engine"] == engine.id)

    assert shown() == engine.delivered.tops
    assert shown(complete=False) is None
    assert shown(unstable=True) is None


def test_an_engine_without_a_peak_has_no_row(rich: Payload) -> None:
    engines = [e.model_copy(update={"peak": None}) for e in rich.engines]
    assert figures_of(rich.model_copy(update={"engines": engines, "score": None})) == []


def test_an_emulated_engine_leads_nothing(rich: Payload) -> None:
    npus = {p.id for p in rich.processors if p.role == "NPU"}
    engines = [
        e.model_copy(update={"emulated": e.emulated or e.processor in npus}) for e in rich.engines
    ]
    rows = figures_of(rich.model_copy(update={"engines": engines}))
    assert {row["level"] for row in rows if row["role"] == "NPU"} <= {ENGINE, FORMAT}
    assert any(row["role"] == "NPU" for row in rows)


@pytest.mark.parametrize(
    ("os", "family"),
    [
        ("Windows", "windows"),
        ("macOS", "macos"),
        ("Ubuntu 24.04.3 LTS", "linux"),
        ("Android 16", "android"),
        (None, ELSE),
        ("", ELSE),
        ("   ", ELSE),
        (7, ELSE),
    ],
)
def test_a_systems_family(os: object, family: str) -> None:
    assert system_of(os) == family


def test_a_summary_holds_what_lists_show(rich: Payload) -> None:
    found = summary_of(rich)
    assert rich.score is not None
    assert (found["tops"], found["label"]) == (rich.score.tops, rich.score.label)
    assert (found["suite"], found["os"]) == ("npumark-open 1.0.0", "linux")
    assert (found["quick"], found["comparable"], found["unstable"]) == (False, True, False)


def test_a_run_without_a_score_is_summed_up_without_numbers(rich: Payload) -> None:
    found = summary_of(rich.model_copy(update={"score": None}))
    assert (found["tops"], found["label"], found["unstable"]) == (None, None, False)


def test_text_of_others_fits_its_column_and_prints(rich: Payload) -> None:
    odd = "\x1b[31mred\n\0" + "x" * 300
    tool = rich.tool.model_copy(update={"version": odd})
    processor = rich.processors[0].model_copy(update={"name": odd})
    found = summary_of(rich.model_copy(update={"tool": tool}))["tool_version"]
    device = device_of(processor)
    assert (len(found), len(device.name)) == (40, 200)
    assert found.startswith("red x")
    assert found.isprintable()
    assert device.name.isprintable()


def test_slugs_are_plain_and_never_collide_twice() -> None:
    one, two = Device("CPU", "Ünï Chip/5"), Device("CPU", "uni chip 5")
    assert one.slug == two.slug == "cpu-uni-chip-5"
    assert one.own_slug != two.own_slug
    assert Device("NPU", "神经").slug == "npu"
    assert len(Device("CPU", "x" * 200).own_slug) <= 120
