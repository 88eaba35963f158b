from __future__ import annotations

import json

import pytest

from npumark.cli import faults, output
from npumark.plain import json_safe, one_line, printable

EVIL = "a\x1b[2Jb\x1b]8;;http://x\x1b\\c\x07\x9b3md\u202ee\x7f\u2028\U000e0001"


def test_what_a_terminal_would_obey_goes_and_the_rest_stays() -> None:
    assert one_line(EVIL) == "abc 3md e"
    assert printable("a  b") == "a  b"
    assert printable("\x1b") == " "
    assert printable("\x1b]0;never ends") == "0;never ends"


def test_json_says_the_same_without_what_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.put_json({"a": [EVIL, "µ"]})
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.split("\n"))
    assert "µ" in text
    assert json.loads(text) == {"a": [EVIL, "µ"]}
    assert json_safe("{}\n") == "{}\n"


def test_an_error_is_told_without_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    faults.tell(f"no engine {EVIL}", "one\ntwo")
    assert capsys.readouterr().err == "error: no engine abc  3md e   \nnext: one\ntwo\n"
