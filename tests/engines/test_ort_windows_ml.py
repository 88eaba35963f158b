"""Windows ML's catalogue, against a recording of its package."""

from __future__ import annotations

import importlib.util
import sys
import types
from enum import IntEnum
from pathlib import Path
from typing import Self

import pytest

from npumark.engines import ort_windows_ml
from npumark.engines.catalogue import provider
from npumark.engines.ort_windows_ml import install_all, install_offered, offered, ready
from npumark.errors import EngineError


class State(IntEnum):
    Ready = 0
    NotReady = 1
    NotPresent = 2


class Offer:
    def __init__(self, name: str, state: State, library: str = "", broken: bool = False) -> None:
        self.name, self.ready_state, self._library = name, state, library
        self.version, self.certification = "1.8.63.0", State.Ready
        self.package_family_name = f"Maker.{name}_8wekyb"
        self.broken, self.made_ready = broken, 0

    @property
    def library_path(self) -> str:
        return self._library if self.made_ready else ""

    def ensure_ready(self) -> None:
        if self.broken:
            raise OSError("0x80073CF9")
        self.made_ready += 1


class Offers(list[Offer]):
    """``opened`` are the catalogues that were opened to read it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[object] = []


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Offers:
    offers = Offers()
    opened = offers.opened

    class EpCatalog:
        def __init__(self) -> None:
            opened.append(self)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *args: object) -> None:
            return None

        def find_all_providers(self) -> list[Offer]:
            return offers

    module = types.ModuleType("windowsml")
    module.EpCatalog = EpCatalog  # type: ignore[attr-defined]
    module.__spec__ = importlib.util.spec_from_loader("windowsml", loader=None)
    monkeypatch.setitem(sys.modules, "windowsml", module)
    monkeypatch.setattr(ort_windows_ml, "_known", {})
    return offers


def test_without_the_package_nothing_is_offered() -> None:
    assert offered() == ()


def test_a_provider_that_windows_installed_is_used(catalogue: Offers, tmp_path: Path) -> None:
    library = tmp_path / "qnn.dll"
    library.touch()
    catalogue.append(Offer("QNNExecutionProvider", State.NotReady, str(library)))
    (plugin,) = offered()
    assert plugin.row is provider("ort-qnn")
    assert plugin.library == str(library)
    assert plugin.fault is None
    assert plugin.version == "1.8.63.0"
    assert plugin.details == {
        "source": "windows-ml",
        "package_family_name": "Maker.QNNExecutionProvider_8wekyb",
        "certification": "Ready",
        "ready_state": "NotReady",
    }


def test_what_windows_did_not_install_is_not_downloaded(catalogue: Offers) -> None:
    catalogue.append(Offer("VitisAIExecutionProvider", State.NotPresent))
    (plugin,) = offered()
    assert plugin.library is None
    assert "npumark engines install windowsml" in str(plugin.fault)
    assert catalogue[0].made_ready == 0
    assert install_all() == ("VitisAIExecutionProvider",)
    assert catalogue[0].made_ready == 1


def test_one_that_windows_cannot_install_does_not_keep_the_others(
    catalogue: Offers, capsys: pytest.CaptureFixture[str]
) -> None:
    catalogue.append(Offer("QNNExecutionProvider", State.NotPresent, broken=True))
    catalogue.append(Offer("VitisAIExecutionProvider", State.NotPresent))
    assert install_offered() == 1
    assert catalogue[1].made_ready == 1
    assert capsys.readouterr().out.splitlines() == [
        "asking for QNNExecutionProvider",
        "asking for VitisAIExecutionProvider",
        "not QNNExecutionProvider (0x80073CF9)",
    ]
    del catalogue[0]
    assert install_offered() == 0


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (Offer("QNNExecutionProvider", State.Ready, broken=True), "0x80073CF9"),
        (Offer("QNNExecutionProvider", State.Ready, "gone.dll"), "names no library"),
    ],
)
def test_a_broken_provider_is_said(catalogue: Offers, offer: Offer, said: str) -> None:
    catalogue.append(offer)
    (plugin,) = offered()
    assert plugin.library is None
    assert said in str(plugin.fault)


def test_a_provider_that_the_catalogue_does_not_know_is_taken(
    catalogue: Offers, tmp_path: Path
) -> None:
    library = tmp_path / "acme.dll"
    library.touch()
    catalogue.append(Offer("AcmeExecutionProvider", State.Ready, str(library)))
    (plugin,) = offered()
    assert plugin.row.id == "ort-acme"
    assert plugin.row.provider_name == "AcmeExecutionProvider"


def two(catalogue: Offers, folder: Path) -> tuple[Offer, Offer]:
    for name in ("QNN", "VitisAI"):
        library = folder / f"{name}.dll"
        library.touch()
        catalogue.append(Offer(f"{name}ExecutionProvider", State.NotReady, str(library)))
    return catalogue[0], catalogue[1]


def test_a_provider_that_nobody_asked_for_is_not_made_ready(
    catalogue: Offers, tmp_path: Path
) -> None:
    qnn, vitis = two(catalogue, tmp_path)
    (plugin,) = offered(lambda row: row.id == "ort-qnn")
    assert plugin.row.id == "ort-qnn"
    assert (qnn.made_ready, vitis.made_ready) == (1, 0)


def test_a_provider_is_made_ready_once_in_a_process(catalogue: Offers, tmp_path: Path) -> None:
    qnn, vitis = two(catalogue, tmp_path)
    first = ready("ort-qnn")
    assert first is not None
    assert first.library == str(tmp_path / "QNN.dll")
    assert ready("ort-qnn") is first
    assert len(catalogue.opened) == 1
    assert len(offered()) == 2
    assert (qnn.made_ready, vitis.made_ready) == (1, 1)
    assert ready("ort-migraphx") is None


@pytest.mark.parametrize(
    "fault", [OSError("0x80070005"), RuntimeError("EpCatalog has been closed"), ValueError()]
)
def test_a_catalogue_that_does_not_answer_is_one_fault(
    catalogue: Offers, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fail(self: object) -> list[Offer]:
        raise fault

    monkeypatch.setattr(sys.modules["windowsml"].EpCatalog, "find_all_providers", fail)
    with pytest.raises(
        EngineError, match=r"Windows ML does not answer .*run Windows Update"
    ) as why:
        offered()
    assert (str(fault) or type(fault).__name__) in why.value.message
    with pytest.raises(EngineError, match="does not answer"):
        ready("ort-qnn")


def test_a_provider_that_fails_in_its_own_way_costs_itself_alone(
    catalogue: Offers, tmp_path: Path
) -> None:
    qnn, _ = two(catalogue, tmp_path)
    qnn.ensure_ready = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    plugins = {p.row.id: p for p in offered()}
    assert "division by zero" in str(plugins["ort-qnn"].fault)
    assert plugins["ort-vitisai"].fault is None
