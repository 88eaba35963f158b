"""The versions of drivers and firmware that Linux tells, and what reaches a processor's details."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from npumark.machine import nvidia
from npumark.machine.host import Host, Reading
from npumark.machine.inventory import inventory
from npumark.machine.processors import assign
from tests.machine.conftest import Fake
from tests.machine.test_inventory import PCI, link, pci

BUS = "0000:01:00.0"


def details(host: Host) -> dict[str, Any]:
    """Return the details of the one device beside the CPU."""
    found = inventory(host)
    assert found.lacks == ()
    processors, _ = assign([], found.cards)
    (device,) = [p for p in processors if p.role != "CPU"]
    return device.details


@pytest.mark.parametrize(
    ("driver", "ids", "code", "files", "told"),
    [
        ("i915", "8086:9a49", "030000", {}, ("i915 of Linux 6.1.0-test", None)),
        # Intel's and AMD's packages of drivers beside the kernel state a version of their own.
        ("i915", "8086:9a49", "030000", {"/sys/module/i915/version": "1.25.2.24"},
         ("i915 1.25.2.24", None)),
        ("xe", "8086:64a0", "030000", {}, ("xe of Linux 6.1.0-test", None)),
        ("amdgpu", "1002:744c", "030000",
         {"/sys/module/amdgpu/version": "6.8.5",
          f"{PCI}/{BUS}/vbios_version": "113-D7020100-102",
          f"{PCI}/{BUS}/fw_version/smc_fw_version": "0x004e7e00"},
         ("amdgpu 6.8.5", "VBIOS 113-D7020100-102, SMC 0x004e7e00")),
        ("amdgpu", "1002:744c", "030000", {}, ("amdgpu of Linux 6.1.0-test", None)),
        ("nvidia", "10de:26b1", "030200", {"/sys/module/nvidia/version": "570.86.10"},
         ("nvidia 570.86.10", None)),
        ("intel_vpu", "8086:7d1d", "120000", {"/sys/module/intel_vpu/version": "1.13.0"},
         ("intel_vpu 1.13.0", None)),
        ("intel_vpu", "8086:7d1d", "120000", {}, ("intel_vpu of Linux 6.1.0-test", None)),
        ("amdxdna", "1022:17f0", "118000",
         {f"{PCI}/{BUS}/fw_version": "1.5.5.391", f"{PCI}/{BUS}/vbnv": "NPU Strix"},
         ("amdxdna of Linux 6.1.0-test", "1.5.5.391")),
    ],
)  # fmt: skip
def test_a_device_carries_its_driver_and_firmware(
    fake: Fake, driver: str, ids: str, code: str, files: dict[str, str | int],
    told: tuple[str, str | None],
) -> None:  # fmt: skip
    pci(fake, BUS, ids, code, driver)
    fake.tree(files)
    found = details(fake.host)
    assert (found.get("driver"), found.get("firmware")) == told


def test_a_driver_whose_module_has_another_name_tells_that_modules_version(fake: Fake) -> None:
    pci(fake, BUS, "8086:64a0", "030000", "xe-next")
    link(fake, "/sys/bus/pci/drivers/xe-next/module", "/sys/module/xe_next")
    fake.write("/sys/module/xe_next/version", "7.0")
    assert details(fake.host)["driver"] == "xe-next 7.0"


def test_nvml_tells_more_than_the_kernel(fake: Fake) -> None:
    pci(fake, BUS, "10de:26b1", "030200", "nvidia")
    fake.tree({"/proc/driver/nvidia/version": "NVRM", "/sys/module/nvidia/version": "570.86.10"})
    card = {"name": "NVIDIA L4", "uuid": None, "bus": BUS, "device_id": 0x26B1, "vbios": "95.02"}
    answer = json.dumps({"driver": "570.86.10", "cuda": 12080, "cards": [card]})
    host = replace(
        fake.host, output=lambda argv: Reading(answer if argv == nvidia.COMMAND else None, "gone")
    )
    found = details(host)
    assert (found["driver"], found["firmware"]) == ("NVIDIA 570.86.10", "VBIOS 95.02")


def test_without_a_driver_there_is_no_version(fake: Fake) -> None:
    pci(fake, BUS, "8086:64a0", "030000")
    assert "driver" not in details(fake.host)
