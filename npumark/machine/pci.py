"""What Linux lists under /sys: graphics cards and NPUs on the PCI bus and on the chip itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from npumark.hardware import bus_address, number, plain_text
from npumark.machine.card import Card, Role, vendor_name
from npumark.machine.host import Host

_DEVICES = "/sys/bus/pci/devices"
_FACTS = ("class", "vendor", "device")
_IDS = (
    "/usr/share/hwdata/pci.ids",
    "/usr/share/misc/pci.ids",
    "/usr/share/pci.ids",
    "/var/lib/pciutils/pci.ids",
)
_NPU_DRIVERS = frozenset({"intel_vpu", "amdxdna", "qaic", "rocket"})
_ON_CHIP_GPUS = frozenset(
    {"msm_dpu", "msm", "adreno", "panfrost", "panthor", "tegra", "nvgpu", "v3d"}
)
_NO_ENGINE = frozenset({0x1013, 0x102B, 0x1234, 0x1414, 0x15AD, 0x1A03, 0x1AF4, 0x1B36, 0x80EE})
"""Makers of adapters that only show a picture: of virtual machines and of servers' consoles."""

_AMD, _AMD_CPU, _INTEL, _NVIDIA = 0x1002, 0x1022, 0x8086, 0x10DE


def linux_cards(host: Host) -> tuple[Card, ...]:
    """Return the GPUs and NPUs that the kernel lists, in bus order, then those on the chip."""
    names = _names(host)
    found = [c for path in host.listing(_DEVICES, "*") if (c := _pci_card(host, path, names))]
    found.sort(key=lambda c: sorted(c.keys["bus"]))
    return (*found, *_on_chip(host))


def _pci_card(host: Host, path: str, names: dict[tuple[int, int], str]) -> Card | None:
    code, vendor, device = (number(_text(host, f"{path}/{n}")) for n in _FACTS)
    bus = bus_address(path.rsplit("/", 1)[-1])
    if code is None or vendor is None or device is None or bus is None:
        return None
    driver = host.linked(f"{path}/driver")
    role = _role(host, path, code, vendor, driver)
    if role is None:
        return None
    listed = names.get((vendor, device))
    told = _text(host, f"{path}/vbnv")  # AMD's NPU driver names the product
    name = told or product(listed, vendor_name(vendor))
    return Card(
        role=role,
        keys={"bus": frozenset({bus})},
        vendor_id=vendor,
        device_id=device,
        name=name,
        name_sure=told is not None or _names_one(listed, role),
        driver=_driver_version(host, path),
        firmware=_firmware(host, path),
    )


def _names_one(listed: str | None, role: Role) -> bool:
    """Whether a line of pci.ids names one product: a code name of a GPU, outside brackets, does
    not, nor does a list of products that share the id."""
    if listed is None or "/" in listed:
        return False
    return role == "NPU" or listed.endswith("]")


def product(listed: str | None, vendor: str | None) -> str | None:
    """Return the product that a line of pci.ids names, with its maker.

    ``AD102GL [RTX 6000 Ada Generation]`` is an ``NVIDIA RTX 6000 Ada Generation``; a line
    without brackets is its own name.
    """
    if listed is None:
        return None
    bracket = re.search(r"\[([^\]]+)\]\s*$", listed)
    name = bracket[1] if bracket else listed
    if vendor and vendor.lower() not in name.lower():
        return f"{vendor} {name}"
    return name


def read_ids(text: str) -> dict[tuple[int, int], str]:
    """Return the device names of a pci.ids file by (vendor, device)."""
    found: dict[tuple[int, int], str] = {}
    vendor: int | None = None
    for line in text.splitlines():
        if match := re.match(r"([0-9a-f]{4})\s", line):
            vendor = int(match[1], 16)
        elif line and not line.startswith(("\t", "#")):
            vendor = None  # the classes that follow the vendors
        elif vendor is not None and (match := re.match(r"\t([0-9a-f]{4})\s+(.+)", line)):
            found[vendor, int(match[1], 16)] = match[2].strip()
    return found


def _names(host: Host) -> dict[tuple[int, int], str]:
    text = next((t for path in _IDS if (t := host.read(path).value)), "")
    return read_ids(text)


def _role(host: Host, path: str, code: int, vendor: int, driver: str | None) -> Role | None:
    if driver in _NPU_DRIVERS or host.exists(f"{path}/accel"):
        return "NPU"
    base, sub = code >> 16, (code >> 8) & 0xFF
    if base == 0x12 and vendor != _NVIDIA:
        return "NPU"
    if vendor == _AMD_CPU and base == 0x11 and sub == 0x80:
        return "NPU"  # Ryzen AI without its driver: a signal processor by class
    if base != 0x03 or vendor in _NO_ENGINE:
        return None
    return "iGPU" if _integrated(host, path, vendor) else "dGPU"


def _integrated(host: Host, path: str, vendor: int) -> bool:
    """Whether a GPU is part of the processor.

    Intel's sits on the root bus. AMD's shares its PCI device with parts that carry the id of
    AMD's processors (the security processor, USB); a card's neighbours carry the cards' id.
    """
    address, slot = path.rsplit("/", 1)[-1], path.rsplit(".", 1)[0]
    if vendor == _INTEL:
        return address.startswith("0000:00:")
    if vendor != _AMD:
        return False
    return any(number(_text(host, f"{slot}.{n}/vendor")) == _AMD_CPU for n in range(8))


def _on_chip(host: Host) -> Iterator[Card]:
    """Yield GPUs and NPUs that are on no PCI bus, one per driver of the graphics class, and
    Qualcomm's NPU, which the kernel lists as a remote processor's channel."""
    seen: set[str] = set()
    for path in host.listing("/sys/class/drm", "card[0-9]*"):
        driver = host.linked(f"{path}/device/driver")
        if driver in _ON_CHIP_GPUS and "-" not in path.rsplit("/", 1)[-1] and driver not in seen:
            seen.add(driver)
            told = host.read(f"{path}/device/uevent").value or ""
            match = re.search(r"^OF_COMPATIBLE_0=(.+)$", told, re.MULTILINE)
            name = plain_text(match[1].replace(",", " ")) if match else None
            yield Card("iGPU", {}, name=name, driver=_driver_version(host, f"{path}/device"))
    for path in host.listing("/sys/class/accel", "accel*"):
        driver = host.linked(f"{path}/device/driver")
        if host.linked(f"{path}/device/subsystem") == "platform" and driver not in seen:
            seen.add(str(driver))
            yield Card("NPU", {}, driver=_driver_version(host, f"{path}/device"))
    if host.exists("/sys/class/misc/fastrpc-cdsp"):
        model = _text(host, "/proc/device-tree/model")
        yield Card(
            "NPU",
            {},
            vendor_id=0x17CB,
            name="Qualcomm Hexagon NPU",
            driver=_versioned(host, "fastrpc", "fastrpc"),
            details={"machine": model} if model else {},
        )


def _driver_version(host: Host, path: str) -> str | None:
    """Return the kernel driver of the device at ``path`` with its version, null without one."""
    driver = host.linked(f"{path}/driver")
    if driver is None:
        return None
    # The module may be called otherwise than its driver is.
    return _versioned(host, driver, host.linked(f"{path}/driver/module") or driver)


def _versioned(host: Host, driver: str, module: str) -> str:
    """Return a driver with its module's own version, as what comes beside the kernel (NVIDIA's,
    AMD's and Intel's packages) states, or with that of the kernel it came with."""
    own = _text(host, f"/sys/module/{module}/version")
    return f"{driver} {own}" if own else f"{driver} of Linux {host.release()}"


def _firmware(host: Host, path: str) -> str | None:
    """Return the firmware that a device's own folder tells: amdxdna its NPU's, amdgpu the card's
    VBIOS and its power controller's (a folder of versions bears the name of amdxdna's file).

    i915, xe and intel_vpu tell theirs to root alone, under debugfs; what nvidia loads, NVML says.
    """
    told = _text(host, f"{path}/fw_version")
    vbios = _text(host, f"{path}/vbios_version")
    smc = _text(host, f"{path}/fw_version/smc_fw_version")
    parts = (told, vbios and f"VBIOS {vbios}", smc and f"SMC {smc}")
    return ", ".join(part for part in parts if part) or None


def _text(host: Host, path: str) -> str | None:
    return plain_text(host.read(path).value)
