"""What of a run is made public, and what is known by its looks to be private.

The uploading side takes out what is not on these lists; the server refuses what is not.
"""

from __future__ import annotations

import re
from typing import Final

MACHINE: Final = frozenset(
    {
        *("os", "os_version", "kernel", "architecture", "isa", "memory_bytes"),
        *("cpu_model", "cpu_vendor", "cpu_family", "cpu_model_number", "cpu_stepping"),
        *("microcode", "bios", "bios_date", "board_vendor", "board_product"),
        *("virtualisation", "container"),
    }
)
"""Facts of ``machine`` that are published. The digest of the boot is not."""

FACTS: Final = frozenset(
    {
        *("ended_by", "idle_window_s", "resident_bytes", "became_idle", "sleep_held_off"),
        *("load_while_measuring", "pack_files_rebuilt", "spent_ns"),
    }
)
"""Facts of ``environment.facts`` that are published. Names of environment variables are not, nor
what broken runtimes said, nor how the machine was found at every resumption."""

DETAILS: Final = frozenset(
    {
        *("raw_name", "maker", "model_id", "machine", "cores", "memory_bytes"),
        *("driver", "firmware", "cuda_driver", "runtimes", "emulated", "identity"),
    }
)
"""Facts of a processor's ``details`` that are published. None is a hardware key."""

KEY_NAMES: Final = frozenset(
    {
        *("uuid", "luid", "serial", "serial_number", "bus", "pci_bus_id", "bus_address", "mac"),
        *("host", "hostname", "host_name", "user", "username", "user_name", "home", "machine_id"),
    }
)
"""Names of fields that no public payload has a value for, wherever they stand."""

_HEX = "[0-9a-f]"

PRIVATE: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (what, re.compile(pattern, re.IGNORECASE | re.ASCII))
    for what, pattern in (
        ("a UUID", rf"\b{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}\b"),
        ("a PCI bus address", rf"\b(?:{_HEX}{{4,8}}:)?{_HEX}{{2}}:{_HEX}{{2}}\.[0-7](?!\w|\.)"),
        (
            "an adapter's LUID",
            rf"(?<![^\W_])luid[\W_]{{0,4}}(?:0x)?{_HEX}{{6,}}|0x{_HEX}{{8}}_0x{_HEX}{{8}}",
        ),
        ("a network address", rf"\b(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}\b"),
        ("a home folder", r"(?:/home|/users|\\users)[/\\]+(?!<)[^\s/\\<>]+"),
        # From a word's beginning only: from each of its letters it would take the square of them.
        ("an e-mail address", r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}\b"),
        ("a serial number", r"\bserial(?: ?number| ?no\.?)? ?[:=#] ?\w{4,}"),
    )
)
"""What is private and how it looks. Narrower than what an upload takes out, which is every path."""
