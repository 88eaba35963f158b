"""Packages that overwrite or hide each other, environments that are not whole, variables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest

from npumark.doctor.packages import overlaps


def _install(
    site: Path, name: str, version: str, files: Sequence[str], record: bool = True
) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    if record:
        (info / "RECORD").write_text("".join(f"{path},sha256=x,1\n" for path in files))


def _in(site: Path) -> Any:
    def installed(folders: tuple[str, ...] | None) -> Iterable[Distribution]:
        return distributions(path=[str(site)]) if folders is None else ()

    return installed


def test_two_builds_of_one_runtime_are_found(clinic: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    _install(site, "onnxruntime", "1.31.1", ["onnxruntime/__init__.py"])
    _install(site, "onnxruntime-gpu", "1.31.1", ["onnxruntime/__init__.py"])
    seen = clinic.seen(installed=_in(site))["shadowed_wheels"]
    assert seen.state == "problem"
    assert "onnxruntime 1.31.1 and onnxruntime-gpu 1.31.1 overwrite each other" in seen.sentence
    assert "pip uninstall onnxruntime onnxruntime-gpu" in seen.fix


def test_builds_whose_list_of_files_is_lost_are_known_by_name(clinic: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    _install(site, "onnxruntime", "1.31.1", (), record=False)
    _install(site, "onnxruntime-directml", "1.24.4", (), record=False)
    assert clinic.seen(installed=_in(site))["shadowed_wheels"].state == "problem"


def test_any_runtime_may_be_overwritten(tmp_path: Path) -> None:
    _install(tmp_path, "openvino", "2026.4", ["openvino/__init__.py"])
    _install(tmp_path, "openvino-nightly", "2026.5", ["openvino/__init__.py"])
    (found,) = overlaps(distributions(path=[str(tmp_path)]))
    assert found.package == "openvino"
    assert found.distributions == ("openvino 2026.4", "openvino-nightly 2026.5")


def test_parts_of_one_package_and_plug_ins_are_none(tmp_path: Path) -> None:
    _install(tmp_path, "mlx", "0.32", ["mlx/core.so"])
    _install(tmp_path, "mlx-cpu", "0.32", ["mlx/lib/libmlx.so"])
    _install(tmp_path, "onnxruntime", "1.31.1", ["onnxruntime/__init__.py"])
    _install(tmp_path, "onnxruntime-qnn", "2.7", ["onnxruntime_qnn/__init__.py"])
    assert overlaps(distributions(path=[str(tmp_path)])) == ()


@pytest.mark.parametrize("name", ["numpy.py", "openvino/__init__.py"])
def test_a_file_that_an_import_would_take_is_found(clinic: Any, tmp_path: Path, name: str) -> None:
    site, local = tmp_path / "site", tmp_path / "local"
    _install(site, "numpy", "2.4", ["numpy/__init__.py"])
    (local / name).parent.mkdir(parents=True)
    (local / name).write_text("")
    ahead = clinic.seen(installed=_in(site), import_path=(str(local), str(site)))["local_modules"]
    assert ahead.state == "problem"
    assert str(local) in ahead.sentence
    behind = clinic.seen(installed=_in(site), import_path=(str(site), str(local)))["local_modules"]
    assert behind.state == "note"


def test_a_file_in_the_current_folder_is_noted(clinic: Any) -> None:
    (clinic.outside.here / "onnxruntime.py").write_text("")
    assert clinic.seen()["local_modules"].state == "note"


def test_an_installed_package_does_not_hide_itself(clinic: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    _install(site, "numpy", "2.4", ["numpy/__init__.py"])
    (site / "numpy").mkdir()
    (site / "numpy" / "__init__.py").write_text("")
    seen = clinic.seen(installed=_in(site), import_path=(str(site),))["local_modules"]
    assert seen.state == "ok"


def test_a_damaged_environment_is_found(clinic: Any, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "data" / "engines" / "ggml"
    folder.mkdir(parents=True)
    (folder / ".npumark-environment").write_text("")
    seen = clinic.seen()["environments"]
    assert seen.state == "problem"
    assert "ggml is broken" in seen.sentence
    assert "npumark engines install ggml --again" in seen.fix


def test_a_folder_of_environments_that_is_none_is_found(
    clinic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_ENGINES", str(tmp_path / "nowhere"))
    assert "NPUMARK_ENGINES" in clinic.seen()["environments"].sentence


def test_variables_that_bend_a_device_are_noted_without_their_values(clinic: Any) -> None:
    named = {"CUDA_VISIBLE_DEVICES": "secret", "OMP_NUM_THREADS": "1", "PYTHONPATH": "/x"}
    seen = clinic.seen(variables=named)["variables"]
    assert seen.state == "note"
    assert "CUDA_VISIBLE_DEVICES" in seen.fix
    assert "OMP_NUM_THREADS are kept from the engines" in seen.sentence
    assert "secret" not in str(seen)
    assert clinic.seen(variables={"PYTHONPATH": "/x"})["variables"].state == "ok"


def test_windows_has_its_own_way_to_unset_a_variable(clinic: Any) -> None:
    named = {"CUDA_VISIBLE_DEVICES": "0"}
    assert "`unset CUDA" in clinic.seen(variables=named)["variables"].fix
    clinic.host = clinic.fake.other("win32", {})
    fix = clinic.seen(variables=named)["variables"].fix
    assert fix == "`set CUDA_VISIBLE_DEVICES=` where they are not meant."
