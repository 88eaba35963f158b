from __future__ import annotations

import getpass
import json
import platform
from pathlib import Path
from typing import Any

import pytest

from npumark.machine import identity
from npumark.machine.host import Host

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping\t: 8
microcode\t: 0x2b000603
flags\t\t: fpu avx2 avx512f avx512_vnni amx_int8 hypervisor sse4_2

processor\t: 1
vendor_id\t: Other
"""


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("Intel(R) Xeon(R) Processor", "Intel Xeon"),
        ("AMD EPYC 9B14 96-Core Processor", "AMD EPYC 9B14"),
        ("Intel(R) Core(TM) i7-1165G7 CPU @ 2.80GHz", "Intel Core i7-1165G7"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "13th Gen Intel Core i9-13900K"),
        ("AMD Ryzen AI 9 HX 370 w/ Radeon 890M", "AMD Ryzen AI 9 HX 370"),
        ("Intel(R) Core(TM) Ultra 7 258V", "Intel Core Ultra 7 258V"),
        ("Apple M5 Max", "Apple M5 Max"),
        ("Processor", "Processor"),
    ],
)
def test_a_processor_is_named_as_people_name_it(raw: str, name: str) -> None:
    assert identity.clean_cpu_name(raw) == name


def test_a_linux_machine(fake: Any) -> None:
    fake.tree(
        {
            "/proc/cpuinfo": CPUINFO,
            "/proc/meminfo": "MemTotal:       16384 kB\nMemAvailable:    8192 kB",
            "/etc/os-release": 'NAME="X"\nPRETTY_NAME="Example Linux 9"\n',
            "/sys/class/dmi/id/bios_version": "1.07",
            "/sys/class/dmi/id/product_name": "Laptop 7",
            "/proc/sys/kernel/random/boot_id": "01234567-89ab-cdef-0123-456789abcdef",
            "/run/.containerenv": "",
        }
    )
    seen = identity.machine(fake.host)
    assert seen["cpu_model"] == "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
    assert seen["cpu_vendor"] == "GenuineIntel"
    assert seen["microcode"] == "0x2b000603"
    assert seen["isa"] == ["amx_int8", "avx2", "avx512_vnni", "avx512f", "sse4_2"]
    assert seen["memory_bytes"] == 16384 * 1024
    assert (seen["os"], seen["kernel"]) == ("Example Linux 9", "6.1.0-test")
    assert (seen["bios"], seen["board_product"]) == ("1.07", "Laptop 7")
    assert seen["virtualisation"] == "hypervisor (processor flag)"
    assert seen["container"] == "podman"
    assert seen["why"] == {
        "bios_date": "/sys/class/dmi/id/bios_date does not exist",
        "board_vendor": "/sys/class/dmi/id/sys_vendor does not exist",
    }


def test_a_fact_has_no_control_characters(fake: Any) -> None:
    fake.tree({"/sys/class/dmi/id/product_name": "Lap\x1b[31mtop\x07 \x9b7"})
    assert identity.machine(fake.host)["board_product"] == "Laptop 7"


def test_an_arm_machine(fake: Any) -> None:
    fake.write(
        "/proc/cpuinfo",
        "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm sve bf16\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\nCPU revision\t: 1\n"
        "\nSerial\t\t: 10000000abcdef01\n",
    )
    fake.write("/sys/firmware/devicetree/base/model", "Example Board 5\0")
    seen = identity.machine(fake.host)
    assert seen["cpu_model"] == "Example Board 5"
    assert seen["isa"] == ["asimd", "asimddp", "bf16", "i8mm", "sve"]
    assert seen["cpu_vendor"] == "0x41"
    assert "abcdef01" not in json.dumps(seen)


def test_a_machine_that_tells_nothing_has_a_reason_for_every_null(fake: Any) -> None:
    seen = identity.machine(fake.host)
    nulls = {name for name, value in seen.items() if value is None}
    assert nulls == set(seen["why"])
    assert {"cpu_model", "microcode", "bios", "isa", "boot"} <= nulls
    assert all(seen["why"].values())


def test_a_mac(fake: Any) -> None:
    host = fake.other(
        "darwin",
        {
            ("sysctl", "-n", "machdep.cpu.brand_string"): "Apple M5 Max\n",
            ("sysctl", "-n", "hw.model"): "Mac17,1\n",
            ("sysctl", "-n", "hw.optional.arm.FEAT_I8MM"): "1\n",
            ("sysctl", "-n", "hw.optional.arm.FEAT_SME"): "0\n",
            ("sysctl", "-n", "kern.boottime"): "{ sec = 1, usec = 2 }\n",
            ("sysctl", "-n", "kern.hv_vmm_present"): "0\n",
            ("sw_vers", "-productVersion"): "26.1\n",
            ("system_profiler", "SPHardwareDataType"): (
                "      System Firmware Version: 13822.1.2\n"
                "      Serial Number (system): SECRET1\n      Hardware UUID: SECRET2\n"
            ),
        },
    )
    seen = identity.machine(host)
    assert (seen["os"], seen["os_version"]) == ("macOS", "26.1")
    assert (seen["cpu_model"], seen["cpu_vendor"]) == ("Apple M5 Max", "Apple")
    assert seen["isa"] == ["FEAT_I8MM"]
    assert seen["bios"] == "13822.1.2"
    assert seen["memory_bytes"] == 8 << 30
    assert seen["why"]["microcode"]
    assert "SECRET" not in json.dumps(seen)


def test_a_windows_machine(fake: Any) -> None:
    cpu = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
    bios = r"HARDWARE\DESCRIPTION\System\BIOS"
    current = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
    host = fake.other(
        "win32",
        {
            (cpu, "ProcessorNameString"): "Intel(R) Core(TM) Ultra 7 258V   ",
            (cpu, "VendorIdentifier"): "GenuineIntel",
            (cpu, "Update Revision"): "000000001f010000",
            (bios, "BIOSVersion"): "N40ET30W",
            (current, "CurrentBuildNumber"): "26100",
            (current, "UBR"): "2033",
        },
    )
    seen = identity.machine(host)
    assert seen["os_version"] == "26100.2033"
    assert seen["cpu_model"] == "Intel(R) Core(TM) Ultra 7 258V"
    assert seen["microcode"] == "0x11f"
    assert seen["bios"] == "N40ET30W"
    assert seen["why"]["isa"] == "Windows does not list them through a documented call"
    odd = fake.other("win32", {(cpu, "Update Revision"): "17"})
    assert identity.microcode(odd).value is None


def test_the_boot_digest_changes_with_the_boot_and_hides_the_id(fake: Any) -> None:
    fake.write("/proc/sys/kernel/random/boot_id", "first")
    first = identity.boot(fake.host).value
    assert first == identity.boot(fake.host).value
    assert "first" not in str(first)
    fake.write("/proc/sys/kernel/random/boot_id", "second")
    assert identity.boot(fake.host).value != first


def test_nothing_private_is_read_from_this_machine() -> None:
    seen = json.dumps(identity.machine(Host()))
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"):
        secret = Path(path)
        if secret.exists():
            assert secret.read_text().strip() not in seen
    node = platform.node()
    if len(node) > 4:  # a shorter name can be part of an innocent word
        assert node not in seen
    user = getpass.getuser()
    if len(user) > 4:
        assert user not in seen
