"""What the user asked diagnostics for: the command line's answer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npumark.diagnose.probe import Probe
from npumark.diagnose.registry import PROBES
from npumark.errors import UsageError
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.select import closest


@dataclass(frozen=True, slots=True)
class DiagnoseRequest:
    """``engines``, ``workloads`` and ``probes`` are None where all are meant; ``sustained_s``
    is None for the policy's. ``virtual`` is the path of a virtual-engine script (tests)."""

    engines: tuple[str, ...] | None = None
    workloads: tuple[str, ...] | None = None
    probes: tuple[str, ...] | None = None
    deep: bool = False
    sustained_s: float | None = None
    include_emulated: bool = False
    skip_preconditions: bool = False
    out: Path | None = None
    force: bool = False
    manifest: Path | None = None
    virtual: Path | None = None
    argv: tuple[str, ...] = ()

    def as_run(self, workloads: tuple[str, ...] | None = None) -> RunRequest:
        """Return the request of a run that would reach what this one asks for, every variant of
        it: a benchmark may have been asked for more than the default ones."""
        return RunRequest(
            engines=self.engines,
            workloads=workloads,
            all_variants=True,
            include_emulated=self.include_emulated,
            skip_preconditions=self.skip_preconditions,
            manifest=self.manifest,
            virtual=self.virtual,
        )


def asked_probes(request: DiagnoseRequest, known: tuple[Probe, ...] = PROBES) -> tuple[Probe, ...]:
    """Return the probes to carry out: those named, or all, the deep ones only with ``deep``.

    Raises UsageError for a name that is none.
    """
    if request.probes is None:
        return tuple(p for p in known if request.deep or not p.deep)
    names = [p.name for p in known]
    wanted = [name.replace("-", "_") for name in request.probes]
    for name in wanted:
        if name not in names:
            close = closest(name, names)
            guess = f"Did you mean {close}? " if close else ""
            raise UsageError(
                f"there is no probe called {name!r}", f"{guess}The probes are: {', '.join(names)}."
            )
    return tuple(p for p in known if p.name in wanted)
