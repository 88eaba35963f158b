from __future__ import annotations

from typing import Any

import pytest

from npumark.errors import IntegrityError
from npumark.machine.card import Card
from npumark.machine.processors import assign, settle
from npumark.worker.protocol import EngineInfo


def _info(
    engine: str,
    *,
    runtime: str = "ort",
    available: bool = True,
    provider: str | None = None,
    emulated: bool = False,
    **told: Any,
) -> EngineInfo:
    return EngineInfo(
        id=engine,
        available=available,
        reason=None,
        runtime=runtime,
        runtime_title=runtime,
        version=None,
        processor=told,
        options={"provider": provider} if provider else {},
        emulated=emulated,
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
    assert cpu.details == {
        "raw_name": "Intel(R) Xeon(R) Processor",
        "runtimes": ["openvino", "ort"],
    }
    assert owner == {"ort-cpu": "cpu", "openvino-cpu": "cpu"}


@pytest.mark.parametrize("sure", [True, False])
def test_a_name_has_no_control_characters_whoever_gives_it(sure: bool) -> None:
    evil = "Fast\x1b]0;title\x07 NPU\x9b\u202e"
    card = Card("NPU", {"bus": frozenset({"0000:05:00.0"})}, name=evil, name_sure=sure)
    info = _info("x-npu", role="NPU", bus="0000:05:00.0", name=f"\n{evil}")
    for (npu,) in (assign([info], [card])[0], assign([info])[0], assign([], [card])[0]):
        assert (npu.name, npu.details["raw_name"]) == ("Fast NPU", "Fast NPU")


def test_a_nameless_cpu_takes_the_machines_name() -> None:
    info = _info("ort-cpu", key="cpu", role="CPU", name="")
    card = Card("CPU", {"key": frozenset({"cpu"})}, name="AMD EPYC 9B14 96-Core Processor")
    assert assign([info], [card])[0][0].name == "AMD EPYC 9B14"
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


NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086


def _card(role: Any, bus: str | None = None, **fields: Any) -> Card:
    return Card(role, {"bus": frozenset({bus})} if bus else {}, **fields)


ADA = {"vendor_id": NVIDIA, "device_id": 0x26B1, "name": CARD, "name_sure": True}
TWINS = (_card("dGPU", "0000:01:00.0", **ADA), _card("dGPU", "0000:41:00.0", **ADA))


def test_two_identical_cards_are_two_whatever_order_an_engine_lists_them_in() -> None:
    engines = [
        _info("ort-cuda-dgpu-1", role="dGPU", bus="00000000:41:00.0", name=CARD),
        _info("ort-cuda-dgpu-2", role="dGPU", bus="00000000:01:00.0", name=CARD),
    ]
    processors, owner = assign(engines, TWINS)
    assert [(p.id, p.number) for p in processors] == [("dgpu-1", 1), ("dgpu-2", 2)]
    assert owner == {"ort-cuda-dgpu-1": "dgpu-2", "ort-cuda-dgpu-2": "dgpu-1"}
    assert not any("identity" in p.details for p in processors)


def test_a_card_listed_twice_under_one_bus_address_is_one() -> None:
    luids = frozenset({"77", "78"})
    card = Card("dGPU", {"bus": frozenset({"0000:01:00.0"}), "luid": luids}, **ADA)
    engines = [
        _info("ort-dml-gpu-1", role="dGPU", luid=77),
        _info("ort-dml-gpu-2", role="dGPU", luid="0x4e"),
    ]
    processors, owner = assign(engines, [card])
    assert [p.id for p in processors] == ["dgpu"]
    assert set(owner) == {"ort-dml-gpu-1", "ort-dml-gpu-2"}


def test_one_card_through_cuda_openvino_and_webgpu_is_one_processor() -> None:
    card = _card("dGPU", "0000:03:00.0", **ADA)
    engines = [
        _info("ort-cuda-dgpu", provider="ort-cuda", role="dGPU", bus="0000:03:00.0", uuid="GPU-x"),
        _info("ort-trt-dgpu", provider="ort-tensorrt", role="dGPU", uuid="GPU-x"),
        _info("ort-webgpu-gpu", provider="ort-webgpu", role="iGPU", vendor_id="0x10de"),
        _info("litert-gpu", runtime="litert", role="dGPU"),
    ]
    processors, owner = assign(engines, [card])
    assert [p.id for p in processors] == ["dgpu"]
    assert set(owner.values()) == {"dgpu"}
    # One of them files it under the other role, which is said: the system decides.
    assert processors[0].details["identity"] == "ort-webgpu-gpu calls it iGPU, ort-cuda-dgpu dGPU"


def test_two_identical_cards_and_an_engine_that_states_only_the_model_is_said() -> None:
    engines = [
        _info("ort-webgpu-gpu", role="dGPU", vendor_id=NVIDIA, device_id=0x26B1),
        _info("ort-cuda-dgpu-1", provider="ort-cuda", role="dGPU", bus="01:00.0"),
    ]
    processors, owner = assign(engines, TWINS)
    assert owner == {"ort-webgpu-gpu": "dgpu-3", "ort-cuda-dgpu-1": "dgpu-1"}
    said = [p.details.get("identity", "") for p in processors]
    assert said[:2] == ["", ""]
    assert "ort-webgpu-gpu states no more than its model" in said[2]


def test_a_model_that_only_one_card_is_of_is_that_card() -> None:
    hybrid = (
        _card("iGPU", "0000:00:02.0", vendor_id=INTEL, device_id=0x7D55),
        _card("dGPU", "0000:01:00.0", vendor_id=NVIDIA, device_id=0x2820),
    )
    engines = [
        _info("w-gpu-1", provider="w", role="dGPU", vendor_id="10de", device_id="2820"),
        _info("w-gpu-2", provider="w", role="dGPU", vendor_id="8086", device_id="7d55"),
        _info("ov-gpu", runtime="openvino", role="iGPU", bus="0000:00:02.0"),
        _info("dml-gpu", provider="dml", role="dGPU"),
    ]
    _, owner = assign(engines, hybrid)
    assert (owner["w-gpu-1"], owner["w-gpu-2"], owner["ov-gpu"]) == ("dgpu", "igpu", "igpu")
    # Without any id, the role is all there is to go by.
    assert owner["dml-gpu"] == "dgpu"


def test_a_key_that_contradicts_the_only_card_is_another_device() -> None:
    engines = [_info("a", role="dGPU", bus="0000:09:00.0"), _info("b", role="dGPU", uuid="GPU-b")]
    processors, owner = assign(engines, [_card("dGPU", "0000:01:00.0", **ADA)])
    assert owner["a"] != owner["b"]
    assert len(processors) == 2


def test_devices_that_no_engine_reaches_are_processors_too() -> None:
    cards = [
        Card("CPU", {"key": frozenset({"cpu"})}, name="AMD Ryzen AI 9 HX 370", name_sure=True),
        _card("NPU", "0000:c5:00.1", vendor_id=0x1022, device_id=0x17F0, driver="amdxdna 0.5"),
    ]
    processors, owner = assign([_info("ort-cpu", key="cpu", role="CPU")], cards)
    assert [p.id for p in processors] == ["cpu", "npu"]
    assert owner == {"ort-cpu": "cpu"}
    assert processors[1].name == "AMD NPU"
    assert processors[1].details == {
        "raw_name": None,
        "driver": "amdxdna 0.5",
        "maker": "AMD",
        "model_id": "1022:17f0",
    }


def test_an_emulated_npu_is_never_the_real_one() -> None:
    real = _card("NPU", "0000:00:0b.0", vendor_id=INTEL, device_id=0x7D1D, name="Intel NPU")
    engines = [
        _info("ort-qnn-npu", emulated=True, role="NPU", name="HTP emulator"),
        _info("openvino-npu", runtime="openvino", role="NPU", bus="0000:00:0b.0"),
    ]
    processors, owner = assign(engines, [real])
    assert owner == {"ort-qnn-npu": "npu-emulated", "openvino-npu": "npu"}
    assert [p.details.get("emulated") for p in processors] == [None, True]
    assert [p.number for p in processors] == [1, 1]


def test_an_apple_chip_is_three_processors_however_its_engines_key_them() -> None:
    chip = [
        Card("CPU", {"key": frozenset({"cpu"})}, name="Apple M4", name_sure=True),
        Card("iGPU", {}, vendor_id=0x106B, name="Apple M4 GPU", name_sure=True),
        Card("NPU", {}, vendor_id=0x106B, name="Apple M4 Neural Engine", name_sure=True),
    ]
    engines = [
        _info("coreml-ane", runtime="coreml", role="NPU", key="ane", name="Neural Engine"),
        _info("coreml-gpu", runtime="coreml", role="iGPU", key="gpu"),
        _info("coreml-cpu", runtime="coreml", role="CPU", key="cpu"),
        _info("mlx-gpu", runtime="mlx", role="iGPU", key="metal-0", name="Apple M4"),
        _info("ort-coreml-ane", provider="ort-coreml", role="NPU"),
    ]
    processors, owner = assign(engines, chip)
    assert [p.name for p in processors] == ["Apple M4", "Apple M4 GPU", "Apple M4 Neural Engine"]
    assert owner["mlx-gpu"] == owner["coreml-gpu"] == "igpu"
    assert owner["coreml-ane"] == owner["ort-coreml-ane"] == "npu"


def test_a_guessed_role_yields_to_the_systems() -> None:
    card = _card("dGPU", "0000:03:00.0", vendor_id=INTEL, device_id=0x56A0)
    guess = {"vendor_id": "0x8086", "device_id": "0x56a0", "role_from": "nothing"}
    engine = _info("ort-webgpu-gpu", provider="w", role="iGPU", details=guess)
    processors, owner = assign([engine], [card])
    assert [(p.id, p.role) for p in processors] == [("dgpu", "dGPU")]
    assert owner == {"ort-webgpu-gpu": "dgpu"}
    assert "identity" not in processors[0].details
    # Without the system's word the guess is all there is.
    assert assign([engine])[0][0].role == "iGPU"
    knows = _info("openvino-gpu", runtime="openvino", role="dGPU", bus="0000:03:00.0")
    told = _info("ort-webgpu-gpu", provider="w", role="iGPU", bus="0000:03:00.0", details=guess)
    assert [p.role for p in assign([told, knows])[0]] == ["dGPU"]


def test_an_engine_that_cannot_tell_its_device_is_joined_to_none() -> None:
    hybrid = (_card("iGPU", "0000:00:02.0"), _card("dGPU", "0000:01:00.0"))
    doubt = {"identity": "LiteRT does not say which of these it uses: a, b"}
    processors, owner = assign([_info("litert-gpu", role="dGPU", details=doubt)], hybrid)
    assert owner == {"litert-gpu": "dgpu-2"}
    assert processors[2].details["identity"] == doubt["identity"]
    assert "identity" not in processors[1].details


def test_a_name_that_several_products_share_yields_to_an_engines() -> None:
    listed = "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M"
    card = _card("dGPU", "0000:03:00.0", vendor_id=AMD, device_id=0x744C, name=listed)
    engine = _info("ort-migraphx-dgpu", role="dGPU", bus="03:00.0", name="AMD Radeon RX 7900 XTX")
    assert assign([engine], [card])[0][0].name == "AMD Radeon RX 7900 XTX"
    assert assign([], [card])[0][0].name == listed


def test_no_hardware_key_reaches_a_processor() -> None:
    bus, uuid = "0000:01:00.0", "GPU-3c5f2c1e-aaaa-bbbb-cccc-0123456789ab"
    details = {"uuid": uuid, "bus": bus, "memory_bytes": 1}
    engine = _info("a", role="dGPU", uuid=uuid, bus=bus, luid="4242", details=details)
    processors, _ = assign([engine], [_card("dGPU", bus, **ADA)])
    text = processors[0].model_dump_json()
    assert not any(key in text for key in (bus, uuid, uuid[4:], "4242"))
    assert processors[0].details["memory_bytes"] == 1


def test_what_is_the_engines_own_is_no_fact_of_a_processor() -> None:
    details = {"provider_version": "0.2.0", "vendor_id": "0x8086", "device_id": "0x0000"}
    (cpu,), _ = assign([_info("ort-ggml-cpu", key="cpu", role="CPU", details=details)])
    assert cpu.details == {"maker": "Intel", "runtimes": ["ort"], "raw_name": None}


def test_where_devices_sit_is_told_apart_from_what_a_record_holds() -> None:
    buses = ("0000:c1:00.0", "0000:21:00.0")
    engines = [_info(f"g-dgpu-{i}", key=bus, role="dGPU", name="G") for i, bus in enumerate(buses)]
    settled = settle([*engines, _info("c-cpu", key="cpu", role="CPU", name="C")])
    assert settled.bus == {"dgpu-1": "0000:21:00.0", "dgpu-2": "0000:c1:00.0"}
    assert settled.owner["g-dgpu-0"] == "dgpu-2"
    assert not any(bus in p.model_dump_json() for p in settled.processors for bus in buses)
