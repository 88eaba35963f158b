"""Every way this tool knows to reach a processor: runtimes, their providers, their environments.

Pure data. The engines read it to know what to hand to a runtime and what to measure on it; the
page that lists the engines is generated from it. What each row claims was measured, is emulated
or has not yet run on the hardware, and says which by role. Everything is read from here; the rows
themselves are in modules of their own.
"""

from __future__ import annotations

from npumark.engines.catalogue_environments import ENVIRONMENTS
from npumark.engines.catalogue_native import NATIVE_PROVIDERS
from npumark.engines.catalogue_ort import ORT_PROVIDERS
from npumark.engines.catalogue_rows import EVERYWHERE, Cache, Environment, Provider

__all__ = [
    "ENVIRONMENTS",
    "EVERYWHERE",
    "PROVIDERS",
    "Cache",
    "Environment",
    "Provider",
    "environment",
    "provider",
]

PROVIDERS: tuple[Provider, ...] = (*ORT_PROVIDERS, *NATIVE_PROVIDERS)


def provider(identifier: str) -> Provider | None:
    """Return the row with this id, or null."""
    return next((row for row in PROVIDERS if row.id == identifier), None)


def environment(name: str) -> Environment | None:
    """Return the environment of this name, or null."""
    return next((row for row in ENVIRONMENTS if row.name == name), None)
