"""What a row of the catalogue holds: a provider, or an environment that installs some.

Platforms are ``linux-x86_64``, ``linux-aarch64``, ``windows-amd64``, ``windows-arm64``,
``macos-arm64`` and ``macos-x86_64``. Roles are CPU, iGPU, dGPU and NPU. Variants are encodings
of graphs (``fp32``, ``fp16``, ``bf16``, ``w8``, ``int8-u8s8`` …).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["built-in", "plug-in", "native"]

Cache = Literal["ep-context", "folder", "none"]
"""How compiled models are kept: as an EPContext graph, in a folder that the runtime fills, or
not at all (the runtime has no such thing, or compiles in well under a second)."""

LINUX = ("linux-x86_64", "linux-aarch64")
WINDOWS = ("windows-amd64", "windows-arm64")
MACOS = ("macos-arm64", "macos-x86_64")
EVERYWHERE = (*LINUX, *WINDOWS, *MACOS)

UNTRIED = "not yet run on hardware"
EMULATED = "emulated"
MEASURED = "measured on an Intel Xeon with AMX under Linux"


@dataclass(frozen=True, slots=True)
class Provider:
    """One way to a kind of processor.

    ``id`` begins the ids of its engines; ``id_suffixes`` gives, by role, what follows it (empty:
    nothing). ``provider_name`` is ONNX Runtime's own, null for a runtime of another kind.
    ``module`` is the Python package of a plug-in. ``environment`` names the environment that
    installs it, null where the default installation has it or where only the maker's installer
    brings it. ``options`` are handed over as they are, always; what depends on a device or a
    cache is added by the engine. ``asynchronous``: a call may return before the work is done,
    so it is timed until the outputs are read. ``makers`` are those whose GPUs and NPUs it
    drives, as processors are named (machine.card.VENDORS); empty: any. ``states`` are those of
    the roles that were tried (see :meth:`state`).
    """

    id: str
    runtime: str
    provider_name: str | None
    title: str
    kind: Kind
    module: str | None
    packages: tuple[str, ...]
    environment: str | None
    platforms: tuple[str, ...]
    roles: tuple[str, ...]
    id_suffixes: Mapping[str, str]
    variants_by_role: Mapping[str, tuple[str, ...]]
    extra_variants_by_role: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    derived_from: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    accelerates: str = ""
    cache: Cache = "none"
    placement: str = ""
    asynchronous: bool = False
    local_only: bool = False
    makers: tuple[str, ...] = ()
    needs: str = ""
    traps: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)

    def state(self, role: str) -> str:
        """Return how far its engine on a device of ``role`` was tried, one of three:
        ``measured on …``, ``emulated``, ``not yet run on hardware``."""
        return self.states.get(role, UNTRIED)

    @property
    def runtime_title(self) -> str:
        """What its engines call their runtime: the name that a version follows, which for a
        provider of ONNX Runtime is ONNX Runtime's own."""
        if self.provider_name is None:
            return self.title
        if self.id == "ort-cpu":
            return "ONNX Runtime"
        return f"{self.title.removeprefix('ONNX Runtime with ')} in ONNX Runtime"

    def engine_id(self, role: str, number: int | None = None) -> str:
        """Return the id of its engine on a device of ``role``, numbered where there are several."""
        suffix = self.id_suffixes[role]
        parts = (self.id, suffix, "" if number is None else str(number))
        return "-".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Environment:
    """A set of pinned packages that live together in an interpreter of their own.

    ``providers`` are the catalogue ids that it serves, ``runtimes`` the engine entry points that
    are asked in it. ``roles_on`` gives, by platform, the roles that it brings where those are
    not all of its providers'. ``maker`` is whose card the computer must have for anything in it
    to work, null where it may work without one, and ``needs`` what else than the packages it
    takes where its providers do not say so. ``megabytes`` is what it took on the disk where it
    was tried (Linux on x86-64), null where it was not.
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    providers: tuple[str, ...]
    runtimes: tuple[str, ...]
    platforms: tuple[str, ...]
    note: str = ""
    megabytes: int | None = None
    maker: str | None = None
    needs: str = ""
    roles_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


FLOATS = ("fp32", "fp16")
GPU = {"iGPU": "gpu", "dGPU": "gpu"}
"""Suffix of a GPU's engine id."""
