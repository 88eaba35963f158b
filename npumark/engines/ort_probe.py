"""The engines of this ONNX Runtime: every provider's devices, each having run a model, or why not.

What is compiled in is not what works, so a one-node model runs on each device, in a session that
may not use the CPU provider. A provider that is not here is listed too, with what it takes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.engines.library_files import damage
from npumark.engines.missing_libraries import in_words, missing
from npumark.engines.native_libraries import ort_libraries
from npumark.engines.one_node import SHAPE, one_node_model
from npumark.engines.ort_devices import WITHOUT_GPU, Device, listed_devices, named_devices
from npumark.engines.ort_options import provider_options
from npumark.engines.ort_plugins import OTHERS, Plugin, installed_plugins, register
from npumark.engines.ort_session import bring_provider, create
from npumark.engines.ort_wheels import Wheels, installed_wheels
from npumark.engines.ort_windows_ml import offered
from npumark.engines.platforms import here
from npumark.errors import EngineError
from npumark.worker.protocol import EngineInfo

_NEVER = frozenset({"AzureExecutionProvider"})
"""Providers that send work to another computer: no device of this one."""


def probe_engines(only: list[str] | None) -> tuple[EngineInfo, ...]:
    """Return the engines of ``only`` these catalogue ids, or of every provider.

    OTHERS among them asks for the providers that the catalogue does not know. A provider that is
    not asked for is not loaded: it may be what brings a process down.
    """
    import onnxruntime

    wheels = installed_wheels()
    shadowing = wheels.shadowing()
    plugins, windows_fault = _plugins(only)
    faults = {
        name: register(onnxruntime, plugin) for name, plugin in plugins.items() if shadowing is None
    }
    listed = list(onnxruntime.get_available_providers())
    devices = list(getattr(onnxruntime, "get_ep_devices", list)())
    rows = [row for row in PROVIDERS if row.runtime == "ort"]
    rows += [p.row for p in plugins.values() if p.row not in rows]
    found: list[EngineInfo] = []
    for row in rows:
        if not _is_asked_for(row, only):
            continue
        plugin = plugins.get(str(row.provider_name))
        context = _Context(onnxruntime, wheels, plugin)
        present = plugin is not None or row.provider_name in listed or _owned(row, wheels)
        if shadowing is not None and row.id != "ort-cpu" and present:
            found += context.absent(row, shadowing)
            continue
        try:
            fault = faults.get(str(row.provider_name))
            found += context.present(
                row, _devices(row, onnxruntime, listed, devices, plugin, fault)
            )
        except EngineError as fault_found:
            found += context.absent(row, fault_found.message)
        except Exception as broken:  # noqa: BLE001 - one provider's fault is its own
            said = in_words(broken, 300) or type(broken).__name__
            found += context.absent(row, f"its devices cannot be listed: {said}")
    if windows_fault is not None:
        found.append(_missing(onnxruntime, wheels, "ort-windowsml", windows_fault))
    if only is None or OTHERS in only:
        found += _unknown(onnxruntime, wheels, listed, {str(row.provider_name) for row in rows})
    return tuple(found)


def _plugins(only: list[str] | None) -> tuple[dict[str, Plugin], str | None]:
    """Return the plug-ins to use by provider name, Windows' own where a package is not here; and
    why Windows ML has none to offer, null where it answers."""
    found: dict[str, Plugin] = {}
    if only == ["ort-cpu"]:
        return found, None
    others = only is None or OTHERS in only
    for plugin in installed_plugins(others=others):
        if _is_asked_for(plugin.row, only):
            found.setdefault(str(plugin.row.provider_name), plugin)
    packaged = set(found)

    def wanted(row: Provider) -> bool:
        return row.provider_name not in packaged and _is_asked_for(row, only)

    try:
        for plugin in offered(wanted):
            found.setdefault(str(plugin.row.provider_name), plugin)
    except EngineError as fault:
        return found, fault.message
    return found, None


def _is_asked_for(row: Provider, only: list[str] | None) -> bool:
    return only is None or row.id in only or (OTHERS in only and row not in PROVIDERS)


def _devices(
    row: Provider,
    onnxruntime: Any,
    listed: list[str],
    devices: list[Any],
    plugin: Plugin | None,
    fault: str | None,
) -> list[Device]:
    """Return the provider's devices. Raises EngineError with the reason where it has none."""
    if fault is not None:
        raise EngineError(damage(row.packages, row.environment) or fault)
    if row.id == "ort-cpu":
        return named_devices(row, onnxruntime, None)
    found = listed_devices(row, devices, plugin)
    if found:
        return found
    if row.provider_name in listed:
        return named_devices(row, onnxruntime, plugin)
    if plugin is not None:
        if broken := damage(row.packages, row.environment):
            raise EngineError(broken)
        raise EngineError(f"the package {plugin.package} finds no device here{_needs(row)}")
    raise EngineError(_how_to_get(row))


def _owned(row: Provider, wheels: Wheels) -> bool:
    """Say whether a build of the row's own is installed, whether or not it is the one imported."""
    return bool((set(row.packages) - {"onnxruntime"}) & set(wheels.builds))


def _needs(row: Provider) -> str:
    return f"; it needs {row.needs}" if row.needs else ""


def _how_to_get(row: Provider) -> str:
    """Say what it takes to have the provider, for this computer."""
    if here() not in row.platforms:
        systems = {"linux": "Linux", "macos": "macOS", "windows": "Windows"}
        names = sorted({systems[p.split("-")[0]] for p in row.platforms})
        if systems.get(here().split("-")[0]) in names:
            return f"{row.title} is not made for this kind of processor"
        return f"{row.title} runs on {' and '.join(names)} only"
    if row.environment is not None:
        return f"not installed; run `npumark engines install {row.environment}`"
    return f"this build of ONNX Runtime has no {row.provider_name}{_needs(row)}"


class _Context:
    """What all engines of one provider share."""

    def __init__(self, onnxruntime: Any, wheels: Wheels, plugin: Plugin | None) -> None:
        self._onnxruntime, self._wheels, self._plugin = onnxruntime, wheels, plugin

    def absent(self, row: Provider, why: str) -> list[EngineInfo]:
        """Return the row's engines as unavailable, each id once."""
        ids = dict.fromkeys(row.engine_id(role) for role in row.roles)
        return [self._info(row, engine, None, why) for engine in ids]

    def present(self, row: Provider, devices: list[Device]) -> list[EngineInfo]:
        """Return an engine for each device, having run a model on it."""
        totals = Counter(row.engine_id(device.role) for device in devices)
        numbers: Counter[str] = Counter()
        found = []
        for device in devices:
            stem = row.engine_id(device.role)
            numbers[stem] += 1
            name = stem if totals[stem] == 1 else f"{stem}-{numbers[stem]}"
            why = device.why or self._try_one_node(row, device)
            found.append(self._info(row, name, device, why))
        lacking = {row.engine_id(role): role for role in reversed(row.roles)}
        for name in sorted(set(lacking) - set(totals), key=list(lacking).index, reverse=True):
            kind = lacking[name].removeprefix("i").removeprefix("d")
            why = f"{row.title} finds no {kind} here{_needs(row)}"
            found.append(self._info(row, name, None, why))
        return found

    def _libraries(self, row: Provider, role: str) -> dict[str, str]:
        """Return the sha256 of what was loaded to compute with, by file name."""
        origin = getattr(self._onnxruntime, "__file__", None)
        capi = None if origin is None else Path(origin).parent / "capi"
        plugin = None if self._plugin is None else self._plugin.library
        return ort_libraries(row, role, plugin, capi)

    def _try_one_node(self, row: Provider, device: Device) -> str | None:
        try:
            try_one_node(row, device)
        except Exception as fault:  # noqa: BLE001 - a device that fails is reported, not raised
            if broken := damage(row.packages, row.environment):
                return broken
            needs = "" if missing(str(fault)) else _needs(row)
            if row.id == "ort-webgpu" and device.emulated:
                # Dawn refuses some adapters in software, Mesa's of Debian 12 among them.
                needs = f"; {WITHOUT_GPU}"
            return f"a one-node model fails: {in_words(fault, 300)}{needs}"
        return None

    def _info(self, row: Provider, name: str, device: Device | None, why: str | None) -> EngineInfo:
        versions = self._wheels.versions()
        if self._plugin is not None and self._plugin.version:
            versions[self._plugin.package] = self._plugin.version
        # Windows replaces its providers by itself: the record says which one it was.
        for fact in ("certification", "ready_state"):
            if self._plugin is not None and fact in self._plugin.details:
                versions[f"{self._plugin.package} {fact}"] = self._plugin.details[fact]
        if device is not None and why is None:
            versions |= self._libraries(row, device.role)
        info = EngineInfo(
            id=name,
            available=why is None,
            reason=why,
            runtime="ort",
            runtime_title=row.runtime_title,
            version=str(self._onnxruntime.__version__),
            versions=versions,
            local_only=row.local_only,
        )
        if device is None:
            return info
        note = self._wheels.shadowing()
        return replace(
            info,
            processor=device.processor(),
            variants=row.variants_by_role[device.role],
            extra_variants=row.extra_variants_by_role.get(device.role, ()),
            derived_from={
                name: graph
                for name, graph in row.derived_from.items()
                if name in row.variants_by_role[device.role]
            },
            options=_options(row, device, self._plugin),
            emulated=device.emulated,
            note=note and f"{note[0].upper()}{note[1:]}",
        )


def _options(row: Provider, device: Device, plugin: Plugin | None) -> dict[str, Any]:
    # OpenVINO compiles for a CPU in well under a second, and its cache would hold the weights.
    cached = row.cache != "none" and device.role != "CPU"
    options: dict[str, Any] = {"provider": row.id, "device": device.binding, "cache": cached}
    if row not in PROVIDERS and plugin is not None:
        options |= {
            "module": row.module,
            "package": plugin.package,
            "provider_name": row.provider_name,
        }
    return options


def try_one_node(row: Provider, device: Device) -> None:
    """Run a model of one node on the device and on nothing else; raise what is wrong."""
    bring_provider(row, device.binding)
    options = provider_options(row, device.binding, encoding="fp32", threads=1, cache=None)
    session = create(one_node_model(), row, device.binding, options, threads=1, strict=True)
    x = np.linspace(-1, 1, num=SHAPE[1], dtype=np.float32).reshape(SHAPE)
    (y,) = session.run(None, {"x": x})
    # A device may compute in FP16 or BF16 whatever it was asked for.
    if not np.allclose(y, np.maximum(x, 0), atol=1e-2):
        raise EngineError("it gives a wrong answer")


def _unknown(
    onnxruntime: Any, wheels: Wheels, listed: list[str], known: set[str]
) -> list[EngineInfo]:
    """Return the providers that are compiled in and that no row of the catalogue describes."""
    found = []
    for name in listed:
        if name in known or name in _NEVER:
            continue
        slug = name.removesuffix("ExecutionProvider").lower()
        why = f"npumark does not know the provider {name} that this build holds"
        found.append(_missing(onnxruntime, wheels, f"ort-{slug}", why))
    return found


def _missing(onnxruntime: Any, wheels: Wheels, name: str, why: str) -> EngineInfo:
    """Return a line for what is of no row of the catalogue and cannot be used."""
    return EngineInfo(
        id=name,
        available=False,
        reason=why,
        runtime="ort",
        runtime_title="ONNX Runtime",
        version=str(onnxruntime.__version__),
        versions=wheels.versions(),
    )
