"""Every check, in the order of a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npumark import __version__
from npumark.doctor import drivers, limits, load, packages, power, space
from npumark.doctor.examined import STATES, Examined
from npumark.doctor.scene import Outside, Scene, look
from npumark.machine.host import THIS, Host
from npumark.pack.manifest import Manifest, load_manifest
from npumark.policy import Policy, load_policy

SCHEMA = "npumark-doctor/1"

CHECKS: tuple[Callable[[Scene], Examined], ...] = (
    power.source,
    power.profile,
    power.clocks,
    load.background,
    load.other_npumark,
    load.thermal,
    load.throttling,
    limits.cpus,
    limits.quota,
    limits.memory_limit,
    limits.container,
    load.steal,
    space.memory,
    space.swap,
    space.pack_disk,
    space.runs_disk,
    space.temporary,
    packages.shadowed_wheels,
    packages.local_modules,
    packages.environments,
    packages.variables,
    limits.int8_instructions,
    power.clock_source,
)
"""The checks with one answer each; the drivers have one per card."""


def examine(
    host: Host = THIS,
    outside: Outside | None = None,
    policy: Policy | None = None,
    manifest: Manifest | None = None,
) -> tuple[Examined, ...]:
    """Watch the machine for the policy's quick window and return every check, problems first.

    Changes nothing, takes no lock and imports no runtime. Raises PackError where npumark's own
    manifest cannot be read.
    """
    rules, pack = policy or load_policy(), manifest or load_manifest()
    scene = look(
        host,
        rules,
        pack,
        lambda cards: space.resident_bytes(pack, cards, host.system),
        outside,
    )
    return in_order((*(check(scene) for check in CHECKS), *drivers.drivers(scene)))


def in_order(found: Sequence[Examined]) -> tuple[Examined, ...]:
    """Return problems, notes, what is unknown, then what is well; each in its own order."""
    return tuple(sorted(found, key=lambda one: STATES.index(one.state)))


def document(found: Sequence[Examined], host: Host = THIS) -> dict[str, Any]:
    """Return what ``npumark doctor --json`` prints."""
    return {
        "schema": SCHEMA,
        "npumark": __version__,
        "system": host.system,
        "problems": sum(one.state == "problem" for one in found),
        "checks": [_plain(one) for one in found],
    }


def _plain(one: Examined) -> dict[str, Any]:
    return {
        "id": one.id,
        "title": one.title,
        "state": one.state,
        "value": one.value,
        "sentence": one.sentence,
        "fix": one.fix,
        "why": one.why,
    }
