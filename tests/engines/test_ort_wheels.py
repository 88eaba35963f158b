from __future__ import annotations

from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from npumark.engines.ort_wheels import installed_wheels, wheels


def dist(root: Path, name: str, version: str, *files: str) -> Distribution:
    folder = root / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return PathDistribution(folder)


def runtime(root: Path, package_name: str) -> Path:
    folder = root / "onnxruntime"
    (folder / "capi").mkdir(parents=True)
    told = f"package_name = '{package_name}'\n__version__ = '1.31.1'\n"
    (folder / "capi" / "build_and_package_info.py").write_text(told)
    (folder / "capi" / "onnxruntime_pybind11_state.so").write_bytes(b"native")
    return folder


def test_one_build_shadows_nothing(tmp_path: Path) -> None:
    found = wheels(
        [
            dist(tmp_path, "onnxruntime", "1.32.0", "onnxruntime/__init__.py"),
            dist(tmp_path, "onnxruntime-ep-openvino", "1.8.1", "onnxruntime_ep_openvino/a.py"),
            dist(tmp_path, "numpy", "2.4.6"),
        ],
        runtime(tmp_path, "onnxruntime"),
    )
    assert found.shadowing() is None
    assert found.builds == {"onnxruntime": "1.32.0"}
    assert found.versions() == {"onnxruntime": "1.32.0", "onnxruntime-ep-openvino": "1.8.1"}
    assert found.library_sha256 is not None


@pytest.mark.parametrize(
    ("name", "files"),
    [
        # A known build without its list of files, and an unknown one that has it.
        ("onnxruntime_gpu", ()),
        ("onnxruntime-novel", ("onnxruntime/__init__.py",)),
    ],
)
def test_two_builds_are_named_with_the_one_that_won(
    tmp_path: Path, name: str, files: tuple[str, ...]
) -> None:
    second = name.replace("_", "-")
    found = wheels(
        [
            dist(tmp_path, "onnxruntime", "1.32.0", "onnxruntime/__init__.py"),
            dist(tmp_path, name, "1.0.0", *files),
        ],
        runtime(tmp_path, second),
    )
    said = found.shadowing()
    assert said is not None
    assert "onnxruntime 1.32.0" in said
    assert f"{second} 1.0.0" in said
    assert f"{second} is imported" in said


def test_a_build_that_does_not_say_its_name_is_not_guessed(tmp_path: Path) -> None:
    both = [dist(tmp_path, "onnxruntime", "1"), dist(tmp_path, "onnxruntime-gpu", "1")]
    found = wheels(both, None)
    assert found.imported is None
    assert found.library_sha256 is None
    assert "not known which one won" in str(found.shadowing())


def test_an_old_plugin_package_that_holds_a_whole_runtime_counts(tmp_path: Path) -> None:
    both = [
        dist(tmp_path, "onnxruntime", "1.32.0", "onnxruntime/__init__.py"),
        dist(tmp_path, "onnxruntime-qnn", "1.20.0", "onnxruntime/__init__.py"),
    ]
    assert wheels(both, None).shadowing() is not None


def test_this_interpreter_imports_the_build_it_installed() -> None:
    found = installed_wheels()
    assert found.imported in found.builds
    assert found.shadowing() is None
