"""Which ONNX Runtime is installed here, and whether several overwrite each other.

Every build of ONNX Runtime writes the same folder, ``onnxruntime``: of two that are installed
the one that came last is imported, whatever the other's name promises. Plug-ins have folders of
their own and do not count.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

_BUILDS = frozenset(
    f"onnxruntime{suffix}"
    for suffix in (
        "",
        "-azure",
        "-cann",
        "-coreml",
        "-directml",
        "-gpu",
        "-gpu-extended",
        "-lite",
        "-migraphx",
        "-openvino",
        "-rocm",
        "-silicon",
        "-training",
        "-training-cpu",
        "-trt-rtx",
        "-vitisai",
        "-webgpu",
        "-windowsml",
    )
)
"""Packages known to be a build of ONNX Runtime, even where their list of files is lost."""

_NAME = re.compile(r"^package_name = '([^']+)'", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Wheels:
    """``builds`` are the installed builds by name, ``plugins`` all else that is named after ONNX
    Runtime, both with versions. ``imported`` is the name of the build that an import gets, null
    where it does not say. ``library_sha256`` is the hash of its native library."""

    builds: dict[str, str]
    plugins: dict[str, str]
    imported: str | None
    library_sha256: str | None

    def versions(self) -> dict[str, str]:
        return {**self.builds, **self.plugins}

    def shadowing(self) -> str | None:
        """Say in a sentence that builds overwrite each other, and what to do; null: they don't."""
        if len(self.builds) < 2:
            return None
        named = " and ".join(f"{n} {v}" for n, v in sorted(self.builds.items()))
        won = f"{self.imported} is imported" if self.imported else "it is not known which one won"
        return (
            f"{named} overwrite each other in this Python ({won}): uninstall all of them, then "
            "install one, or use `npumark engines install` for the other"
        )


def installed_wheels() -> Wheels:
    """Return what is installed for this interpreter, without importing it."""
    spec = importlib.util.find_spec("onnxruntime")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    return wheels(distributions(), folder)


def wheels(packages: Iterable[Distribution], folder: Path | None) -> Wheels:
    """Return the builds among ``packages``; ``folder`` is the ``onnxruntime`` that is imported."""
    builds: dict[str, str] = {}
    plugins: dict[str, str] = {}
    for package in packages:
        name = re.sub(r"[-_.]+", "-", package.metadata["Name"] or "").lower()
        if name in _BUILDS or (name.startswith("onnxruntime") and _holds_runtime(package)):
            builds[name] = package.version
        elif name.startswith("onnxruntime-"):
            plugins[name] = package.version
    return Wheels(builds, plugins, _imported(folder), _library_sha256(folder))


def _holds_runtime(package: Distribution) -> bool:
    listed = package.read_text("RECORD") or ""
    return any(line.startswith("onnxruntime/__init__.py,") for line in listed.splitlines())


def _imported(folder: Path | None) -> str | None:
    if folder is None:
        return None
    try:
        told = (folder / "capi" / "build_and_package_info.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = _NAME.search(told)
    return found[1] if found else None


def _library_sha256(folder: Path | None) -> str | None:
    if folder is None:
        return None
    libraries = sorted((folder / "capi").glob("onnxruntime_pybind11_state*"))
    try:
        with libraries[0].open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, IndexError):
        return None
