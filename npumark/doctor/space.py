"""Memory and disks: whether what a default run needs fits."""

from __future__ import annotations

import os
from pathlib import Path

from npumark import paths
from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.scene import Scene
from npumark.errors import SetupError
from npumark.machine.identity import meminfo
from npumark.machine.inventory import Inventory
from npumark.pack import store
from npumark.pack.manifest import Manifest, Workload
from npumark.pack.materialize import with_needs
from npumark.paths import HOME_VARIABLE

_NATIVE = {"darwin": frozenset({"coreml", "mlx"}), "linux": frozenset({"mlx"})}
"""Which systems have an engine that reads the graphs of Core ML and MLX; all read the others."""

_PAGE_FROM_SWAP_S = 1e-4
"""What a program waits for one page from a solid-state disk, about: 500 a second are 5 % of a
CPU's time. From memory that is compressed it is less, from a disk that turns far more."""


def resident_bytes(manifest: Manifest, cards: Inventory, system: str) -> int | None:
    """Return the most that one entry of a default run keeps in memory: the files it reads."""
    sizes = [
        sum(manifest.files[path].size for path in set(workload.files(variant.id)))
        for workload in _read_here(manifest, cards)
        for variant in workload.variants
        if _for_system(variant.id, system)
    ]
    return max(sizes, default=None)


def missing_bytes(manifest: Manifest, cards: Inventory, system: str) -> int:
    """Return how many bytes the first default run writes into the pack at the most; files that
    are there in their size count as made."""
    root = store.pack_root(manifest)
    wanted = [
        path
        for workload in _read_here(manifest, cards)
        for variant in workload.variants
        if _for_system(variant.id, system)
        for path in workload.files(variant.id)
    ]
    return sum(
        manifest.files[path].size
        for path in with_needs(manifest, wanted)
        if _size(root / path) != manifest.files[path].size
    )


def memory(scene: Scene) -> Examined:
    """Free memory against what the largest entry of a default run keeps in it."""
    seen = scene.environment.checks["memory"]
    about = ("memory", "Free memory")
    if seen.value is None:
        return unread(*about, seen.why)
    free, needed = seen.value["available_bytes"], seen.value["needed_bytes"]
    if needed is None:
        return unread(*about, seen.why)
    told = f"{_gb(free)} are free, and the largest entry needs {_gb(needed)}"
    if not seen.violation:
        return good(*about, seen.value, f"{told}.")
    limit = scene.host.system == "linux" and free < (meminfo(scene.host).get("MemAvailable") or 0)
    return spoils(
        *about,
        seen.value,
        f"{told}: it would be left out, or the machine would swap.",
        "Raise the memory limit (`docker run --memory`, Kubernetes `resources.limits.memory`, "
        "systemd `MemoryMax=`)."
        if limit
        else "Close programs that hold much memory.",
    )


def swap(scene: Scene) -> Examined:
    """A machine that swaps at this moment."""
    about = ("swap", "Swapping")
    if scene.host.system != "linux":
        return unread(*about, "only Linux counts what is swapped")
    if scene.swapped is None:
        return unread(*about, "/proc/vmstat does not count what is swapped")
    held = meminfo(scene.host)
    used = held.get("SwapTotal", 0) - held.get("SwapFree", 0)
    value = {"pages": scene.swapped, "used_bytes": used}
    moved = (
        f"Pages that went to or came from the swap within {scene.seconds:.0f} s: {scene.swapped}"
    )
    waited = scene.swapped * _PAGE_FROM_SWAP_S
    if waited > scene.policy.diagnose.notable * scene.seconds:
        return spoils(*about, value, f"{moved}.", "Close programs that hold much memory.")
    if scene.swapped:
        return noted(*about, value, f"{moved}, too few to slow a measurement.")
    if used:
        return noted(*about, value, f"{_gb(used)} lie in the swap; none of it moves now.")
    return good(*about, value, "Nothing lies in the swap.")


def pack_disk(scene: Scene) -> Examined:
    """Room for the pack's files that a default run has still to make."""
    about = ("pack_disk", "Disk of the pack")
    try:
        root = store.pack_root(scene.manifest)
        missing = missing_bytes(scene.manifest, scene.inventory, scene.host.system)
    except SetupError as fault:
        return spoils(*about, None, f"{fault.message}.", fault.hint or "")
    return _disk(scene, about, root, missing)


def runs_disk(scene: Scene) -> Examined:
    """Room for records and journals."""
    about = ("runs_disk", "Disk of the runs")
    try:
        return _disk(scene, about, paths.data_dir(), 0)
    except SetupError as fault:
        return spoils(*about, None, f"{fault.message}.", fault.hint or "")


def temporary(scene: Scene) -> Examined:
    """A folder for temporary files, which runtimes and pip use."""
    about = ("temporary_folder", "Temporary folder")
    try:
        place = scene.outside.temporary()
    except FileNotFoundError:
        return spoils(
            *about,
            None,
            "No folder for temporary files can be written to.",
            "Set TMPDIR to a folder that can.",
        )
    free = scene.outside.free(place)
    value = {"folder": str(place), "free_bytes": free}
    if free < store.SPACE_MARGIN:
        return spoils(
            *about,
            value,
            f"{place} has {_gb(free)} left, and runtimes write there.",
            "Free some space, or set TMPDIR to a folder on another disk.",
        )
    return good(*about, value, f"{place} has {_gb(free)} left.")


def _disk(scene: Scene, about: tuple[str, str], folder: Path, missing: int) -> Examined:
    place = next(p for p in (folder, *folder.parents) if _there(p))
    try:
        free = scene.outside.free(place)
    except OSError as fault:
        return unread(*about, f"{place}: {fault.strerror or fault}")
    value = {"folder": str(folder), "free_bytes": free, "missing_bytes": missing}
    move = f"set {HOME_VARIABLE} to a folder on another disk"
    if not scene.outside.writable(place):
        return spoils(
            *about,
            value,
            f"{place} takes no files: it is read-only, or belongs to somebody else.",
            f"Make it writable, or {move}.",
        )
    # Where all files are made only the journal and the record are still to be written.
    needed = missing + store.SPACE_MARGIN
    if free < needed:
        return spoils(
            *about,
            value,
            f"{folder} needs {_gb(needed)}, and its disk has {_gb(free)} left.",
            f"Free {_gb(needed - free)}, or {move}.",
        )
    left = f"the disk of {folder} has {_gb(free)} left"
    if missing:
        return good(*about, value, f"{_gb(missing)} are to be made, and {left}.")
    return good(*about, value, f"{left[0].upper()}{left[1:]}.")


def _read_here(manifest: Manifest, cards: Inventory) -> tuple[Workload, ...]:
    """Return what a default run reads with these cards: the large chain is for discrete GPUs."""
    tiers = {"peak", "scored"}
    if any(card.role == "dGPU" for card in cards.cards):
        tiers.add("large")
    return tuple(w for w in manifest.workloads.values() if w.tier in tiers)


def _for_system(variant: str, system: str) -> bool:
    family = variant.partition("-")[0]
    return family not in ("coreml", "mlx") or family in _NATIVE.get(system, frozenset())


def _there(place: Path) -> bool:
    return os.path.lexists(place)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count < 10e9 else f"{count / 1e9:.0f} GB"
