"""The execution providers that Windows ML delivers and keeps up to date.

Not yet run on hardware: written against the package ``windowsml`` 2.5.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.engines.ort_plugins import Plugin, third_party
from npumark.errors import EngineError

_known: dict[str, Plugin] = {}
"""What this process found, by catalogue id: to make a provider ready takes long; once will do."""


def offered(wanted: Callable[[Provider], bool] = lambda _: True) -> tuple[Plugin, ...]:
    """Return the ``wanted`` providers of Windows ML's catalogue that are on this computer, made
    ready, and those that it offers but did not install, with that as their fault. Empty without
    the package. Raises EngineError, with the reason, where Windows ML does not answer.

    Nothing is downloaded here: a probe and a run open no connection.
    """
    try:
        if importlib.util.find_spec("windowsml") is None:
            return ()
        with importlib.import_module("windowsml").EpCatalog() as catalogue:
            return tuple(_wanted(catalogue.find_all_providers(), wanted))
    except Exception as fault:
        said = " ".join(str(fault).split())[:200] or type(fault).__name__
        raise EngineError(f"Windows ML does not answer ({said}); run Windows Update") from fault


def ready(provider_id: str) -> Plugin | None:
    """Return one provider, from what this process knows already where it was asked before; null
    where Windows ML does not offer it. Raises EngineError as ``offered`` does."""
    if provider_id not in _known:
        offered(lambda row: row.id == provider_id)
    return _known.get(provider_id)


def _wanted(providers: Iterable[Any], wanted: Callable[[Provider], bool]) -> Iterator[Plugin]:
    for provider in providers:
        row = _row(str(provider.name))
        if not wanted(row):
            continue
        if row.id not in _known:
            _known[row.id] = _describe(provider, row)
        yield _known[row.id]


def install_all(tell: Callable[[str], None] = lambda _: None) -> tuple[str, ...]:
    """Have Windows download and install every provider that it offers for this computer; return
    their names. ``tell`` is called with each name before it is asked for.

    Raises OSError, once all were asked for, naming those that failed.
    """
    names, faults = [], []
    with importlib.import_module("windowsml").EpCatalog() as catalogue:
        for provider in catalogue.find_all_providers():
            name = str(provider.name)
            tell(name)
            try:
                provider.ensure_ready()
            except OSError as fault:
                faults.append(f"{name} ({' '.join(str(fault).split())[:100]})")
            names.append(name)
    if faults:
        raise OSError(f"not {', '.join(faults)}")
    return tuple(names)


def install_offered() -> int:
    """Install them, told line by line on standard output; return the exit status."""
    try:
        install_all(lambda name: print(f"asking for {name}", flush=True))
    except Exception as fault:  # noqa: BLE001 - told in a line, whatever the package raises
        print(" ".join(str(fault).split()), flush=True)
        return 1
    return 0


def _row(name: str) -> Provider:
    known = (row for row in PROVIDERS if row.provider_name == name)
    return next(known, None) or third_party("windowsml", name, "windowsml")


def _describe(provider: Any, row: Provider) -> Plugin:
    name = str(provider.name)
    state = str(getattr(provider.ready_state, "name", provider.ready_state))
    details = {
        "source": "windows-ml",
        "package_family_name": str(provider.package_family_name),
        "certification": str(getattr(provider.certification, "name", provider.certification)),
        "ready_state": state,
    }
    package = details["package_family_name"] or "windowsml"
    version = str(provider.version) or None
    if state == "NotPresent":
        fault = (
            f"Windows ML offers {name} and has not installed it; "
            "run `npumark engines install windowsml`"
        )
        return Plugin(row, package, version, None, fault, details)
    try:
        provider.ensure_ready()
        library = str(provider.library_path)
    except Exception as broken:  # noqa: BLE001 - told as the fault of this provider alone
        fault = f"Windows ML cannot make {name} ready: {' '.join(str(broken).split())[:200]}"
        return Plugin(row, package, version, None, fault, details)
    if not library or not Path(library).is_file():
        fault = f"Windows ML names no library for {name}; run Windows Update"
        return Plugin(row, package, version, None, fault, details)
    return Plugin(row, package, version, library, None, details)
