from __future__ import annotations

from typing import Any

import pytest

from npumark.errors import IntegrityError
from npumark.machine.processors import assign
from npumark.worker.protocol import EngineInfo


def _info(engine: str, *, runtime: str = "ort", available: bool = True, **told: Any) -> EngineInfo:
    return EngineInfo(
        id=engine,
        available=available,
        reason=None,
        runtime=runtime,
        runtime_title=runtime,
        version=None,
        processor=told,
    )


CARD = "NVIDIA RTX 6000 Ada Generation"


def test_two_engines_share_the_cpu() -> None:
    processors, owner = assign(
        [
            _info("ort-cpu", key="cpu", role="CPU", name="Intel(R) Xeon(R) Processor"),
            _info("openvino-cpu", runtime="openvino", key="cpu", role="CPU", name="Xeon"),
        ]
    )
    (cpu,) = processors
    assert (cpu.id, cpu.role, cpu.name, cpu.number) == ("cpu", "CPU", "Intel Xeon", 1)
    assert cpu.details == {"raw_name": "Intel(R) Xeon(R) Processor"}
    assert owner == {"ort-cpu": "cpu", "openvino-cpu": "cpu"}


def test_a_nameless_cpu_takes_the_machines_name() -> None:
    info = _info("ort-cpu", key="cpu", role="CPU", name="")
    assert assign([info], "AMD EPYC 9B14 96-Core Processor")[0][0].name == "AMD EPYC 9B14"
    assert assign([info])[0][0].name == "unnamed CPU"


def test_identical_cards_are_numbered_in_bus_order() -> None:
    buses = ["0000:c1:00.0", "0000:01:00.0", "0000:0a:00.0", "0001:00:00.0"]
    processors, owner = assign(
        [
            _info(f"ort-cuda-dgpu-{n}", key=bus, role="dGPU", name=CARD)
            for n, bus in enumerate(buses)
        ]
    )
    assert [p.id for p in processors] == ["dgpu-1", "dgpu-2", "dgpu-3", "dgpu-4"]
    assert [p.number for p in processors] == [1, 2, 3, 4]
    assert owner == {
        "ort-cuda-dgpu-1": "dgpu-1",
        "ort-cuda-dgpu-2": "dgpu-2",
        "ort-cuda-dgpu-0": "dgpu-3",
        "ort-cuda-dgpu-3": "dgpu-4",
    }
    # Hardware keys order the cards and go no further.
    assert all(bus not in p.model_dump_json() for bus in buses for p in processors)


def test_cards_of_two_models_are_counted_apart() -> None:
    processors, _ = assign(
        [
            _info("a", key="0000:01:00.0", role="dGPU", name=CARD),
            _info("b", key="0000:02:00.0", role="dGPU", name="NVIDIA RTX 4000"),
            _info("c", key="0000:03:00.0", role="dGPU", name=CARD),
        ]
    )
    assert [(p.id, p.number) for p in processors] == [("dgpu-1", 1), ("dgpu-2", 1), ("dgpu-3", 2)]


def test_one_card_seen_twice_is_one_processor() -> None:
    told = {"role": "dGPU", "name": CARD}
    processors, owner = assign(
        [
            _info("a", key="0000:01:00.0", **told),
            _info("b", key="0000:01:00.0", **told),
            _info("c", runtime="openvino", key="0000:01:00.0", **told),
            # Two keys of one card, joined by an engine that states both.
            _info("d", runtime="dml", key="GPU-1234", luid="77", **told),
            _info("e", runtime="trt", key="GPU-1234", bus="0000:01:00.0", **told),
        ]
    )
    assert len(processors) == 1
    assert set(owner.values()) == {"dgpu"}
    assert "identity" not in processors[0].details


def test_one_device_of_a_role_needs_no_key() -> None:
    processors, owner = assign(
        [
            _info("ort-qnn-npu", key=None, role="NPU", name=""),
            _info("openvino-npu", runtime="openvino", key="0000:00:0b.0", role="NPU", name="AI"),
        ]
    )
    assert [(p.id, p.name) for p in processors] == [("npu", "AI")]
    assert set(owner) == {"ort-qnn-npu", "openvino-npu"}
    assert "identity" not in processors[0].details


def test_a_missing_key_among_several_devices_is_said() -> None:
    processors, owner = assign(
        [
            _info("a", key="0000:01:00.0", role="dGPU", name=CARD),
            _info("b", key="", role="dGPU", name=CARD),
        ]
    )
    assert len(processors) == 2
    assert "identity" not in processors[0].details
    assert "b states no hardware key" in processors[1].details["identity"]
    assert owner["b"] == "dgpu-2"
    several, _ = assign(
        [_info(n, runtime=n, key=k, role="dGPU") for n, k in (("x", "1"), ("y", "2"), ("z", None))]
    )
    assert ["identity" in p.details for p in several] == [False, False, True]


def test_engines_that_call_one_device_by_two_roles_are_said() -> None:
    processors, _ = assign(
        [
            _info("a", key="0000:00:02.0", role="iGPU", name="Graphics"),
            _info("b", runtime="dml", key="0000:00:02.0", role="dGPU", name="Graphics"),
        ]
    )
    (only,) = processors
    assert only.role == "iGPU"
    assert only.details["identity"] == "b calls it dGPU, a iGPU"


def test_keys_that_are_no_bus_address_are_ordered_naturally() -> None:
    processors, owner = assign(
        [_info(f"e{n}", key=f"luid {n}", role="dGPU", name=CARD) for n in (10, 9, 2)]
    )
    assert [owner[f"e{n}"] for n in (2, 9, 10)] == [p.id for p in processors]


def test_order_does_not_depend_on_the_order_of_discovery() -> None:
    infos = [
        _info("ort-cpu", key="cpu", role="CPU", name="X"),
        _info("a", key="0000:02:00.0", role="dGPU", name=CARD),
        _info("b", key="0000:01:00.0", role="dGPU", name=CARD),
    ]
    assert assign(infos)[1] == assign(infos[::-1])[1]


def test_unavailable_engines_have_no_processor() -> None:
    assert assign([_info("ort-cuda-dgpu", available=False)]) == ([], {})


@pytest.mark.parametrize("role", [None, "", "GPU", "cpu"])
def test_an_unknown_role_names_the_engine(role: str | None) -> None:
    with pytest.raises(IntegrityError, match="engine odd reports the processor role"):
        assign([_info("odd", key="k", role=role, name="X")])


def test_trade_marks_leave_the_name_and_stay_in_the_raw_one() -> None:
    (gpu,), _ = assign([_info("g", key="1", role="iGPU", name="Intel(R) Arc(TM) Graphics")])
    assert gpu.name == "Intel Arc Graphics"
    assert gpu.details["raw_name"] == "Intel(R) Arc(TM) Graphics"
