"""A fake computer: a folder with its own /sys and /proc, and recorded answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from npumark.machine.host import Battery, CpuTimes, Host, Memory, Reading

STAT = "cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1\n"

USER = 1000
"""Who asks."""


@dataclass
class Fake:
    """``write`` fills the tree; ``host`` reads it. Its clock moves only when it sleeps, and each
    second of sleep adds ``load`` busy CPUs (of ``cpus``) to /proc/stat."""

    root: Path
    cpus: int = 2
    load: float = 0.0
    steal: float = 0.0
    now: float = 0.0
    own: float = 0.0
    ticks: dict[str, float] = field(default_factory=lambda: {"user": 0, "idle": 0, "steal": 0})
    on_sleep: Callable[[float], None] | None = None

    def write(self, absolute: str, text: str | int) -> None:
        path = self.root / absolute.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", "utf-8")

    def tree(self, files: dict[str, str | int]) -> None:
        for path, text in files.items():
            self.write(path, text)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.ticks["user"] += seconds * 100 * (self.load - self.steal)
        self.ticks["steal"] += seconds * 100 * self.steal
        self.ticks["idle"] += seconds * 100 * (self.cpus - self.load)
        self.stat()
        if self.on_sleep is not None:
            self.on_sleep(seconds)

    def stat(self) -> None:
        self.write("/proc/stat", STAT.format(**{k: round(v) for k, v in self.ticks.items()}))

    def topology(self, cores: dict[int, tuple[int, int]]) -> None:
        """Describe CPUs as {cpu: (package, core)}."""
        for cpu, (package, core) in cores.items():
            base = f"/sys/devices/system/cpu/cpu{cpu}/topology"
            self.tree({f"{base}/physical_package_id": package, f"{base}/core_id": core})

    @property
    def host(self) -> Host:
        return Host(
            system="linux",
            root=self.root,
            affinity=lambda: frozenset(range(self.cpus)),
            logical=lambda: self.cpus,
            physical=lambda: None,
            windows_cores=lambda: b"",
            output=lambda argv: Reading(None, f"{argv[0]} is not recorded"),
            registry=lambda _key, name: Reading(None, f"{name} is not recorded"),
            battery=lambda: None,
            memory=lambda: Memory(8 << 30, 4 << 30),
            cpu_times=lambda: CpuTimes(0, 0, None),
            own_cpu_s=lambda: self.own,
            processes=lambda: (),
            user=lambda: USER,
            boot_time=lambda: 1000.0,
            sleep=self.sleep,
            monotonic=lambda: self.now,
            release=lambda: "6.1.0-test",
            version=lambda: "#1 SMP",
            architecture=lambda: "x86_64",
        )

    def other(self, system: str, answers: dict[tuple[str, ...], str], **more: object) -> Host:
        """A Mac or a Windows machine with recorded answers."""

        def answer(argv: tuple[str, ...]) -> Reading:
            text = answers.get(argv)
            return Reading(text, None if text is not None else f"{argv[0]} ended with status 1")

        def value(key: str, name: str) -> Reading:
            return answer((key, name))

        host = replace(self.host, system=system, output=answer, registry=value)
        return replace(host, **more)  # type: ignore[arg-type]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    machine = Fake(tmp_path)
    machine.stat()
    return machine


PLUGGED = Battery(present=True, plugged=True)
UNPLUGGED = Battery(present=True, plugged=False)
