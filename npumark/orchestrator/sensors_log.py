"""What the machine's sensors say while a step runs: a thread that reads them now and then.

Reading is cheap and never fails a step: what cannot be told is null, with the reason. NVIDIA's
cards are asked by a process of their own that lives as long as the log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from npumark.machine import cpu_sensors, gpu_sensors, nvidia_sensors
from npumark.machine.host import THIS, Host
from npumark.orchestrator import containment
from npumark.orchestrator.worker_env import worker_environment

Reading = dict[str, Any]

_FRESH_PERIODS = 2
"""A card's answer older than this many periods says nothing of now."""

_GONE_WITHIN_S = 2.0
"""For a killed process to be gone: one that hangs in a driver is left to the system."""


class SensorLog:
    """Reads every ``period_s`` from entering to leaving, and once more at the end.

    Each of ``readings`` has ``at_ns`` (the performance counter, which timed calls are stated in
    as well), what ``cpu_sensors.reading`` tells, and ``gpus`` where there is a card: a list of
    what ``gpu_sensors`` and ``nvidia_sensors`` tell; ``why["gpus"]`` where NVML does not answer.
    """

    def __init__(
        self,
        period_s: float,
        *,
        host: Host = THIS,
        nvidia: Sequence[str] | None = None,
        marker: str = "npumark-sensors",
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._period_s = period_s
        self._host = host
        self._clock = clock
        self._marker = marker
        self._command = (*(nvidia or nvidia_sensors.COMMAND), str(period_s))
        self._asks_nvidia = nvidia is not None or nvidia_sensors.present(host)
        self._cards: _Cards | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="npumark-sensors", daemon=True)
        self._readings: list[Reading] = []

    @property
    def readings(self) -> tuple[Reading, ...]:
        return tuple(self._readings)

    def __enter__(self) -> Self:
        if self._asks_nvidia:
            self._cards = _Cards(self._command, self._marker)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(self._period_s)
        if self._cards is not None:
            self._cards.close()

    def read(self) -> Reading:
        """Return one reading of now."""
        at_ns = self._clock()
        try:
            told = cpu_sensors.reading(self._host)
            gpus = gpu_sensors.readings(self._host)
        except Exception as fault:  # noqa: BLE001 - a sensor's oddity may not end a probe
            said = f"reading it failed: {type(fault).__name__}: {fault}"
            unread = dict.fromkeys(("cpu_khz", "hottest_celsius", "cpu_s"), said)
            told, gpus = {**dict.fromkeys(unread), "throttling": {}, "why": unread}, []
        if self._cards is not None:
            fresh_ns = round(_FRESH_PERIODS * self._period_s * 1e9)
            cards, why = self._cards.since(at_ns - fresh_ns)
            gpus = gpus + cards
            if why is not None:
                told["why"] = {**told["why"], "gpus": why}
        return {"at_ns": at_ns, **told, **({"gpus": gpus} if gpus else {})}

    def _run(self) -> None:
        while True:
            over = self._over.is_set()
            self._readings.append(self.read())
            if over:
                return
            self._over.wait(self._period_s)


class _Cards:
    """The process that asks NVML, and its last answer."""

    def __init__(self, command: Sequence[str], marker: str) -> None:
        self._latest: Reading | None = None
        self._why: str | None = None
        self._child: subprocess.Popen[bytes] | None = None
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=worker_environment(os.environ, marker),
                cwd=tempfile.gettempdir(),
                preexec_fn=containment.before_it_starts() if sys.platform != "win32" else None,
                start_new_session=sys.platform != "win32",
            )
        except OSError as fault:
            self._why = f"NVIDIA's NVML cannot be asked: {fault.strerror or fault}"
            return
        containment.once_started(self._child)
        self._reader = threading.Thread(target=self._read, args=(self._child,), daemon=True)
        self._reader.start()

    def since(self, at_ns: int) -> tuple[list[Reading], str | None]:
        """Return the cards as last told, none where that was before ``at_ns``, and then why."""
        latest = self._latest
        if latest is not None and latest["at_ns"] >= at_ns:
            return list(latest["gpus"]), None
        return [], self._why or "NVIDIA's NVML has not answered lately"

    def close(self) -> None:
        if self._child is None:
            return
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()
        with suppress(OSError):
            self._child.kill()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_GONE_WITHIN_S)
            self._reader.join(_GONE_WITHIN_S)  # a child of its own may hold the pipe

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        stdout = child.stdout
        if stdout is None:
            return
        with suppress(OSError, ValueError, TypeError, KeyError), stdout:
            for line in stdout:
                told = json.loads(line)
                if "fault" in told:
                    self._why = str(told["fault"])
                else:
                    self._latest = {"at_ns": int(told["at_ns"]), "gpus": list(told["gpus"])}
        self._why = self._why or "the process that asks NVIDIA's NVML ended"
