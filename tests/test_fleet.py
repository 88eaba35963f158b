"""The examples for a fleet's scheduler: their syntax, and that this version accepts each call."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import COMMANDS, LazyCommands
from npumark.policy import load_policy

TEXT = (Path(__file__).parents[1] / "docs" / "FLEET.md").read_text(encoding="utf-8")
BLOCKS = [
    (m[1], m[2]) for m in re.finditer(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
]
SHELL = [text for kind, text in BLOCKS if kind in ("sh", "bash")]
YAML = [text for kind, text in BLOCKS if kind == "yaml"]


def shell_calls(text: str) -> list[list[str]]:
    """Return the arguments of each npumark call in a shell script."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"^\s*npumark ([^|>&;\n]*)", joined, re.MULTILINE)
    return [shlex.split(call) for call in found]


def yaml_calls(node: Any) -> list[list[str]]:
    """Return the arguments of each npumark call in a manifest or playbook."""
    if isinstance(node, list):
        return [call for item in node for call in yaml_calls(item)]
    if not isinstance(node, dict):
        return []
    own = []
    if "npumark" in str(node.get("image")) and "args" in node:
        own.append([str(word) for word in node["args"]])
    if isinstance(node.get("argv"), list) and node["argv"][0] == "npumark":
        own.append([str(word) for word in node["argv"][1:]])
    return own + [call for value in node.values() for call in yaml_calls(value)]


def prose_calls() -> list[list[str]]:
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)
    return [shlex.split(" ".join(c.split())) for c in re.findall(r"`npumark ([^`]+)`", prose)]


def parse(call: list[str]) -> None:
    """Parse a call as the command line does, and carry nothing out."""
    assert call[0] in COMMANDS, call
    command, rest = LazyCommands()[call[0]], call[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context("npumark", list(rest))


@pytest.mark.parametrize(
    "call", [c for text in SHELL for c in shell_calls(text)] + prose_calls(), ids=" ".join
)
def test_each_call_is_one_that_the_command_line_accepts(call: list[str]) -> None:
    parse(call)


def test_a_call_with_an_option_that_is_none_would_be_found() -> None:
    with pytest.raises(Exception, match="--no-such-option"):
        parse(["run", "--no-such-option"])


def test_each_option_of_the_table_exists() -> None:
    told = re.findall(r"^\| `(--?[a-z-]+)", TEXT, re.MULTILINE)
    known = {o for p in LazyCommands()["box"].params for o in p.opts}
    assert len(told) >= 9
    assert set(told) <= known


@pytest.mark.parametrize("text", SHELL, ids=range(len(SHELL)))
def test_each_shell_script_is_one(text: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    done = subprocess.run([bash, "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_each_manifest_and_playbook_parses_and_calls_what_there_is(text: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    calls = yaml_calls(yaml.safe_load(text))
    assert ["box"] in [call[:1] for call in calls]
    for call in calls:
        parse(call)


def reader(boxed: Any) -> subprocess.CompletedProcess[str]:
    why = "nothing to sum" if boxed is None else None
    return read(json.dumps({"payload": {"box": boxed, "box_why": why}}))


def read(text: str) -> subprocess.CompletedProcess[str]:
    (program,) = (text for kind, text in BLOCKS if kind == "python")
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def role(**over: Any) -> dict[str, Any]:
    card = {"card": "dgpu-1", "slow_alone": False, "slow_in_box": False, "of_solo": 0.95}
    made = {"role": "dGPU", "tops": 180.0, "why": None, "scaling": 0.95, "cards": [card]}
    return {**made, "attempts": [{"n": 1, "void_because": []}], **over}


def test_the_reader_passes_a_box_that_is_good() -> None:
    done = reader({"roles": [role()]})
    assert (done.returncode, done.stderr) == (0, "")
    assert "dGPU 180.0 TOPS, scaling 0.950" in done.stdout


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ({"scaling": 0.5}, "scaling 0.500"),
        (
            {
                "cards": [
                    {"card": "dgpu-3", "slow_alone": None, "slow_in_box": True, "of_solo": 0.9}
                ]
            },
            "slow: dgpu-3",
        ),
        (
            {
                "cards": [
                    {"card": "dgpu-3", "slow_alone": None, "slow_in_box": None, "of_solo": 2.95}
                ]
            },
            "disturbed alone, measure again: dgpu-3",
        ),
        ({"scaling": 1.4}, "scaling 1.400"),
        ({"tops": None, "scaling": None, "why": "dgpu-2 hung"}, "dGPU dgpu-2 hung"),
    ],
)
def test_the_reader_fails_a_box_that_is_not(over: dict[str, Any], said: str) -> None:
    done = reader({"roles": [role(**over)]})
    assert (done.returncode, done.stderr) == (1, "")
    assert said in done.stdout


def test_the_reader_says_where_there_is_nothing_to_read() -> None:
    for done, said in ((read(""), "no record"), (reader(None), "no box total: nothing to sum")):
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr


def test_the_bound_is_the_policys() -> None:
    most = f"{load_policy().box.most_scaling:g}"
    assert re.findall(r"(?:MAX_SCALING = 0.9, |max_scaling: )([\d.]+)", TEXT) == [most, most]


def test_each_example_installs_what_drives_the_cards() -> None:
    """Slurm's in its script, the others as arguments."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found = [call for text in SHELL for call in shell_calls(text) if call[0] == "engines"]
    assert found == [["engines", "install", "cuda"]]
    for text in YAML:
        calls = yaml_calls(yaml.safe_load(text))
        assert [c[0] for c in calls] == ["engines", "box"]


def test_the_reader_says_why_an_attempt_is_void() -> None:
    done = reader({"roles": [role(attempts=[{"n": 2, "void_because": ["dgpu-2 hung"]}])]})
    assert "  attempt 2: dgpu-2 hung" in done.stdout


def test_statuses_are_those_of_the_command() -> None:
    told = re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)
    documented = " ".join((LazyCommands()["box"].help or "").split())
    listed = documented.split("Exit status: ", 1)[1].split("; ")
    assert told == [part.split()[0] for part in listed if part.split()[0].isdecimal()]
