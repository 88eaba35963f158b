"""The drivers' own lists of cards and adapters, against recorded libraries."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest

from npumark.engines import vulkan_adapters as vulkan_module
from npumark.engines.cuda_driver import Card, cuda_cards
from npumark.engines.hip_driver import hip_cards
from npumark.engines.vulkan_adapters import Adapter, vulkan_adapters
from npumark.errors import EngineError


def missing(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


class Cuda:
    """libcuda as its manual describes it, with one card."""

    def __init__(self, status: int = 0, count: int = 1) -> None:
        self.status, self.count = status, count

    def cuInit(self, flags: int) -> int:
        assert flags == 0
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.count
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = 70 + ordinal
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        assert (attribute, device.value) == (18, 70)  # CU_DEVICE_ATTRIBUTE_INTEGRATED
        value._obj.value = 0
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, device: Any) -> int:
        buffer.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetPCIBusId(self, buffer: Any, size: int, device: Any) -> int:
        buffer.value = b"0000:1A:00.0"
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, device: Any) -> int:
        ctypes.memmove(raw._obj, bytes(range(16)), 16)
        return 0

    def cuDeviceGetLuid(self, raw: Any, mask: Any, device: Any) -> int:
        return 1  # not supported outside Windows


def test_a_cuda_card_is_known_by_uuid_and_bus() -> None:
    (card,) = cuda_cards(lambda _: Cuda())
    assert card == Card(
        ordinal=0,
        name="NVIDIA H200",
        uuid="GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
        bus="0000:1a:00.0",
        luid=None,
        integrated=False,
    )


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (missing, "driver is not installed"),
        (lambda _: Cuda(status=100), "cuInit gives 100"),
        (lambda _: Cuda(count=0), "lists no card"),
        (lambda _: Cuda(count=-1), "lists no card"),
        (lambda _: object(), r"not whole .*reinstall the driver"),
    ],
)
def test_without_a_card_cuda_says_why(load: Any, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        cuda_cards(load)


class Hip:
    """libamdhip64 with one card whose number has no bus address."""

    def __init__(self, count: int = 1, status: int = 0) -> None:
        self.count, self.status = count, status

    def hipGetDeviceCount(self, count: Any) -> int:
        count._obj.value = self.count
        return self.status

    def hipDeviceGetAttribute(self, value: Any, attribute: int, ordinal: int) -> int:
        assert (attribute, ordinal) == (16, 0)  # hipDeviceAttributeIntegrated, HIP 5 and later
        value._obj.value = 1
        return 0

    def hipDeviceGetName(self, buffer: Any, size: int, ordinal: int) -> int:
        buffer.value = b"AMD Radeon 780M"
        return 0

    def hipDeviceGetPCIBusId(self, buffer: Any, size: int, ordinal: int) -> int:
        return 1


@pytest.mark.skipif(sys.platform not in ("linux", "win32"), reason="there is no HIP here")
def test_hip_cards() -> None:
    (card,) = hip_cards(lambda _: Hip())
    assert card == Card(0, "AMD Radeon 780M", None, None, None, integrated=True)
    with pytest.raises(EngineError, match="HIP gives 100"):
        hip_cards(lambda _: Hip(count=0, status=100))
    with pytest.raises(EngineError, match="HIP gives 0"):
        hip_cards(lambda _: Hip(count=-1))
    with pytest.raises(EngineError, match=r"not whole .*reinstall ROCm"):
        hip_cards(lambda _: object())


def test_without_rocm_hip_says_so() -> None:
    with pytest.raises(EngineError, match="ROCm is not installed"):
        hip_cards(missing)


class Vulkan:
    """A loader with one adapter."""

    def __init__(
        self, name: bytes, kind: int, status: int = 0, ids: tuple[int, int] = (0x8086, 0x7D55)
    ) -> None:
        self.name, self.kind, self.status, self.destroyed = name, kind, status, 0
        self.ids = ids

    def vkCreateInstance(self, info: Any, allocator: None, instance: Any) -> int:
        assert info._obj.kind == 1
        instance._obj.value = 5
        return self.status

    def vkDestroyInstance(self, instance: Any, allocator: None) -> None:
        self.destroyed += 1

    def vkEnumeratePhysicalDevices(self, instance: Any, count: Any, handles: Any) -> int:
        count._obj.value = 1
        handles[0] = 9
        return 0

    def vkGetPhysicalDeviceProperties(self, handle: Any, told: Any) -> None:
        assert handle.value == 9
        told._obj.vendor, told._obj.device = self.ids
        told._obj.kind, told._obj.name = self.kind, self.name


@pytest.mark.parametrize(
    ("name", "kind", "software"),
    [
        (b"SwiftShader Device (Subzero)", 4, True),
        # Not every version of a software renderer says that it is one.
        (b"llvmpipe (LLVM 15.0.6, 256 bits)", 0, True),
        (b"NVIDIA GeForce RTX 4090", 2, False),
        (b"Intel Warpaint Graphics", 1, False),
    ],
)
def test_a_software_adapter_is_told_by_kind_or_name(name: bytes, kind: int, software: bool) -> None:
    loader = Vulkan(name, kind)
    found = vulkan_adapters(lambda _: loader)
    assert found is not None
    (adapter,) = found
    assert adapter.name == name.decode()
    assert adapter.software is software
    assert loader.destroyed == 1


def test_more_adapters_than_there_is_room_for_are_no_fault() -> None:
    class Crowded(Vulkan):
        def vkEnumeratePhysicalDevices(self, instance: Any, count: Any, handles: Any) -> int:
            for n in range(count._obj.value):
                handles[n] = 9
            return 5  # VK_INCOMPLETE

    found = vulkan_adapters(lambda _: Crowded(b"\xff\x1b[31m", 1))
    assert found is not None
    assert len(found) == 64
    assert found[0].name.isprintable()


def test_vulkans_structures_are_as_long_as_its_header_says() -> None:
    assert ctypes.sizeof(vulkan_module._InstanceInfo) == 64
    assert vulkan_module._Properties.name.offset == 20
    # VkPhysicalDeviceProperties of vulkan_core.h on 64 bits.
    assert ctypes.sizeof(vulkan_module._Properties) > 824


def test_no_vulkan_is_unknown_and_not_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    assert vulkan_adapters(missing) is None
    assert vulkan_adapters(lambda _: Vulkan(b"", 0, status=-9)) is None


def test_a_driver_may_bring_its_own_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", str(tmp_path / "driver.json"))
    asked = []

    def load(name: str) -> Any:
        asked.append(name)
        if Path(name).parent != tmp_path:
            raise OSError(name)
        return Vulkan(b"SwiftShader", 4, ids=(0x1AE0, 0xC0DE))

    assert vulkan_adapters(load) == (Adapter("SwiftShader", "cpu", 0x1AE0, 0xC0DE),)
    assert len(asked) == 2
