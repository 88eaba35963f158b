from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from npumark.server.refusal import CODES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gen(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", ROOT / "tool" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("COLUMNS", "NO_COLOR", "TERM", "LINES", "FORCE_COLOR"):
        monkeypatch.setenv(name, "1")  # so that what the tool sets is undone afterwards
    return module


def test_the_shipped_documents_are_up_to_date(gen: ModuleType) -> None:
    assert gen.main(["--check"]) == 0


def test_the_reference_has_every_command_within_its_width(gen: ModuleType) -> None:
    text = gen.command_reference()
    for command in ("run", "engines", "report", "verify", "history", "pack verify"):
        assert f"# npumark {command}\n" in text
    assert "--include-known-crashes" in text
    assert "--virtual" not in text  # hidden
    assert max(map(len, text.splitlines())) <= gen.WIDTH


def test_a_stale_document_fails_the_check_and_is_named(
    gen: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(gen, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- generated: policy -->\nold\n<!-- end generated -->\nb\n")
    assert gen.main(["--check"]) == 1
    assert "README.md: not up to date" in capsys.readouterr().out
    assert "old" in readme.read_text()
    assert gen.main([]) == 0
    assert "| `timing.loop_s` | 2.0 |" in readme.read_text()
    assert gen.main(["--check"]) == 0


def test_each_setting_has_a_value_a_meaning_and_an_origin(gen: ModuleType) -> None:
    text = """
[a]
# origin: the method, section 2
x = 1   # what it is
y = 2.5
[a.b]
z = 3   # origin: own choice
"""
    assert list(gen.policy_rows(text)) == [
        ("a.x", "1", "what it is", "the method, section 2"),
        ("a.y", "2.5", "", "the method, section 2"),
        ("a.b.z", "3", "", "own choice"),
    ]


def test_a_setting_without_an_origin_is_refused(gen: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"a\.x has no origin"):
        list(gen.policy_rows("[a]\nx = 1\n"))


def test_an_unknown_part_is_refused(gen: ModuleType) -> None:
    with pytest.raises(KeyError):
        gen.fill("<!-- generated: horoscope -->\n<!-- end generated -->")


def test_the_refusals_of_the_server_are_listed_with_status_and_meaning(gen: ModuleType) -> None:
    text = gen.fill("<!-- generated: refusals -->\n<!-- end generated -->")
    assert "| `too_large` | 413 | the body is larger than the server takes |" in text
    assert text.count("\n| `") == len(CODES)


def test_a_stale_table_of_refusals_fails_the_check(
    gen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gen, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    server = tmp_path / "docs" / "SERVER.md"
    server.write_text("<!-- generated: refusals -->\n<!-- end generated -->\n")
    assert gen.main([]) == 0
    assert gen.main(["--check"]) == 0
    server.write_text(server.read_text().replace("| 413 |", "| 414 |"))
    assert gen.main(["--check"]) == 1


def test_the_limits_of_the_server_are_those_of_its_code(gen: ModuleType) -> None:
    text = gen.fill("<!-- generated: server-limits -->\n<!-- end generated -->")
    assert "| body of a submission | 8 MiB, 200,000 JSON values, 24 levels |" in text
    assert "| difference of clocks | 10 min |" in text
