from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from npumark.engines import ort_plugins
from npumark.engines.catalogue import provider
from npumark.engines.ort_plugins import Plugin, installed_plugins, register
from tests.engines.fake_ort import FakeOrt

ACME = """
def get_library_path():
    import pathlib
    return str(pathlib.Path(__file__).parent / "libacme.so")


def get_ep_name():
    return "AcmeExecutionProvider"
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a package of one module, as pip would leave it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def package(name: str, source: str, *, library: str | None = "libacme.so") -> None:
        module = name.replace("-", "_")
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text(source)
        if library:
            (tmp_path / module / library).touch()
        told = tmp_path / f"{module}-2.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\nRequires-Dist: onnxruntime>=1.24\n"
        )
        (told / "RECORD").write_text(f"{module}/__init__.py,,\n")
        made.append(module)

    yield package
    for module in made:
        sys.modules.pop(module, None)


def found(module: str) -> Plugin | None:
    return next((p for p in installed_plugins() if p.row.module == module), None)


def found_by(package: str) -> Plugin:
    return next(p for p in installed_plugins() if p.package == package)


def test_any_installed_plugin_is_found(install: Install) -> None:
    install("acme-npu", ACME)
    plugin = found("acme_npu")
    assert plugin is not None
    assert plugin.fault is None
    assert plugin.row.id == "ort-acme"
    assert plugin.row.provider_name == "AcmeExecutionProvider"
    assert (plugin.package, plugin.version) == ("acme-npu", "2.0")
    assert Path(str(plugin.library)).name == "libacme.so"
    assert not [p for p in installed_plugins(others=False) if p.row.id == "ort-acme"]


def test_a_package_that_only_uses_the_runtime_is_not_imported(install: Install) -> None:
    install("acme-ocr", "raise RuntimeError('imported')\n")
    assert found("acme_ocr") is None


@pytest.mark.parametrize(
    ("source", "library", "said"),
    [
        (ACME, None, "libacme.so is not where the package says it is"),
        ("raise OSError('libacme_rt.so.3 missing')\n" + ACME, "libacme.so", "libacme_rt.so.3"),
        (ACME.replace("get_ep_name", "other"), "libacme.so", "tells no provider's name"),
    ],
)
def test_a_broken_plugin_is_said(
    install: Install, source: str, library: str | None, said: str
) -> None:
    install("acme-npu", source, library=library)
    plugin = found("acme_npu")
    assert plugin is not None
    assert plugin.library is None
    assert said in str(plugin.fault)
    assert "reinstall it" in str(plugin.fault)


def test_a_known_plugin_has_its_row(install: Install) -> None:
    install("onnxruntime-ggml", ACME.replace("get_library_path", "library_path"))
    plugin = found("onnxruntime_ggml")
    assert plugin is not None
    assert plugin.row is provider("ort-ggml")


def test_another_package_may_bring_a_known_provider(install: Install) -> None:
    install("acme-mlx", ACME.replace("AcmeExecutionProvider", "MLXExecutionProvider"))
    plugin = found_by("acme-mlx")
    assert plugin.row is provider("ort-mlx")
    assert plugin.package == "acme-mlx"


def test_a_library_is_registered_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_plugins, "_registered", {})
    install("acme-npu", ACME)
    plugin, runtime = found("acme_npu"), FakeOrt()
    assert plugin is not None
    assert register(runtime, plugin) is None
    assert register(runtime, plugin) is None
    assert list(runtime.registered) == ["AcmeExecutionProvider"]
    # Another part of this process may have done it.
    monkeypatch.setattr(ort_plugins, "_registered", {})
    assert register(runtime, plugin) is None


def test_a_library_that_does_not_load_is_said(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_plugins, "_registered", {})
    install("acme-npu", ACME)
    plugin, runtime = found("acme_npu"), FakeOrt()
    assert plugin is not None
    runtime.unloadable["AcmeExecutionProvider"] = "undefined symbol: acme"
    assert "undefined symbol: acme" in str(register(runtime, plugin))


def test_a_runtime_that_takes_no_plugins_is_said(install: Install) -> None:
    install("acme-npu", ACME)
    plugin = found("acme_npu")
    assert plugin is not None

    class Older:
        __version__ = "1.20.0"

    assert "1.20.0 takes no plug-ins" in str(register(Older(), plugin))


def test_a_package_of_damaged_metadata_hides_no_other(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaged:
        @property
        def metadata(self) -> dict[str, str]:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    install("onnxruntime-ep-acme", ACME)
    real = ort_plugins.distributions
    monkeypatch.setattr(ort_plugins, "distributions", lambda: [Damaged(), *real()])
    assert found("onnxruntime_ep_acme") is not None
