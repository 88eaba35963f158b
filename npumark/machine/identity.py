"""What this computer is: system, processor, firmware, memory. Nothing that names its owner.

Host and user names, serial numbers, UUIDs and the machine id are never read. A fact that
cannot be read is null, and ``why`` says for which reason under the same name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from npumark.machine.host import THIS, Host, Reading
from npumark.plain import one_line

_FIXED = (
    "os",
    "architecture",
    "cpu_model",
    "cpu_vendor",
    "cpu_family",
    "cpu_model_number",
    "cpu_stepping",
    "board_vendor",
    "board_product",
    "virtualisation",
)
"""The facts of a computer that stay while it is the same one. The others may change on it: the
system's and the firmware's versions, microcode and what it unlocks, memory, boot, container."""

_ISA = {
    "avx", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "avx512vbmi", "avx512_vbmi2", "avx_vnni", "avx_vnni_int8", "avx_vnni_int16",
    "avx_ne_convert", "avx_ifma", "avx10", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16",
    "amx_complex", "f16c", "fma", "sse4_2",
    "asimd", "neon", "asimdhp", "fphp", "asimddp", "asimdfhm", "i8mm", "bf16", "sve", "sve2",
    "svei8mm", "svebf16", "sme", "sme2", "smei8i32", "smef16f32", "smeb16f32",
}  # fmt: skip
"""Flags that change what arithmetic a CPU engine can use, as Linux spells them."""

_APPLE_ISA = ("FEAT_DotProd", "FEAT_I8MM", "FEAT_BF16", "FEAT_FP16", "FEAT_SME", "FEAT_SME2")
_CPU_KEY = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
_BIOS_KEY = r"HARDWARE\DESCRIPTION\System\BIOS"
_WINDOWS_KEY = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
_DMI = "/sys/class/dmi/id"

_MARKS = re.compile(r"\((?:R|TM|C)\)|®|™", re.IGNORECASE)
_NOISE = re.compile(
    r"\b(?:CPU|(?:\d+|Two|Four|Six|Eight|Twelve|Sixteen|Dual|Quad)-Core)\b|\bProcessor\b|@.*$"
    r"|\bwith Radeon.*$|\bw/ Radeon.*$",
    re.IGNORECASE,
)


def machine(host: Host = THIS) -> dict[str, Any]:
    """Return the record's ``machine``: each fact, and ``why`` for those that are null.

    ``memory_bytes`` is physical memory; ``isa`` lists the flags that matter to arithmetic;
    ``boot`` is a digest that changes with every boot and names nothing else.
    """
    readings: dict[str, Reading] = {
        "os": _os_name(host),
        "os_version": _os_version(host),
        "kernel": Reading(host.release() or None, "the system does not state it"),
        "architecture": Reading(host.architecture() or None, "the system does not state it"),
        "cpu_model": cpu_model(host),
        "cpu_vendor": _cpu_vendor(host),
        "cpu_family": _cpuinfo_reading(host, "cpu family", "CPU architecture"),
        "cpu_model_number": _cpuinfo_reading(host, "model", "CPU part"),
        "cpu_stepping": _cpuinfo_reading(host, "stepping", "CPU revision"),
        "microcode": microcode(host),
        "bios": bios(host),
        "bios_date": _firmware(host, "bios_date", "BIOSReleaseDate"),
        "board_vendor": _firmware(host, "sys_vendor", "SystemManufacturer"),
        "board_product": _product(host),
        "virtualisation": _virtualisation(host),
        "container": _container(host),
        "boot": boot(host),
    }
    facts: dict[str, Any] = {n: r.value and one_line(r.value) for n, r in readings.items()}
    why = {n: r.why or "not stated" for n, r in readings.items() if r.value is None}
    facts["isa"], lacking = _isa(host)
    if lacking is not None:
        why["isa"] = lacking
    facts["memory_bytes"] = memory_bytes(host)
    facts["why"] = why
    return facts


def clean_cpu_name(raw: str) -> str:
    """Return a CPU's name as people say it: no trade marks, clocks, core counts or filler.

    A name that would be left empty stays as it is.
    """
    name = _NOISE.sub(" ", _MARKS.sub(" ", raw))
    return " ".join(name.split()).strip(" ,") or " ".join(raw.split())


def cpu_model(host: Host = THIS) -> Reading:
    """Return the processor's model name as its maker wrote it."""
    if host.system == "darwin":
        return _line(host.output(("sysctl", "-n", "machdep.cpu.brand_string")))
    if host.system == "win32":
        return _line(host.registry(_CPU_KEY, "ProcessorNameString"))
    found = _cpuinfo(host)
    for key in ("model name", "Model", "Hardware", "cpu model"):
        if found.get(key):
            return Reading(found[key])
    model = host.read("/sys/firmware/devicetree/base/model")
    return model if model.value else Reading(None, "/proc/cpuinfo does not name the processor")


def microcode(host: Host = THIS) -> Reading:
    """Return the microcode revision, in hexadecimal."""
    if host.system == "win32":
        seen = _line(host.registry(_CPU_KEY, "Update Revision"))
        if seen.value is None or not re.fullmatch(r"[0-9a-fA-F]{16}", seen.value):
            return Reading(None, seen.why or "the registry's update revision has another form")
        # Eight bytes, little-endian; the revision is their upper half.
        return Reading(hex(int.from_bytes(bytes.fromhex(seen.value)[4:], "little")))
    if host.system == "darwin":
        return _line(host.output(("sysctl", "-n", "machdep.cpu.microcode_version")))
    text = _cpuinfo(host).get("microcode")
    return Reading(text) if text else host.read("/sys/devices/system/cpu/cpu0/microcode/version")


def bios(host: Host = THIS) -> Reading:
    """Return the firmware's version."""
    return _firmware(host, "bios_version", "BIOSVersion")


def memory_bytes(host: Host = THIS) -> int:
    """Return the physical memory of the machine in bytes."""
    if host.system == "linux":
        stated = meminfo(host).get("MemTotal")
        if stated is not None:
            return stated
    return host.memory().total


def meminfo(host: Host) -> dict[str, int]:
    """Return /proc/meminfo in bytes; empty where it cannot be read."""
    found = {}
    for line in (host.read("/proc/meminfo").value or "").splitlines():
        match = re.fullmatch(r"(\S+):\s+([0-9]{1,15}) kB", line)
        if match:
            found[match[1]] = int(match[2]) * 1024
    return found


def boot(host: Host = THIS) -> Reading:
    """Return a digest that is the same until the next boot: it tells whether a resumed run is
    still on the boot it began on, and nothing else about the machine."""
    if host.system == "linux":
        seen = host.read("/proc/sys/kernel/random/boot_id")
    elif host.system == "darwin":
        seen = _line(host.output(("sysctl", "-n", "kern.boottime")))
    else:
        seen = Reading(str(round(host.boot_time())))
    if seen.value is None:
        return seen
    return Reading(hashlib.sha256(f"npumark boot {seen.value}".encode()).hexdigest()[:16])


def _cpuinfo(host: Host) -> dict[str, str]:
    """Return the first processor's fields of /proc/cpuinfo, and of any trailing section."""
    found: dict[str, str] = {}
    for line in (host.read("/proc/cpuinfo").value or "").splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() not in found and key.strip() != "Serial":
            found[key.strip()] = value.strip()
    return found


def _cpuinfo_reading(host: Host, *keys: str) -> Reading:
    if host.system != "linux":
        return Reading(None, "read on Linux only")
    found = _cpuinfo(host)
    for key in keys:
        if found.get(key):
            return Reading(found[key])
    return Reading(None, f"/proc/cpuinfo has no {keys[0]!r}")


def _cpu_vendor(host: Host) -> Reading:
    if host.system == "darwin":
        vendor = _line(host.output(("sysctl", "-n", "machdep.cpu.vendor")))
        apple = (cpu_model(host).value or "").startswith("Apple")
        return Reading("Apple") if vendor.value is None and apple else vendor
    if host.system == "win32":
        return _line(host.registry(_CPU_KEY, "VendorIdentifier"))
    found = _cpuinfo(host)
    vendor_text = found.get("vendor_id") or found.get("CPU implementer")
    return Reading(vendor_text, "/proc/cpuinfo does not name the vendor")


def _isa(host: Host) -> tuple[list[str] | None, str | None]:
    if host.system == "linux":
        found = _cpuinfo(host)
        flags = found.get("flags") or found.get("Features")
        if flags is None:
            return None, "/proc/cpuinfo lists no flags"
        return sorted(_ISA & set(flags.split())), None
    if host.system == "darwin":
        answers = {
            name: _line(host.output(("sysctl", "-n", f"hw.optional.arm.{name}"))).value
            for name in _APPLE_ISA
        }
        if not any(answers.values()):
            return None, "sysctl names no arithmetic features of this processor"
        return sorted(name for name, value in answers.items() if value == "1"), None
    return None, "Windows does not list them through a documented call"


def _firmware(host: Host, dmi: str, registry: str) -> Reading:
    if host.system == "win32":
        return _line(host.registry(_BIOS_KEY, registry))
    if host.system == "linux":
        return host.read(f"{_DMI}/{dmi}")
    if dmi == "sys_vendor":
        return Reading("Apple")
    if dmi == "bios_version":
        text = host.output(("system_profiler", "SPHardwareDataType")).value or ""
        match = re.search(r"(?:System Firmware|Boot ROM) Version:\s*(.+)", text)
        return Reading(match[1].strip() if match else None, "system_profiler does not state it")
    return Reading(None, "macOS does not state it")


def _product(host: Host) -> Reading:
    if host.system == "darwin":
        return _line(host.output(("sysctl", "-n", "hw.model")))
    return _firmware(host, "product_name", "SystemProductName")


def _os_name(host: Host) -> Reading:
    if host.system == "darwin":
        return Reading("macOS")
    if host.system == "win32":
        return Reading("Windows")
    match = re.search(
        r'^PRETTY_NAME="?([^"\n]+)', host.read("/etc/os-release").value or "", re.MULTILINE
    )
    return Reading(match[1] if match else "Linux")


def _os_version(host: Host) -> Reading:
    if host.system == "darwin":
        return _line(host.output(("sw_vers", "-productVersion")))
    if host.system == "win32":
        build = _line(host.registry(_WINDOWS_KEY, "CurrentBuildNumber"))
        update = _line(host.registry(_WINDOWS_KEY, "UBR")).value
        return Reading(f"{build.value}.{update}") if build.value and update else build
    return Reading(host.version() or None, "the system does not state it")


def _virtualisation(host: Host) -> Reading:
    """Return what hints that a hypervisor is below, or ``none seen``."""
    if host.system == "linux":
        kind = host.read("/sys/hypervisor/type").value
        if kind:
            return Reading(kind)
        if "hypervisor" in _cpuinfo(host).get("flags", "").split():
            return Reading("hypervisor (processor flag)")
        return Reading("none seen")
    if host.system == "darwin":
        answer = _line(host.output(("sysctl", "-n", "kern.hv_vmm_present")))
        if answer.value is None:
            return answer
        return Reading("hypervisor (kernel)" if answer.value == "1" else "none seen")
    return Reading(None, "not read on Windows")


def other_machine(there: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Yield what shows that a record was made on another computer. A fact that either cannot tell
    shows nothing; nor can two computers of the same make be told apart."""
    for name in _FIXED:
        before, now = there.get(name), here.get(name)
        if before is not None and now is not None and before != now:
            yield f"its {name.replace('_', ' ')} is {before}, and here it is {now}"


def _container(host: Host) -> Reading:
    """Return what hints that this process runs in a container, or ``none seen``."""
    if host.system != "linux":
        return Reading("none seen")
    for path, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if host.exists(path):
            return Reading(kind)
    groups = host.read("/proc/1/cgroup").value or ""
    match = re.search(r"docker|containerd|kubepods|lxc|libpod", groups)
    return Reading(match[0] if match else "none seen")


def _line(reading: Reading) -> Reading:
    text = " ".join((reading.value or "").split())
    return Reading(text) if text else Reading(None, reading.why or "the system does not state it")
