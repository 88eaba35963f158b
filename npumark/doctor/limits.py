"""What of the machine this process may use: CPUs, their time, memory; containers."""

from __future__ import annotations

from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.scene import Scene
from npumark.machine import cgroup
from npumark.machine.cpu_limits import limits
from npumark.machine.identity import machine, meminfo

_INT8_SUMS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Instructions that add INT8 products in 32 bits, as /proc/cpuinfo names them."""


def cpus(scene: Scene) -> Examined:
    """An affinity mask or a cpuset that leaves out CPUs of the machine."""
    about = ("cpus_allowed", "CPUs allowed")
    host = scene.host
    seen = limits(host)
    if seen.logical is None or seen.affinity is None:
        return unread(*about, "this system has no affinity masks, or does not say")
    cpuset = cgroup.cpuset(host) if host.system == "linux" else None
    value = {
        "machine": seen.logical,
        "allowed": seen.affinity,
        "cpuset": None if cpuset is None else len(cpuset),
    }
    if seen.affinity >= seen.logical:
        return good(*about, value, f"All {seen.logical} CPUs may be used.")
    all_ = f"0-{seen.logical - 1}"
    by_cpuset = cpuset is not None and len(cpuset) < seen.logical
    if by_cpuset:
        fix = (
            f"Allow all CPUs where the container or service is started (`docker run "
            f"--cpuset-cpus {all_}`, systemd `AllowedCPUs={all_}`, Slurm `--cpus-per-task`)."
        )
    elif host.system == "win32":
        fix = "Start it without `start /affinity`."
    else:
        fix = f"Start it without `taskset`, or as `taskset -c {all_} npumark run`."
    return spoils(
        *about,
        value,
        f"{seen.affinity} of {seen.logical} CPUs may be used "
        f"({'a cpuset' if by_cpuset else 'an affinity mask'} leaves out the others): CPU engines "
        "get fewer threads.",
        fix,
    )


def quota(scene: Scene) -> Examined:
    """A CPU quota below the CPUs that may be used."""
    about = ("cpu_quota", "CPU quota")
    host = scene.host
    if host.system != "linux":
        return good(*about, None, "This system has no CPU quotas.")
    found = cgroup.quota(host)
    seen = limits(host)
    whole = min(n for n in (seen.logical, seen.affinity) if n) if seen.logical else None
    if found is None:
        if not host.exists("/proc/self/cgroup"):
            return unread(*about, "/proc/self/cgroup does not exist")
        return good(*about, None, "No CPU quota binds this process.")
    value = {"cpus": found.cpus, "of": whole, "file": found.file}
    if whole is not None and found.cpus >= whole:
        return good(*about, value, f"The CPU quota, {found.cpus:.3g} CPUs, is no limit here.")
    return spoils(
        *about,
        value,
        f"A quota allows {found.cpus:.3g} CPUs' worth of time"
        f"{'' if whole is None else f' of {whole}'}: engines are stopped when it is used up.",
        f"Raise it where the container or service is started (`docker run --cpus {whole or 'N'}`, "
        "Kubernetes `resources.limits.cpu`, systemd `CPUQuota=`), or as root "
        f"`echo {found.free} > {found.file}`.",
    )


def memory_limit(scene: Scene) -> Examined:
    """A memory limit below the machine's memory: recorded; whether it suffices, ``memory`` says."""
    about = ("memory_limit", "Memory limit")
    host = scene.host
    if host.system != "linux":
        return good(*about, None, "This system has no memory limits for groups of processes.")
    total = meminfo(host).get("MemTotal")
    found = min(cgroup.memory_limits(host), default=None)
    if found is None:
        return good(*about, None, "No memory limit binds this process.")
    value = {"limit_bytes": found[0], "left_bytes": found[1], "machine_bytes": total}
    if total is not None and found[0] >= total:
        return good(*about, value, "The memory limit is no limit here.")
    return noted(
        *about,
        value,
        f"A limit allows {found[0] / 1e9:.1f} GB of memory, and leaves {found[1] / 1e9:.1f} GB.",
        "Raise it where the container or service is started (`docker run --memory`, Kubernetes "
        "`resources.limits.memory`, systemd `MemoryMax=`).",
    )


def container(scene: Scene) -> Examined:
    """A container: what runs outside of it is not seen from here."""
    about = ("container", "Container")
    kind = machine(scene.host)["container"]
    if scene.host.exists("/proc/sys/fs/binfmt_misc/WSLInterop") or (
        "microsoft" in scene.host.release().lower() and scene.host.system == "linux"
    ):
        kind = "WSL"
    if kind is None:
        return unread(*about, None)
    if kind == "none seen":
        return good(*about, kind, "No container is seen.")
    return noted(
        *about, kind, f"This runs in {kind}: programs outside of it take time that is not seen."
    )


def int8_instructions(scene: Scene) -> Examined:
    """An x86 processor without instructions for INT8 sums of 32 bits."""
    about = ("int8_instructions", "INT8 instructions")
    host = scene.host
    if host.architecture().lower() not in ("x86_64", "amd64"):
        return good(*about, None, "Only processors of the x86 family are asked for them.")
    facts = machine(host)
    if facts["isa"] is None:
        return unread(*about, facts["why"].get("isa"))
    has = [flag for flag in _INT8_SUMS if flag in facts["isa"]]
    if has:
        return good(*about, has, f"The processor has {', '.join(has)}.")
    hidden = (
        " A hypervisor is below, which may hide them (QEMU shows them with `-cpu host`)."
        if facts["virtualisation"] not in (None, "none seen")
        else ""
    )
    return noted(
        *about,
        has,
        "The processor has neither VNNI nor AMX. Without them runtimes add pairs of INT8 products "
        "in 16 bits, where a sum that is too large is cut off. INT8 answers on the CPU can then "
        "fail their check, and figures of such answers do not count; other encodings and other "
        f"processors are not concerned. Nothing here needs fixing.{hidden}",
    )
