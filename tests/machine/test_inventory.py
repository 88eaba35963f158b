"""What each system lists, from fake /sys trees and recorded answers."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from typing import Any

import pytest

from npumark.machine import dxcore, nvidia
from npumark.machine.apple import BRAND, DISPLAYS, SYSTEM
from npumark.machine.card import Card
from npumark.machine.host import Host, Reading
from npumark.machine.inventory import inventory
from npumark.machine.pci import product, read_ids
from npumark.machine.processors import assign
from tests.machine.conftest import Fake

PCI = "/sys/bus/pci/devices"
IDS = """# a comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]
\t150e  Strix [Radeon 880M / 890M]
1022  Advanced Micro Devices, Inc. [AMD]
\t17f0  Strix/Krackan/Strix Halo Neural Processing Unit
10de  NVIDIA Corporation
\t26b1  AD102GL [RTX 6000 Ada Generation]
\t\t1028 16a1  a subsystem
8086  Intel Corporation
\t7d1d  Meteor Lake NPU
\t7d55  Meteor Lake-P [Intel Arc Graphics]
C 03  Display controller
\t00  VGA compatible controller
"""


def pci(fake: Fake, bus: str, ids: str, code: str, driver: str | None = None) -> None:
    vendor, device = ids.split(":")
    path = f"{PCI}/{bus}"
    fake.tree(
        {
            f"{path}/class": f"0x{code}",
            f"{path}/vendor": f"0x{vendor}",
            f"{path}/device": f"0x{device}",
        }
    )
    if driver is not None:
        link(fake, f"{path}/driver", f"/sys/bus/pci/drivers/{driver}")


def link(fake: Fake, path: str, target: str) -> None:
    place = fake.root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(fake.root / target.lstrip("/"))


def shown(host: Host) -> list[tuple[str, str]]:
    return [(p.role, p.name) for p in assign([], inventory(host).cards)[0]]


def by_bus(cards: tuple[Card, ...]) -> dict[str, Card]:
    return {bus: c for c in cards for bus in c.keys.get("bus", ())}


def answering(host: Host, answers: dict[tuple[str, ...], str]) -> Host:
    def output(argv: tuple[str, ...]) -> Reading:
        text = answers.get(argv)
        return Reading(text, None if text is not None else f"{argv[0]} ended with status 1")

    return replace(host, output=output)


def test_a_machine_without_cards_has_its_cpu(fake: Fake) -> None:
    fake.write("/proc/cpuinfo", "model name\t: AMD EPYC 9B14 96-Core Processor")
    assert shown(fake.host) == [("CPU", "AMD EPYC 9B14")]


def test_an_intel_laptop_with_a_graphics_card(fake: Fake) -> None:
    fake.write("/usr/share/misc/pci.ids", IDS)
    pci(fake, "0000:00:02.0", "8086:7d55", "030000", "xe")
    pci(fake, "0000:00:0b.0", "8086:7d1d", "120000", "intel_vpu")
    pci(fake, "0000:01:00.0", "10de:26b1", "030200", "nvidia")
    pci(fake, "0000:00:1f.3", "8086:7e28", "040300", "snd_hda_intel")
    fake.write("/sys/module/nvidia/version", "570.86.10")
    assert shown(fake.host) == [
        ("CPU", "unnamed CPU"),
        ("iGPU", "Intel Arc Graphics"),
        ("dGPU", "NVIDIA RTX 6000 Ada Generation"),
        ("NPU", "Intel Meteor Lake NPU"),
    ]
    cards = by_bus(inventory(fake.host).cards)
    assert cards["0000:00:0b.0"].driver == "intel_vpu of Linux 6.1.0-test"
    assert cards["0000:01:00.0"].driver == "nvidia 570.86.10"


def test_a_ryzen_ai_laptop(fake: Fake) -> None:
    fake.write("/usr/share/hwdata/pci.ids", IDS)
    pci(fake, "0000:03:00.0", "1002:744c", "030000", "amdgpu")
    pci(fake, "0000:03:00.1", "1002:ab30", "040300")
    pci(fake, "0000:c4:00.0", "1002:150e", "030000", "amdgpu")
    pci(fake, "0000:c4:00.2", "1022:17e0", "108000", "ccp")
    pci(fake, "0000:c5:00.1", "1022:17f0", "118000", "amdxdna")
    fake.write(f"{PCI}/0000:c5:00.1/vbnv", "NPU Strix")
    fake.write(f"{PCI}/0000:c5:00.1/fw_version", "1.5.5.391")
    fake.write(f"{PCI}/0000:03:00.0/vbios_version", "113-D7020100-102")
    assert [role for role, _ in shown(fake.host)] == ["CPU", "iGPU", "dGPU", "NPU"]
    npu = by_bus(inventory(fake.host).cards)["0000:c5:00.1"]
    assert (npu.name, npu.name_sure, npu.firmware) == ("NPU Strix", True, "1.5.5.391")
    card = by_bus(inventory(fake.host).cards)["0000:03:00.0"]
    assert (card.role, card.firmware, card.name_sure) == ("dGPU", "VBIOS 113-D7020100-102", False)


def test_a_ryzen_ai_npu_without_its_driver_is_seen_all_the_same(fake: Fake) -> None:
    fake.write("/usr/share/misc/pci.ids", IDS)
    pci(fake, "0000:c5:00.1", "1022:17f0", "118000")
    (npu,) = [c for c in inventory(fake.host).cards if c.role == "NPU"]
    assert (npu.driver, npu.name) == (
        None,
        "AMD Strix/Krackan/Strix Halo Neural Processing Unit",
    )


@pytest.mark.parametrize(
    "ids", ["1a03:2000", "102b:0522", "1234:1111", "1af4:1050", "15ad:0405", "1414:5353"]
)
def test_adapters_that_only_show_a_picture_are_no_processors(fake: Fake, ids: str) -> None:
    pci(fake, "0000:04:00.0", ids, "030000")
    assert shown(fake.host) == [("CPU", "unnamed CPU")]


def test_a_qualcomm_chip_lists_its_gpu_and_npu(fake: Fake) -> None:
    fake.write("/sys/class/misc/fastrpc-cdsp/uevent", "MAJOR=10")
    fake.write("/proc/device-tree/model", "Lenovo ThinkPad X13s")
    fake.write("/sys/devices/gpu/uevent", "DRIVER=msm_dpu\nOF_COMPATIBLE_0=qcom,adreno-690.0")
    link(fake, "/sys/devices/gpu/driver", "/sys/bus/platform/drivers/msm_dpu")
    link(fake, "/sys/class/drm/card0/device", "/sys/devices/gpu")
    fake.write("/sys/class/drm/card0-eDP-1/status", "connected")
    assert shown(fake.host) == [
        ("CPU", "unnamed CPU"),
        ("iGPU", "qcom adreno-690.0"),
        ("NPU", "Qualcomm Hexagon NPU"),
    ]


def test_an_npu_on_the_chip_is_listed_once(fake: Fake) -> None:
    for n in (0, 1):
        link(fake, f"/sys/class/accel/accel{n}/device", f"/sys/devices/npu{n}")
        link(fake, f"/sys/devices/npu{n}/driver", "/sys/bus/platform/drivers/rocket")
        link(fake, f"/sys/devices/npu{n}/subsystem", "/sys/bus/platform")
    assert [role for role, _ in shown(fake.host)] == ["CPU", "NPU"]


def test_odd_entries_under_sys_are_passed_over(fake: Fake) -> None:
    pci(fake, "0000:01:00.0", "10de:26b1", "not a number")
    pci(fake, "strange", "10de:26b1", "030000")
    fake.write(f"{PCI}/0000:02:00.0/class", "0x030000")
    assert shown(fake.host) == [("CPU", "unnamed CPU")]


def test_names_of_pci_ids() -> None:
    names = read_ids(IDS)
    assert len(names) == 6
    assert product(names[0x10DE, 0x26B1], "NVIDIA") == "NVIDIA RTX 6000 Ada Generation"
    assert product(names[0x8086, 0x7D55], "Intel") == "Intel Arc Graphics"
    assert product(None, "Intel") is None


NVML = {
    "driver": "570.86.10",
    "cuda": 12080,
    "cards": [
        {"name": "NVIDIA RTX 6000 Ada Generation", "uuid": f"GPU-0000000{n}-1-2-3-4",
         "bus": f"0000:{bus}:00.0", "device_id": 0x26B1, "vbios": "95.02.5D.00.01"}
        for n, bus in ((1, "41"), (2, "01"))
    ],
}  # fmt: skip


def test_nvidias_library_and_an_engine_of_another_order_agree_by_uuid(fake: Fake) -> None:
    fake.write("/proc/driver/nvidia/version", "NVRM version")
    for bus in ("01", "41"):
        pci(fake, f"0000:{bus}:00.0", "10de:26b1", "030200", "nvidia")
    cards = inventory(answering(fake.host, {nvidia.COMMAND: json.dumps(NVML)})).cards
    assert [c.role for c in cards] == ["CPU", "dGPU", "dGPU"]
    processors, _ = assign([], cards)
    assert [p.number for p in processors if p.role == "dGPU"] == [1, 2]
    assert processors[1].details == {
        "cuda_driver": "12.8",
        "driver": "NVIDIA 570.86.10",
        "firmware": "VBIOS 95.02.5D.00.01",
        "maker": "NVIDIA",
        "model_id": "10de:26b1",
        "raw_name": "NVIDIA RTX 6000 Ada Generation",
    }
    first = by_bus(cards)["0000:01:00.0"]
    assert first.keys["uuid"] == {"gpu-00000002-1-2-3-4"}


@pytest.mark.parametrize("answer", ["", "no JSON", "[]", '{"cards": [3]}', '{"driver": 1}'])
def test_a_library_that_answers_nothing_sound_adds_nothing(fake: Fake, answer: str) -> None:
    fake.write("/proc/driver/nvidia/version", "NVRM version")
    pci(fake, "0000:01:00.0", "10de:26b1", "030200", "nvidia")
    found = inventory(answering(fake.host, {nvidia.COMMAND: answer}))
    assert [(c.role, c.name) for c in found.cards[1:]] == [("dGPU", None)]
    assert len(found.lacks) == 1
    assert "NVML" in found.lacks[0]


def test_nvidias_library_is_not_asked_where_there_is_no_such_driver(fake: Fake) -> None:
    cards = inventory(answering(fake.host, {nvidia.COMMAND: json.dumps(NVML)})).cards
    assert [c.role for c in cards] == ["CPU"]


class FakeNvml:
    """NVML's C calls over two cards, one of which cannot be opened."""

    def __init__(self, *, starts: bool = True) -> None:
        self.starts, self.stopped = starts, False

    def nvmlInit_v2(self) -> int:
        return 0 if self.starts else 9

    def nvmlShutdown(self) -> int:
        self.stopped = True
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlSystemGetCudaDriverVersion_v2(self, version: Any) -> int:
        version._obj.value = 12080
        return 0

    def nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> int:
        buffer.value = b"570.86.10"
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return 0 if index.value == 0 else 3

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.pci_device_id = 0x26B110DE
        info._obj.bus_id = b"00000000:41:00.0"
        return 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = b"NVIDIA H200"
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = b"GPU-1"
        return 0

    def nvmlDeviceGetVbiosVersion(self, handle: Any, buffer: Any, size: Any) -> int:
        return 3


def test_nvml_is_asked_card_by_card() -> None:
    nvml = FakeNvml()
    assert nvidia.ask(nvml) == {
        "driver": "570.86.10",
        "cuda": 12080,
        "cards": [
            {
                "name": "NVIDIA H200",
                "uuid": "GPU-1",
                "bus": "0000:41:00.0",
                "device_id": 0x26B1,
                "vbios": None,
            }
        ],
    }
    assert nvml.stopped
    with pytest.raises(OSError, match="does not start"):
        nvidia.ask(FakeNvml(starts=False))


def test_nvmls_structure_is_as_long_as_its_header_says() -> None:
    assert ctypes.sizeof(nvidia.PciInfo) == 16 + 5 * 4 + 32


def test_without_the_library_its_process_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Any:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(nvidia, "library", missing)
    assert nvidia.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cards"] == []
    assert told["fault"].startswith("NVIDIA's NVML cannot be asked: libnvidia-ml.so.1")


def adapter(luid: int, ids: str, **fields: Any) -> dict[str, Any]:
    vendor, device = (int(part, 16) for part in ids.split(":"))
    told = {
        "luid": luid, "vendor_id": vendor, "device_id": device, "name": f"adapter {luid}",
        "driver": "32.0.101.6078", "hardware": True, "integrated": False, "graphics": True,
        "bus": None,
    }  # fmt: skip
    return {**told, **fields}


def windows(fake: Fake, *adapters: dict[str, Any]) -> Host:
    answers = {dxcore.COMMAND: json.dumps({"adapters": adapters})}
    return fake.other("win32", answers)


def test_a_windows_laptop_lists_gpus_and_npu_and_no_software(fake: Fake) -> None:
    host = windows(
        fake,
        adapter(30, "8086:7d1d", name="Intel(R) AI Boost", graphics=False, integrated=True),
        adapter(20, "10de:2820", name="NVIDIA GeForce RTX 4070 Laptop GPU", bus="0000:01:00.0"),
        adapter(10, "8086:7d55", name="Intel(R) Arc(TM) Graphics", integrated=True),
        adapter(40, "1414:008c", name="Microsoft Basic Render Driver"),
        adapter(50, "1234:0001", hardware=False),
    )
    assert shown(host) == [
        ("CPU", "unnamed CPU"),
        ("iGPU", "Intel Arc Graphics"),
        ("dGPU", "NVIDIA GeForce RTX 4070 Laptop GPU"),
        ("NPU", "Intel AI Boost"),
    ]


def test_a_card_that_a_remote_desktop_lists_twice_is_one(fake: Fake) -> None:
    same = {"bus": "0000:01:00.0", "name": "NVIDIA RTX A2000"}
    host = windows(fake, adapter(1, "10de:2571", **same), adapter(2, "10de:2571", **same))
    (card,) = [c for c in inventory(host).cards if c.role == "dGPU"]
    assert card.keys == {"bus": {"0000:01:00.0"}, "luid": {"1", "2"}}


def test_directmls_numbers_name_no_device_only_luids_do(fake: Fake) -> None:
    """DirectML's device 0 is the second that the system lists: what it states is its LUID."""
    from npumark.worker.protocol import EngineInfo

    host = windows(
        fake,
        adapter(10, "8086:7d55", name="Intel Arc Graphics", integrated=True),
        adapter(20, "10de:2820", name="NVIDIA GeForce RTX 4070"),
    )
    engines = [
        EngineInfo(
            f"ort-dml-gpu-{n + 1}", True, None, "ort", "ONNX Runtime", "1.24",
            processor={"role": role, "luid": luid, "name": "whatever"}, options={"device": n},
        )
        for n, (luid, role) in enumerate([(20, "dGPU"), (10, "iGPU")])
    ]  # fmt: skip
    processors, owner = assign(engines, inventory(host).cards)
    names = {p.id: p.name for p in processors}
    assert names[owner["ort-dml-gpu-1"]] == "NVIDIA GeForce RTX 4070"
    assert names[owner["ort-dml-gpu-2"]] == "Intel Arc Graphics"


def test_a_qualcomm_laptop_under_windows(fake: Fake) -> None:
    host = windows(
        fake,
        adapter(1, "4d4f4351:36334330", name="Qualcomm(R) Adreno(TM) GPU", integrated=True),
        adapter(2, "4d4f4351:41304430", name="Snapdragon(R) X Elite - NPU", graphics=False),
    )
    assert shown(host)[1:] == [
        ("iGPU", "Qualcomm Adreno GPU"),
        ("NPU", "Snapdragon X Elite - NPU"),
    ]


def test_windows_driver_versions_are_four_numbers() -> None:
    assert dxcore.driver_version(32 << 48 | 101 << 16 | 6078) == "32.0.101.6078"


def test_an_apple_chip_is_three_processors(fake: Fake) -> None:
    answers = {
        BRAND: "Apple M4 Pro\n",
        SYSTEM: "15.3\n",
        DISPLAYS: json.dumps({"SPDisplaysDataType": [{"sppci_cores": "20"}]}),
    }
    host = fake.other("darwin", answers, architecture=lambda: "arm64")
    assert shown(host) == [
        ("CPU", "Apple M4 Pro"),
        ("iGPU", "Apple M4 Pro GPU"),
        ("NPU", "Apple M4 Pro Neural Engine"),
    ]
    gpu = assign([], inventory(host).cards)[0][1]
    assert (gpu.details["cores"], gpu.details["driver"]) == ("20", "macOS 15.3")


def test_a_mac_that_says_nothing_has_three_processors_all_the_same(fake: Fake) -> None:
    host = fake.other("darwin", {}, architecture=lambda: "arm64")
    assert [role for role, _ in shown(host)] == ["CPU", "iGPU", "NPU"]


def test_a_mac_with_an_intel_processor_has_no_npu(fake: Fake) -> None:
    displays = [
        {"sppci_model": "Intel UHD Graphics 630", "sppci_bus": "spdisplays_builtin",
         "spdisplays_vendor": "Intel"},
        {"sppci_model": "AMD Radeon Pro 5500M", "sppci_bus": "spdisplays_pcie_device",
         "spdisplays_vendor": "sppci_vendor_amd"},
    ]  # fmt: skip
    answers = {
        BRAND: "Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz",
        DISPLAYS: json.dumps({"SPDisplaysDataType": displays}),
    }
    host = fake.other("darwin", answers)
    assert [role for role, _ in shown(host)] == ["CPU", "iGPU", "dGPU"]
