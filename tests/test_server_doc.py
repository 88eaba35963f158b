"""docs/SERVER.md: that this version accepts each command in it, and that what it names exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from npumark.server.metrics import Metrics
from npumark.server.web.pages import CACHED_BYTES
from tests.test_fleet import parse, shell_calls

TEXT = (Path(__file__).parents[1] / "docs" / "SERVER.md").read_text(encoding="utf-8")
BLOCKS = [
    (m[1], m[2]) for m in re.finditer(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
]
SHELL = [text for kind, text in BLOCKS if kind == "sh"]


def calls() -> list[list[str]]:
    """Return the arguments of each npumark call: in scripts, in the unit, and in prose."""
    (unit,) = (text for kind, text in BLOCKS if kind == "ini")
    (started,) = re.findall(r"^ExecStart=\S+/(npumark (?:.*\\\n)*.*)$", unit, re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`(npumark [a-z][^`]+)`", prose)
    return [call for text in [*SHELL, started, *named] for call in shell_calls(text)]


CALLS = calls()


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_each_call_is_one_that_the_command_line_accepts(call: list[str]) -> None:
    parse(call)


def test_calls_are_found_in_scripts_in_the_unit_and_in_prose() -> None:
    assert ["serve", "--allow-development"] in CALLS
    assert ["serve", "admin", "hide", "RESULT", "--why", "TEXT"] in CALLS
    assert any("--build-keys" in call and "--workers" in call for call in CALLS)


def test_a_call_with_an_option_that_is_none_would_be_found() -> None:
    with pytest.raises(Exception, match="--no-such-option"):
        parse(["serve", "admin", "check", "--no-such-option"])


@pytest.mark.parametrize("text", SHELL, ids=range(len(SHELL)))
def test_each_shell_script_is_one(text: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    done = subprocess.run([bash, "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_metric_is_one_that_is_served() -> None:
    metrics = Metrics()
    metrics.submissions.labels("accepted").inc()
    metrics.requests.labels("GET", "/", 200).inc()
    served = set(re.findall(r"^(npumark_\w+)", metrics.text(0).decode(), re.MULTILINE))
    served |= {name.removesuffix("_bucket") for name in served}
    named = set(re.findall(r"`(npumark_\w+)[`{]", TEXT))
    assert len(named) >= 5
    assert named <= served


def test_each_tool_exists() -> None:
    root = Path(__file__).parents[1]
    named = set(re.findall(r"\btool/\w+\.py", TEXT))
    assert len(named) >= 3
    assert all((root / name).is_file() for name in named)


def test_the_page_cache_is_as_large_as_it_says() -> None:
    (said,) = re.findall(r"page cache of (\d+) MiB", TEXT)
    assert int(said) << 20 == CACHED_BYTES
