"""Which adapter LiteRT's GPU takes.

Its interface hands out no name, and takes none: the option for a preferred device is accepted
and read by nothing. What it takes is one line of its log, the same on Windows, macOS and Linux.
So a process of its own loads the one-node model as a session does, and its log is read. The
choice depends on the system alone, and a session makes the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from npumark.engines.vulkan_adapters import SOFTWARE_ROLE, Adapter, software_key

_COMMAND = (sys.executable, "-P", "-m", "npumark.engines.litert_adapter")
_LIMIT_S = 60.0
_LOG_BYTES = 1 << 20

_TAKEN = re.compile(
    r"Selected adapter: (?P<name>.+), arch=[^,\n]*, vendor=(?P<vendor>[^,\n]*), "
    r"backend=[^,\n]*, adapterType=(?P<kind>[^\n]*)"
)
_KINDS = {"cpu / software": "cpu", "integrated gpu": "integrated", "discrete gpu": "discrete"}
_VENDORS = {"amd": 0x1002, "intel": 0x8086, "nvidia": 0x10DE, "qualcomm": 0x5143}
"""WebGPU's words for vendors, and their PCI ids."""


def taken_adapter(run: Callable[..., Any] = subprocess.run) -> Adapter | None:
    """Return the adapter that LiteRT takes here, null where its log does not tell.

    An id that the log does not tell is 0.
    """
    try:
        done = run(_COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_log(done.stderr[-_LOG_BYTES:].decode(errors="replace"))


def parse_log(log: str) -> Adapter | None:
    """Return the adapter that the log names last, or null."""
    found = None
    for line in log.splitlines():
        found = _TAKEN.search(line) or found
    if found is None:
        return None
    kind = _KINDS.get(found["kind"].strip().lower(), "other")
    return Adapter(found["name"], kind, _VENDORS.get(found["vendor"].strip().lower(), 0), 0)


def processor_of(
    platform: str, taken: Adapter | None, listed: tuple[Adapter, ...]
) -> tuple[dict[str, Any], bool] | None:
    """Return the processor that LiteRT's GPU is, and whether it is emulated; null where nothing
    tells a card from a program.

    ``taken`` is what the log names, ``listed`` are Vulkan's adapters. Where the log is silent,
    Linux's GPU is known nevertheless if Vulkan has one adapter only, or programs alone.
    """
    if platform == "darwin":
        return {"key": "apple-gpu", "role": "iGPU", "name": None}, False
    if taken is None and platform.startswith("linux"):
        if len(listed) == 1:
            taken = listed[0]
        elif listed and all(adapter.software for adapter in listed):
            return {"role": SOFTWARE_ROLE, "name": None}, True
    if taken is None:
        return None
    if taken.software:
        return {"role": SOFTWARE_ROLE, "name": taken.name, **software_key(taken.name)}, True
    told: dict[str, Any] = {"name": taken.name, "role": "iGPU", "details": {}}
    same = {(a.vendor_id, a.device_id): a for a in listed if a.name == taken.name}
    model = next(iter(same)) if len(same) == 1 else (taken.vendor_id, taken.device_id)
    told |= {k: v for k, v in zip(("vendor_id", "device_id"), model, strict=True) if v}
    kinds = {taken.kind, *(a.kind for a in same.values())} & {"integrated", "discrete"}
    if len(kinds) == 1:
        told["role"] = "iGPU" if kinds == {"integrated"} else "dGPU"
    else:
        told["details"]["role_from"] = "nothing: LiteRT does not say whether it is a discrete card"
    return told, False


def main() -> int:
    """Load the one-node model on the GPU. Raises EngineError where that fails."""
    from npumark.engines.litert_library import Library, package_folder
    from npumark.engines.litert_native import Model
    from npumark.engines.litert_probe import one_node, settings

    Model(Library(package_folder()), one_node(), settings("GPU", None)).close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
