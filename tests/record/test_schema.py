from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from npumark.record import schema
from npumark.record.model import Payload

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_schema", ROOT / "tool" / "gen_schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_published_schema_and_tables_are_current(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0


def test_a_stale_schema_or_table_fails_the_check(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "RECORD.md"
    stale.write_text(f"{tool.BEGIN}\nold\n{tool.END}\n", "utf-8")
    monkeypatch.setattr(tool, "DOCUMENT", stale)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert tool.main(["--check"]) == 1
    assert "old" in stale.read_text("utf-8")
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0
    stale.write_text("no markers", "utf-8")
    with pytest.raises(ValueError, match="lacks the markers"):
        tool.main(["--check"])


def test_the_schema_takes_a_good_record_and_refuses_others(document: dict[str, Any]) -> None:
    shipped = json.loads(schema.SCHEMA_PATH.read_text("utf-8"))
    check = jsonschema.Draft202012Validator(shipped)
    jsonschema.Draft202012Validator.check_schema(shipped)
    assert check.is_valid(document)
    document["payload"]["entries"][0]["attempts"][0]["wall_ns"] = 2**53
    assert not check.is_valid(document)
    document["payload"]["entries"][0]["attempts"][0]["wall_ns"] = 1
    document["payload"]["boast"] = 1
    assert not check.is_valid(document)


def test_the_documentation_explains_every_top_level_field() -> None:
    text = (ROOT / "docs" / "RECORD.md").read_text("utf-8").partition("## Tables")[0]
    for name, field in Payload.model_fields.items():
        assert f"`{field.alias or name}`" in text
