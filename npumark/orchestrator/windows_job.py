"""A Windows job object: every process in it ends with it, and it ends with this program."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import ctypes
    import subprocess
    from ctypes import wintypes
    from typing import Any

    import psutil

    _KILL_ON_JOB_CLOSE = 0x2000
    _EXTENDED_LIMIT_INFORMATION = 9

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    class WindowsJob:
        """Holds one process and its descendants. Where the system refuses a job (nested jobs
        forbidden) the process tree as psutil sees it is killed instead."""

        def __init__(self, process: subprocess.Popen[Any]) -> None:
            self._pid = process.pid
            self._api = ctypes.WinDLL("kernel32", use_last_error=True)
            self._api.CreateJobObjectW.restype = wintypes.HANDLE
            self._job = self._api.CreateJobObjectW(None, None)
            limits = _ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            self._holds = bool(
                self._job
                and self._api.SetInformationJobObject(
                    wintypes.HANDLE(self._job),
                    _EXTENDED_LIMIT_INFORMATION,
                    ctypes.byref(limits),
                    ctypes.sizeof(limits),
                )
                and self._api.AssignProcessToJobObject(
                    wintypes.HANDLE(self._job),
                    wintypes.HANDLE(int(process._handle)),  # type: ignore[attr-defined]  # noqa: SLF001
                )
            )

        def terminate(self) -> None:
            if self._holds:
                self._api.TerminateJobObject(wintypes.HANDLE(self._job), 1)
            else:
                self._kill_tree()
            if self._job:
                self._api.CloseHandle(wintypes.HANDLE(self._job))
                self._job = None
                self._holds = False

        def _kill_tree(self) -> None:
            try:
                root = psutil.Process(self._pid)
                family = [*root.children(recursive=True), root]
            except psutil.Error:
                return
            for process in family:
                try:
                    process.kill()
                except psutil.Error:
                    continue
