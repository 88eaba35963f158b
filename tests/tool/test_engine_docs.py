from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from npumark.engines.catalogue import ENVIRONMENTS, PROVIDERS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_docs", ROOT / "tool" / "engine_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_provider_has_a_row_and_a_section_with_its_traps(docs: ModuleType) -> None:
    table, sections = docs.engine_table(), docs.provider_sections()
    for row in PROVIDERS:
        for role in row.roles:
            assert f"`{row.engine_id(role)}`" in table
        assert f"### {row.title}\n" in sections
        for trap in row.traps:
            assert f"  - {trap}\n" in sections


def test_every_environment_is_listed_with_all_its_pins(docs: ModuleType) -> None:
    table = docs.environment_table()
    for row in ENVIRONMENTS:
        (line,) = [x for x in table.splitlines() if x.startswith(f"| `{row.name}` |")]
        for pin in row.requirements:
            assert f"`{pin}`" in line


def test_what_is_never_published_says_so(docs: ModuleType) -> None:
    local = [row for row in PROVIDERS if row.local_only]
    assert local
    for row in local:
        assert f"{row.title} (never published)" in docs.engine_table()
    assert docs.engine_table().count("(never published)") == len(local)


def test_each_environment_a_provider_names_exists_and_serves_it() -> None:
    known = {row.name: row for row in ENVIRONMENTS}
    for row in PROVIDERS:
        if row.environment is not None:
            assert row.id in known[row.environment].providers
    for environment in ENVIRONMENTS:
        assert set(environment.providers) <= {row.id for row in PROVIDERS}
