"""What is sent and what is not, in words, read off the very payload that is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from npumark.plain import count
from npumark.record.model import Payload
from npumark.upload.prepare import Prepared

_ATTEMPT: Final = (
    "their times and rates, how right the answers were, where the work ran, what runtimes said"
)


_ALWAYS_KEPT: Final = (
    "the command line, the workers' logs and the raw samples",
    "host and user names, paths, bus addresses, serial numbers and UUIDs",
    "the keys that sign",
)
_BESIDE: Final = (
    "the machine ID, a digest that is the same for every upload from this computer",
    "the instant of sending, and what every connection tells: the address it comes from",
)


_WORDS: Final = {
    "os": "operating system",
    "os_version": "its version",
    "isa": "instruction sets",
    "memory_bytes": "memory",
    "bios": "BIOS",
    "bios_date": "BIOS date",
    "raw_name": "the name that its driver gives",
    "model_id": "the number of its model",
    "cuda_driver": "CUDA driver",
    "runtimes": "the runtimes that found it",
    "cpu_model": "CPU model",
    "cpu_vendor": "CPU vendor",
    "cpu_family": "CPU family",
    "cpu_model_number": "CPU model number",
    "cpu_stepping": "CPU stepping",
    "cpu_busy": "how busy the CPU was",
    "cpu_limits": "limits of the CPU",
    "idle_window_s": "how long it was watched before",
    "resident_bytes": "the memory that processes held",
    "load_beside_measuring": "the load of other processes",
    "load_while_measuring": "the load while measuring",
    "became_idle": "whether it became idle",
    "ended_by": "what ended the run",
    "spent_ns": "where the time went",
    "boot": "the digest of its start",
}
"""Names of fields as people say them; others are their own."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A clause for each: ``public`` anybody can read, ``beside`` goes to the server alone, ``kept``
    stays on this computer."""

    public: list[str]
    beside: list[str]
    kept: list[str]

    def parts(self) -> list[tuple[str, list[str]]]:
        """Return a heading and clauses for each kind."""
        return [
            ("Published, for everybody to read and download:", self.public),
            ("For the server alone:", self.beside),
            ("Stays here:", self.kept),
        ]


def general() -> Listing:
    """Return what an upload of any run holds, before there is one."""
    return Listing(
        [
            f"the score, and every attempt of every entry: {_ATTEMPT}",
            "when it was measured and the run's id",
            "the models, drivers and memory of processors and machine, and the operating system",
            "its state while measuring (power, clocks, load), and the versions of software",
            "signatures: this installation's, and what kind of build made it",
        ],
        list(_BESIDE),
        list(_ALWAYS_KEPT),
    )


def listing(prepared: Prepared, key_id: str) -> Listing:
    """Return what an upload holds. ``key_id`` names the installation's key."""
    return Listing(
        _public(prepared.upload, key_id, release=prepared.build is not None),
        list(_BESIDE),
        _kept(prepared.local, prepared.upload),
    )


def _public(run: Payload, key_id: str, *, release: bool) -> list[str]:
    attempts = [a for e in run.entries for a in e.attempts]
    attempts_of_all = sum(len(role.attempts) for role in run.box.roles) if run.box else 0
    together = f", and {attempts_of_all} of all cards at once" if attempts_of_all else ""
    score = f"the score ({run.score.label}) and " if run.score else ""
    build = "a release" if release else "a development build"
    details = (name for p in run.processors for name, v in p.details.items() if v is not None)
    software = {"npumark": run.tool.version, "Python": run.tool.python, **run.tool.packages}
    checks = (name for name, check in run.environment.checks.items() if check.value is not None)
    state = _names([*checks, *run.environment.facts])
    measured = f"{count(len(attempts), 'attempt')} of {count(len(run.entries), 'entry', 'entries')}"
    return [
        f"{score}{measured}{together}: {_ATTEMPT}",
        f"when it was measured ({run.created}) and the run's id ({run.run_id})",
        f"processors: {_names(p.name for p in run.processors)}; of each: {_names(details)}",
        f"the machine: {_facts(run.machine)}",
        f"its state while measuring: {state}",
        f"software: {', '.join(f'{name} {version}' for name, version in software.items())}",
        f"signatures: this installation's (key {key_id}), and that {build} of npumark made it",
    ]


def _kept(local: Payload, upload: Payload) -> list[str]:
    sent = {e.id for e in upload.engines}
    held = [e.id for e in local.engines if e.id not in sent]
    gone = [
        *(n for n, v in local.machine.items() if v is not None and upload.machine.get(n) is None),
        *(n for n in local.environment.facts if n not in upload.environment.facts),
        *(
            name
            for p, q in zip(local.processors, upload.processors, strict=True)
            for name in p.details
            if name not in q.details
        ),
    ]
    return [
        *_ALWAYS_KEPT,
        *([f"what else the record says of this computer: {_names(gone)}"] if gone else []),
        *([f"results that may not be published: {', '.join(held)}"] if held else []),
    ]


def _facts(machine: Mapping[str, Any]) -> str:
    told = {n: v for n, v in machine.items() if v is not None and n != "why"}
    return ", ".join(f"{_word(name)}{_said(name, value)}" for name, value in told.items())


def _said(name: str, value: Any) -> str:
    """Return what a fact says, after its name: texts, sizes and lists alone."""
    if isinstance(value, str):
        return f" {value}"
    if isinstance(value, list):
        return f" ({', '.join(map(str, value))})"
    if name.endswith("_bytes") and isinstance(value, int):
        return f" {value / 2**30:.1f} GiB"
    return ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(map(_word, names)))


def _word(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))
