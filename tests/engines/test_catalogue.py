from __future__ import annotations

import re

import pytest

from npumark.engines.catalogue import (
    ENVIRONMENTS,
    EVERYWHERE,
    PROVIDERS,
    Environment,
    Provider,
    environment,
    provider,
)

ROLES = {"CPU", "iGPU", "dGPU", "NPU"}


def test_ids_and_names_are_unique() -> None:
    assert len({row.id for row in PROVIDERS}) == len(PROVIDERS)
    assert len({row.name for row in ENVIRONMENTS}) == len(ENVIRONMENTS)
    names = [row.provider_name for row in PROVIDERS if row.provider_name]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", PROVIDERS, ids=lambda row: row.id)
def test_a_provider_is_complete(row: Provider) -> None:
    assert row.roles
    assert set(row.roles) <= ROLES
    assert set(row.id_suffixes) == set(row.roles) == set(row.variants_by_role)
    assert set(row.extra_variants_by_role) <= set(row.roles)
    assert set(row.platforms) <= set(EVERYWHERE)
    assert row.title
    assert row.accelerates
    assert row.placement
    for role in row.roles:
        assert re.fullmatch(r"measured on .+|emulated|not yet run on hardware", row.state(role))
    assert set(row.states) <= set(row.roles)
    assert (row.kind == "native") == (row.provider_name is None)
    for role in row.roles:
        usual, extra = row.variants_by_role[role], row.extra_variants_by_role.get(role, ())
        assert usual
        assert not set(usual) & set(extra)
    assert row.environment is None or row.id in _named(row.environment).providers


@pytest.mark.parametrize("row", ENVIRONMENTS, ids=lambda row: row.name)
def test_an_environment_is_pinned_and_serves_known_providers(row: Environment) -> None:
    assert set(row.platforms) <= set(EVERYWHERE)
    packages = {requirement.split("==")[0].split("[")[0] for requirement in row.requirements}
    assert {"numpy", "psutil"} <= packages
    assert all("==" in requirement for requirement in row.requirements), row.requirements
    for identifier in row.providers:
        found = provider(identifier)
        assert found is not None
        assert found.runtime in row.runtimes
        assert set(row.platforms) & set(found.platforms)


def test_an_engine_id_is_numbered_only_where_asked() -> None:
    cpu, cuda = provider("ort-cpu"), provider("ort-cuda")
    assert cpu is not None
    assert cuda is not None
    assert cpu.engine_id("CPU") == "ort-cpu"
    assert cuda.engine_id("dGPU") == "ort-cuda-dgpu"
    assert cuda.engine_id("dGPU", 2) == "ort-cuda-dgpu-2"


def test_nothing_is_said_of_hardware_that_it_was_not_measured_on() -> None:
    measured = {row.state(role) for row in PROVIDERS for role in row.roles} - {
        "emulated",
        "not yet run on hardware",
    }
    assert measured == {"measured on an Intel Xeon with AMX under Linux"}
    assert {role for row in PROVIDERS for role in row.states if "measured" in row.state(role)} == {
        "CPU"
    }


def test_who_multiplies_integers_about_zero_alone_is_given_those() -> None:
    alone = [row for row in PROVIDERS if "with zero point 0" in row.accelerates]
    assert [row.id for row in alone] == ["ort-tensorrt", "ort-trt-rtx", "ort-migraphx"]
    for row in alone:
        for usual in row.variants_by_role.values():
            assert [v for v in usual if v.startswith("int8")] == ["int8-sym"]
    for row in PROVIDERS:
        if row not in alone:
            given = (*row.variants_by_role.values(), *row.extra_variants_by_role.values())
            assert all("int8-sym" not in variants for variants in given)


def test_an_unknown_id_is_none() -> None:
    assert provider("ort-azure") is None
    assert environment("azure") is None


def _named(name: str) -> Environment:
    found = environment(name)
    assert found is not None
    return found
