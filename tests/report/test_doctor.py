"""What the doctor's page says, and in which order."""

from __future__ import annotations

from npumark.doctor.examine import in_order
from npumark.doctor.examined import good, noted, spoils, unread
from npumark.report.doctor import render_doctor
from npumark.report.page import Page

FOUND = in_order(
    (
        good("a", "Disk", 1, "It has room."),
        unread("b", "Clocks", "the system exposes none"),
        noted("c", "Container", "docker", "This runs in docker.", "Leave it."),
        spoils("d", "Power", "battery", "It runs on battery.", "Plug it in."),
    )
)


def test_problems_come_first_each_with_its_fix() -> None:
    lines = render_doctor(FOUND, Page(width=70)).splitlines()
    assert lines[0] == "1 thing here would spoil a measurement; nothing was changed."
    headings = [line for line in lines if line and not line.startswith(" ")][1:]
    assert headings == ["Would spoil a measurement", "Worth knowing", "Not known", "Well"]
    assert "    Fix: Plug it in." in lines
    assert "  Container: This runs in docker. Leave it." in lines
    assert "  Clocks: the system exposes none." in lines


def test_a_name_that_a_terminal_would_obey_is_shown_without_it() -> None:
    evil = (spoils("d", "Load", 1, "\x1b[31mgame\x07 is busy.", "Stop it."),)
    assert "\x1b" not in render_doctor(evil, Page())
