"""Whatever a damaged or odd system holds, looking at it ends in values or in null, never in a
fault."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npumark.machine import cgroup, cpu_limits, identity, power, preconditions, sensors, windows
from npumark.machine.host import Battery, CpuTimes, Host, Memory, Reading
from npumark.machine.inventory import inventory
from npumark.machine.processors import assign
from npumark.policy import load_policy
from tests.machine.conftest import Fake
from tests.machine.test_inventory import PCI, link, pci

TEXTS = (
    "", "0", "-1", "1", "99999999999", "9" * 6000, "0x" + "f" * 6000, "0-9999999999999", "1-2-3",
    "-", "²", "١٢", "1.2.3", ".", "\udce4\udc00\x1b[31m", "\x00\x01\x7f", "a:b:c", ":", "=",
    "cpu 1 2 3 4 5", "cpu  ² 1 1 1 1", "cpu MHz\t: ...", "model name\t: \x1b[2J", "flags : avx2",
    "MemTotal: 99999999999999999999999999 kB", "0::/a/../b", "1:cpu,memory:/x",
    "1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw", "- - - -", "max 100000", "100000 0",
    "8086\t\tx", "8086  Intel\n\t7d55  Arc [/]", "C 03", "0x030000", "0x8086", "0x7d55", "0x1002",
    "Battery", "Mains", "passive", "{}", "[]", '{"adapters": [{}]}', '{"cards": [{"bus": 5}]}',
    '{"SPDisplaysDataType": [{"sppci_model": 3, "spdisplays_vendor": []}]}', "CPU_Speed_Limit",
    "CPU_Speed_Limit = ²", "lowpowermode ²", "[" * 100_000, "null", "3",
)  # fmt: skip
NAMES = ("0000:01:00.0", "zz:00", "0000:00:1f.9", "cpu0", "cpu0x", "cpu²", "card0", "card0-DP-1",
         "policy0", "accel0", "thermal_zone0", "trip_point_0_temp", "BAT0", "\udcff")  # fmt: skip


@dataclass(frozen=True)
class Damaged(Host):
    """A host whose every file, folder, link and answer is drawn from what is odd."""

    draw: st.DrawFn = None  # type: ignore[assignment]

    def text(self) -> str:
        return str(self.draw(st.sampled_from(TEXTS)))

    def read(self, absolute: str) -> Reading:
        text = self.text().strip("\0\n\t ")
        return Reading(text) if text else Reading(None, "empty")

    def listing(self, absolute: str, pattern: str) -> list[str]:
        found = self.draw(st.lists(st.sampled_from(NAMES), max_size=3))
        return [f"{absolute}/{name}" for name in found]

    def linked(self, absolute: str) -> str | None:
        known = ["amdgpu", "amdxdna", "nvidia", "msm", "..", "x" * 200, None]
        return self.draw(st.sampled_from(known))

    def exists(self, absolute: str) -> bool:
        return self.draw(st.booleans())


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    def text() -> str:
        return str(draw(st.sampled_from(TEXTS)))

    def reading(*_: object) -> Reading:
        return Reading(text()) if draw(st.booleans()) else Reading(None, text())

    return Damaged(
        system=draw(st.sampled_from(["linux", "darwin", "win32"])),
        root=Path("/nowhere"),
        affinity=lambda: draw(st.sampled_from([None, frozenset({0, 1}), frozenset({7})])),
        logical=lambda: draw(st.sampled_from([None, 1, 8])),
        physical=lambda: draw(st.sampled_from([None, 1, 8])),
        windows_cores=lambda: draw(st.binary(max_size=64)),
        output=reading,
        registry=reading,
        battery=lambda: draw(st.sampled_from([None, Battery(True, None), Battery(True, False)])),
        memory=lambda: Memory(8 << 30, 4 << 30),
        cpu_times=lambda: CpuTimes(0, 0, None),
        own_cpu_s=lambda: None,
        boot_time=lambda: 1000.0,
        sleep=lambda _: None,
        monotonic=lambda: 0.0,
        release=text,
        version=text,
        architecture=lambda: draw(st.sampled_from(["", "arm64", "x86_64"])),
        draw=draw,
    )


POLICY = load_policy()
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(hosts())
def test_the_processors_of_a_damaged_system_are_listed(host: Host) -> None:
    processors, _ = assign([], inventory(host).cards)
    assert processors[0].role == "CPU"
    json.dumps([p.model_dump() for p in processors], ensure_ascii=False)
    for one in processors[1:]:
        assert one.name.isprintable()


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(hosts())
def test_every_fact_of_a_damaged_system_is_a_value_or_null(host: Host) -> None:
    assert identity.machine(host)["why"] is not None
    environment = preconditions.check(POLICY, 1 << 30, 0.0, host)
    assert all(c.value is not None or c.why for c in environment.checks.values())
    assert cpu_limits.limits(host).threads >= 1
    assert power.source(host).violation in (True, False)
    assert sensors.thermal(host).violation in (True, False)
    assert cgroup.quota_cpus(host) is None or host.system


@given(st.binary(max_size=200))
def test_no_answer_about_cores_is_too_odd(blob: bytes) -> None:
    assert all(cpus >= 0 for _, cpus in windows.core_classes(blob))


def test_links_that_lead_in_circles_and_bytes_that_are_no_text_do_no_harm(fake: Fake) -> None:
    for name in ("class", "vendor", "device"):
        link(fake, f"{PCI}/0000:02:00.0/{name}", f"{PCI}/0000:02:00.0/{name}")
    link(fake, f"{PCI}/0000:03:00.0", f"{PCI}/0000:03:00.0")
    pci(fake, "0000:04:00.0", "8086:64a0", "030000")
    link(fake, f"{PCI}/0000:04:00.0/driver", f"{PCI}/0000:04:00.0/driver")
    link(fake, f"{PCI}/0000:04:00.0/accel", f"{PCI}/0000:04:00.0/accel")
    link(fake, "/sys/class/misc/fastrpc-cdsp", "/sys/class/misc/fastrpc-cdsp")
    pci(fake, "0000:05:00.0", "8086:64a0", "030000", "xe")
    (fake.root / "sys/module/xe").mkdir(parents=True)
    (fake.root / "sys/module/xe/version").write_bytes(b"\xff\x00\x1b[31m9\n\x80")
    link(fake, "/sys/class/drm", "/sys/class/drm")
    processors, _ = assign([], inventory(fake.host).cards)
    # What a link leads to by its own name is all that is asked of it.
    assert [p.role for p in processors] == ["CPU", "dGPU", "dGPU"]
    assert processors[2].details["driver"] == "xe [31m9"


@pytest.mark.parametrize("ids", ["1002:744c", "8086:64a0"])
def test_thousands_of_devices_are_listed_one_by_one(fake: Fake, ids: str) -> None:
    count = 2000
    for n in range(count):
        pci(fake, f"{n // 255:04x}:{n % 255 + 1:02x}:01.0", ids, "030000")
    processors, _ = assign([], inventory(fake.host).cards)
    assert [(p.role, p.number) for p in processors[1:]] == [("dGPU", n + 1) for n in range(count)]
