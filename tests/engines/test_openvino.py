from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines import openvino as engine
from npumark.engines import openvino_probe
from npumark.engines.base import CacheMemo, LoadRequest
from npumark.engines.openvino import OpenVino, precision_hint, requested_device
from npumark.engines.openvino_probe import drivers_of
from npumark.errors import EngineError, Unsupported, WrongDevice
from npumark.worker.protocol import EngineInfo
from tests.int8_sums import needs_whole_sums

openvino = pytest.importorskip("openvino")


@pytest.fixture(scope="module")
def cpu() -> EngineInfo:
    return next(info for info in OpenVino().probe({}) if info.id == "openvino-cpu")


def observe(engine: OpenVino, request: LoadRequest) -> Any:
    session = engine.load(request)
    session.step()()
    return session.observed()


def test_a_device_that_is_not_here_is_listed_with_the_reason() -> None:
    found = {info.id: info for info in OpenVino().probe({})}
    here = {d.split(".")[0] for d in openvino.Core().available_devices}
    for kind in {"GPU", "NPU"} - here:
        info = found[f"openvino-{kind.lower()}"]
        assert not info.available
        assert info.reason is not None
        assert f"finds no {kind} here" in info.reason


class TwoCards:
    """A core with a CPU and two GPUs, whose NPU's plug-in must not be loaded."""

    def get_property(self, kind: str, name: str) -> Any:
        assert kind != "NPU"
        numbers = {"CPU": [""], "GPU": ["0", "1"]}
        return numbers[kind] if name == "AVAILABLE_DEVICES" else None

    @property
    def available_devices(self) -> list[str]:
        raise AssertionError("this loads every plug-in")


def test_a_kind_of_device_that_is_not_asked_for_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openvino, "Core", TwoCards)
    monkeypatch.setattr(openvino_probe, "_try_one_node", lambda *_: None)
    (cpu,) = OpenVino().probe({"only": ["CPU"]})
    assert (cpu.id, cpu.options["device"]) == ("openvino-cpu", "CPU")
    cards = OpenVino().probe({"only": ["GPU"]})
    assert [(c.id, c.options["device"]) for c in cards] == [
        ("openvino-gpu-1", "GPU.0"),
        ("openvino-gpu-2", "GPU.1"),
    ]


def test_each_kind_of_device_answers_alone_as_it_does_with_the_others() -> None:
    together = {info.id: info for info in OpenVino().probe({})}
    alone = [i for kind in ("CPU", "GPU", "NPU") for i in OpenVino().probe({"only": [kind]})]
    assert {i.id: i.available for i in alone} == {i: e.available for i, e in together.items()}
    assert alone[0] == together["openvino-cpu"]


def test_the_probe_ran_a_model_on_the_cpu(cpu: EngineInfo) -> None:
    assert cpu.available
    assert cpu.processor["key"] == "cpu"
    assert cpu.processor["name"]
    assert {"fp32", "fp16", "int8-u8s8"} <= set(cpu.variants)
    assert cpu.options["device"] == "CPU"


@pytest.mark.parametrize(
    ("variant", "ran", "least_db"),
    [("fp32", {"FP32"}, 60), ("fp16", {"FP16", "FP32"}, 45), ("int8-u8s8", {"INT8"}, 25)],
)
def test_what_was_asked_for_is_what_ran(
    chain: Any, variant: str, ran: set[str], least_db: float
) -> None:
    needs_whole_sums(variant)
    engine = OpenVino()
    request = chain.request("openvino-cpu", variant)
    for answer, reference in zip(
        chain.answers(engine, request), chain.references().astype(np.float64), strict=True
    ):
        noise = np.sum((answer.astype(np.float64) - reference) ** 2)
        assert 10 * np.log10(np.sum(reference**2) / noise) > least_db
    observed = observe(engine, request)
    assert observed.precision in ran
    assert observed.device == "CPU"
    assert observed.threads == 1
    assert observed.details["properties"]["PERFORMANCE_HINT"] == "LATENCY"
    placement = engine.placement(request, list(chain.feeds(request)[0]), 3)
    assert (placement.verdict, placement.share) == ("proved", 1.0)


def test_bfloat16_is_computed_only_where_asked_for(chain: Any, cpu: EngineInfo) -> None:
    if "bf16" not in cpu.variants:
        with pytest.raises(Unsupported, match="bfloat16"):
            OpenVino().load(chain.request("openvino-cpu", "fp32", "bf16", "BF16"))
        return
    assert cpu.derived_from == {"bf16": "fp32"}
    observed = observe(OpenVino(), chain.request("openvino-cpu", "fp32", "bf16", "BF16"))
    assert observed.precision == "BF16"
    assert observed.details["inference_precision_hint"] == "bf16"


def test_weight_only_does_not_quantise_activations(
    weight_only: Callable[[str], LoadRequest],
) -> None:
    observed = observe(OpenVino(), weight_only("openvino-cpu"))
    assert observed.details["properties"]["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == 0
    # Whether a layer this small keeps its weights packed is the runtime's choice.
    assert observed.precision in {"W8", "FP32"}


def test_answers_are_the_same_bits_every_time(chain: Any) -> None:
    request = replace(chain.request("openvino-cpu", "fp32"), threads=2)
    first = chain.answers(OpenVino(), request)
    again = chain.answers(OpenVino(), request)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("device", ["AUTO", "AUTO:CPU", "MULTI:CPU", "HETERO:GPU,CPU", "BATCH:CPU"])
def test_a_device_that_chooses_is_refused(chain: Any, device: str) -> None:
    request = replace(chain.request("openvino-cpu", "fp32"), options={"device": device})
    with pytest.raises(Unsupported, match="chooses among devices"):
        OpenVino().load(request)


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(Unsupported, match="no device 'TPU'"):
        requested_device({"device": "TPU"})


def test_threads_are_explicit(chain: Any) -> None:
    with pytest.raises(EngineError, match="number of threads"):
        OpenVino().load(replace(chain.request("openvino-cpu", "fp32"), threads=None))


@pytest.mark.parametrize(
    ("encoding", "capabilities", "hint"),
    [
        ("fp32", ["FP32", "BF16"], "f32"),
        ("int8-u8s8", ["FP32", "BF16", "INT8"], "f32"),
        ("w8", ["FP32", "FP16"], "f32"),
        ("fp16", ["FP32", "FP16"], "f16"),
        ("fp16", ["FP32", "BF16"], "f32"),
        ("int8-u8s8", ["FP16", "INT8"], "f16"),
        ("bf16", ["FP32", "BF16"], "bf16"),
    ],
)
def test_the_precision_asked_for(encoding: str, capabilities: list[str], hint: str) -> None:
    assert precision_hint(encoding, capabilities) == hint


def test_a_cached_model_that_was_changed_is_compiled_again(chain: Any, tmp_path: Path) -> None:
    request = replace(
        chain.request("openvino-cpu", "int8-u8s8"),
        options={"device": "CPU", "cache": True},
        cache_dir=tmp_path / "entry",
    )
    cold = OpenVino().load(request)
    warm = OpenVino().load(request)
    assert (cold.loaded_from_cache(), warm.loaded_from_cache()) == (False, True)
    good = chain.answers(OpenVino(), request)
    blobs = [p for p in (tmp_path / "entry").glob("models-*/*") if p.is_file()]
    assert blobs
    for blob in blobs:
        blob.write_bytes(b"\x17" * blob.stat().st_size)
    session = OpenVino().load(request)
    assert session.loaded_from_cache() is False
    assert all(
        np.array_equal(a, b) for a, b in zip(good, chain.answers(OpenVino(), request), strict=True)
    )


class Drivers:
    """A core whose devices tell the versions of their drivers, but for one that does not."""

    def get_property(self, device: str, name: str) -> Any:
        if device == "GPU.1":
            raise RuntimeError("Unsupported property")
        known = {"GPU_DRIVER_VERSION": "32.0.1", "NPU_DRIVER_VERSION": 1002}
        return {**known, "NPU_COMPILER_VERSION": 7}[name]


@pytest.mark.parametrize(
    ("device", "versions"),
    [
        ("CPU", {}),
        ("GPU.0", {"gpu driver": "32.0.1"}),
        ("GPU.1", {}),
        ("NPU", {"npu driver": "1002", "npu compiler": "7"}),
    ],
)
def test_the_versions_of_drivers_are_told(device: str, versions: dict[str, str]) -> None:
    assert drivers_of(Drivers(), device) == versions


def test_a_cached_model_that_lies_elsewhere_is_compiled_again(
    chain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(
        chain.request("openvino-cpu", "fp32"),
        options={"device": "CPU", "cache": True},
        cache_dir=tmp_path / "entry",
    )
    OpenVino().load(request).close()
    ask, told = engine._executed_on, [["NPU"]]

    def elsewhere(model: Any, device: str) -> list[str]:
        if told:
            raise WrongDevice(f"OpenVINO executes on {told.pop()[0]}, not on {device}")
        return ask(model, device)

    monkeypatch.setattr(engine, "_executed_on", elsewhere)
    later = replace(request, cache_memo=CacheMemo())
    session = OpenVino().load(later)
    assert session.loaded_from_cache() is False
    assert later.cache_memo.use is not None
    assert later.cache_memo.use.state == "rebuilt"
    assert "executes on NPU" in (later.cache_memo.use.why or "")
    # What a compiler made for another device is what is said of the graph.
    told += [["NPU"]] * 9
    with pytest.raises(WrongDevice, match="executes on NPU"):
        OpenVino().load(replace(request, cache_dir=tmp_path / "another", cache_memo=CacheMemo()))
