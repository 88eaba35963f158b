"""ONNX Runtime's plug-in providers: packages that bring a library to register.

A package of a catalogue row is found by its module. Any other package is found by what every
plug-in has: a module that tells the path of its library and its provider's name. Such a module
is imported here, in the worker, and only where its source says that it is one.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions, version
from pathlib import Path
from typing import Any

from npumark.engines.catalogue import EVERYWHERE, PROVIDERS, Provider
from npumark.engines.missing_libraries import in_words, missing
from npumark.errors import EngineError

OTHERS = "others"
"""Asks a probe for the plug-ins that the catalogue does not know."""

_LIBRARY = ("get_library_path", "library_path")
_NAMES = ("get_ep_names", "get_ep_name", "ep_name", "EP_NAME")
_TELLS = re.compile(r"^def (?:get_)?library_path\(", re.MULTILINE)
_MAX_SOURCE = 256 << 10

_registered: dict[str, str] = {}
"""Provider names registered in this process, with their libraries: twice is refused."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in that is here. ``library`` is null with ``fault``, one sentence, where it cannot
    be used. ``details`` say where it comes from."""

    row: Provider
    package: str
    version: str | None
    library: str | None
    fault: str | None = None
    details: dict[str, str] = field(default_factory=dict)


def installed_plugins(*, others: bool = True) -> tuple[Plugin, ...]:
    """Return every installed plug-in: those of the catalogue, then ``others`` by package name."""
    found = [
        _describe(row, row.packages[0], row.module)
        for row in PROVIDERS
        if row.runtime == "ort" and row.module is not None and _present(row.module)
    ]
    if others:
        known = {row.module for row in PROVIDERS if row.module is not None}
        for package, module in _candidates(known):
            found.append(_unknown(package, module))
    return tuple(found)


def register(onnxruntime: Any, plugin: Plugin) -> str | None:
    """Register the plug-in's library, once per process; return why it cannot be, or null."""
    name = plugin.row.provider_name
    if plugin.fault is not None or plugin.library is None or name is None:
        return plugin.fault or "the package names no library"
    if _registered.get(name) == plugin.library:
        return None
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        return f"ONNX Runtime {onnxruntime.__version__} takes no plug-ins; it needs 1.23 or newer"
    try:
        onnxruntime.register_execution_provider_library(name, plugin.library)
    except Exception as fault:  # noqa: BLE001 - a plug-in that fails is reported, not raised
        if "already registered" not in str(fault).lower():
            return f"its library cannot be loaded: {in_words(fault)}"
    _registered[name] = plugin.library
    return None


def third_party(module: str, provider_name: str, package: str) -> Provider:
    """Return a row for a plug-in that the catalogue does not know: plain variants, and placement
    by what ONNX Runtime itself reports."""
    slug = re.sub(r"[^a-z0-9]+", "-", provider_name.removesuffix("ExecutionProvider").lower())
    usual = ("fp32", "fp16", "int8-u8s8")
    roles = ("CPU", "iGPU", "dGPU", "NPU")
    return Provider(
        id=f"ort-{slug.strip('-') or 'plugin'}",
        runtime="ort",
        provider_name=provider_name,
        title=f"ONNX Runtime with {provider_name.removesuffix('ExecutionProvider')}",
        kind="plug-in",
        module=module,
        packages=(package,),
        environment=None,
        platforms=EVERYWHERE,
        roles=roles,
        id_suffixes={"CPU": "cpu", "iGPU": "gpu", "dGPU": "gpu", "NPU": "npu"},
        variants_by_role=dict.fromkeys(roles, usual),
        extra_variants_by_role=dict.fromkeys(roles, ("w8", "int8-s8s8")),
        accelerates="not known: the package is not in the catalogue",
        placement="graph assignment and profile",
        # Nothing says that a call waits, and a bound output is read back either way.
        asynchronous=True,
    )


def _describe(row: Provider, package: str, module: str | None) -> Plugin:
    installed = _version(package, module)
    try:
        library = _library(importlib.import_module(str(module)))
    except Exception as fault:  # noqa: BLE001 - a broken package is reported, not raised
        return Plugin(row, package, installed, None, _broken(package, fault))
    return Plugin(row, package, installed, library)


def _unknown(package: Distribution, module: str) -> Plugin:
    name = package.metadata["Name"]
    try:
        loaded = importlib.import_module(module)
        told = _names(loaded)[0]
        # Another package may bring a provider that is known.
        known = (row for row in PROVIDERS if row.provider_name == told)
        row = next(known, None) or third_party(module, told, name)
        return Plugin(row, name, package.version, _library(loaded))
    except Exception as fault:  # noqa: BLE001 - a broken package is reported, not raised
        row = third_party(module, module.removeprefix("onnxruntime_"), name)
        return Plugin(row, name, package.version, None, _broken(name, fault))


def _candidates(known: set[str]) -> list[tuple[Distribution, str]]:
    """Return the packages, each with a module of its own, whose source tells of a library."""
    found: dict[str, tuple[Distribution, str]] = {}
    for package in distributions():
        try:
            name = (package.metadata["Name"] or "").lower()
            needs = any(re.match(r"onnxruntime\b", r.lower()) for r in package.requires or ())
            files = list(package.files or ()) if needs or name.startswith("onnxruntime") else []
        except Exception:  # noqa: BLE001, S112 - a package of damaged metadata is none of ours
            continue
        for path in files:
            if len(path.parts) != 2 or path.name != "__init__.py":
                continue
            module = path.parts[0]
            if module not in known and module != "onnxruntime" and _tells(package, path):
                found.setdefault(module, (package, module))
    return [found[module] for module in sorted(found)]


def _tells(package: Distribution, path: Any) -> bool:
    source = Path(str(package.locate_file(path)))
    try:
        with source.open(encoding="utf-8", errors="replace") as stream:
            return bool(_TELLS.search(stream.read(_MAX_SOURCE)))
    except OSError:
        return False


def _library(module: Any) -> str:
    for name in _LIBRARY:
        told = getattr(module, name, None)
        if callable(told):
            path = Path(str(told()))
            if not path.is_file():
                raise EngineError(f"{path.name} is not where the package says it is")
            return str(path)
    raise EngineError("it tells no library's path")


def _names(module: Any) -> list[str]:
    for name in _NAMES:
        told = getattr(module, name, None)
        told = told() if callable(told) else told
        if isinstance(told, str) and told:
            return [told]
        if isinstance(told, (list, tuple)) and told:
            return [str(one) for one in told]
    raise EngineError("it tells no provider's name")


def _broken(package: str, fault: Exception) -> str:
    if missing(str(fault)):
        return f"the package {package} cannot be used: {in_words(fault)}"
    return f"the package {package} cannot be used ({in_words(fault)}); reinstall it"


def _present(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(package: str, module: str | None) -> str | None:
    for name in (package, (module or "").replace("_", "-")):
        try:
            return version(name)
        except Exception:  # noqa: BLE001, S112 - a module without its metadata has no version
            continue
    return None
