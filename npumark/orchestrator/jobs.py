"""What a worker is told: the job of an attempt, made from plan, manifest and policy alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import npumark
from npumark.orchestrator.discover import Found
from npumark.pack.manifest import Manifest, Variant
from npumark.policy import Policy
from npumark.score.attempt import least_iterations
from npumark.score.planned import Planned, attempt_seed
from npumark.worker.protocol import FileCheck, Job, Stamp, TimingOptions, WindowOptions


@dataclass(frozen=True, slots=True)
class JobMaker:
    """What all jobs of a run share. ``threads`` is what every CPU engine is asked for.

    ``host`` is what of the computer a compiled model depends on, and ``drivers`` what is known
    of each engine's device and its driver beside what its own probe tells.
    """

    manifest: Manifest
    policy: Policy
    engines: Mapping[str, Found]
    pack_root: Path
    cache_root: Path
    run_id: str
    quick: bool
    threads: int
    host: Mapping[str, Any] = field(default_factory=dict)
    drivers: Mapping[str, Any] = field(default_factory=dict)

    def measure(
        self,
        planned: Planned,
        n: int,
        stamps: Mapping[str, Stamp],
        samples: Path,
        cache: Mapping[str, Stamp] | None = None,
    ) -> Job:
        """Return the job of attempt ``n`` of an entry; raw durations go to ``samples``.

        ``cache`` holds the stamps of its compiled model's files; null, and the graph is loaded
        without one.
        """
        workload = self.manifest.workloads[planned.workload]
        graph = workload.variant(planned.graph_variant)
        found = self.engines[planned.engine]
        derived = planned.variant != planned.graph_variant
        return Job(
            kind="measure",
            engine_ref=found.runtime.ref,
            engine_id=planned.engine,
            options=found.info.options,
            threads=self.threads,
            pack_root=str(self.pack_root),
            cache_dir="" if cache is None else str(self.cache_dir(planned)),
            cache_stamps=dict(cache or {}),
            workload=asdict(workload),
            variant=asdict(graph),
            encoding=planned.variant if derived else "",
            format=planned.declared_format if derived else "",
            files=tuple(
                FileCheck(path, file.size, file.sha256, stamps.get(path))
                for path in dict.fromkeys(workload.files(planned.graph_variant))
                if (file := self.manifest.files[path])
            ),
            timing=timing_options(self.policy, planned, quick=self.quick),
            seed=attempt_seed(self.run_id, planned, n),
            profile_runs=self.policy.placement.profile_runs,
            samples_path=str(samples),
        )

    def window(
        self,
        planned: Planned,
        stamps: Mapping[str, Stamp],
        samples: Path,
        cache: Mapping[str, Stamp] | None = None,
        *,
        seconds: float,
        cpus: tuple[int, ...] = (),
    ) -> Job:
        """Return the job of one worker of a window of ``seconds`` that several share, bound to
        ``cpus``; begin and end of each of its calls go to ``samples``."""
        return replace(
            self.measure(planned, 0, stamps, samples, cache),
            kind="window",
            seed=0,  # nothing is drawn
            timing=self._warm_up_for(seconds, planned),
            profile_runs=0,
            window=WindowOptions(seconds),
            cpus=cpus,
        )

    def diagnose(
        self,
        planned: Planned,
        kind: str,
        options: Mapping[str, Any],
        stamps: Mapping[str, Stamp],
        folder: Path,
        cache: Mapping[str, Stamp] | None = None,
    ) -> Job:
        """Return the job of one step of a diagnostics probe, of ``kind`` and with its
        ``options``; its raw samples go into ``folder``."""
        loop_s = self.policy.diagnose.loop_s
        timing = replace(
            self._warm_up_for(float(options.get("seconds", loop_s)), planned), loop_s=loop_s
        )
        if kind == "batch":  # a call of many inputs may take as long as many calls
            timing = replace(timing, min_iterations=self.policy.timing.quick_min_iterations)
        return replace(
            self.measure(planned, 0, stamps, folder, cache),
            kind="diagnose",
            timing=timing,
            profile_runs=0,
            probe={"kind": kind, **options},
        )

    def _warm_up_for(self, seconds: float, planned: Planned) -> TimingOptions:
        """Return how an entry is timed for so long: before less than a timed loop, the warm-up
        may take less in proportion."""
        timing = timing_options(self.policy, planned, quick=False)
        share = min(1.0, seconds / self.policy.timing.loop_s)
        return replace(timing, warmup_max_s=share * timing.warmup_max_s)

    def compiles(self, planned: Planned) -> bool:
        """Say whether the entry's engine keeps compiled models: its options say so (``cache``)."""
        return bool(self.engines[planned.engine].info.options.get("cache"))

    def prepare(
        self,
        planned: Planned,
        stamps: Mapping[str, Stamp],
        cache: Mapping[str, Stamp],
        *,
        rebuild: bool = False,
    ) -> Job:
        """Return a job that compiles an entry's model where it must, loads it and calls it once,
        so that attempt 1 loads the way every later one does.

        ``cache`` holds the stamps of its files; ``rebuild`` throws away what lies there.
        """
        job = self.measure(planned, 0, stamps, Path(), cache)
        return replace(
            job,
            kind="prepare",
            timing=None,
            profile_runs=0,
            samples_path=None,
            rebuild=rebuild,
        )

    def cache_dir(self, planned: Planned) -> Path:
        """Return the folder of an entry's compiled model, named by all that it depends on."""
        graph = self.manifest.workloads[planned.workload].variant(planned.graph_variant)
        return self.cache_root / self._cache_key(planned, graph)

    def _cache_key(self, planned: Planned, graph: Variant) -> str:
        """Name a compiled model by all that it depends on: contents, runtime with its packages,
        device with its driver, options, and the computer."""
        found = self.engines[planned.engine]
        parts = {
            "npumark": npumark.__version__,
            "host": self.host,
            "engine": found.info.id,
            "ref": found.runtime.ref,
            "python": found.runtime.python,
            "environment": found.runtime.environment,
            "packages": found.runtime.packages,
            "version": found.info.version,
            "versions": found.info.versions,
            "device": found.info.processor,
            "driver": self.drivers.get(planned.engine),
            "options": found.info.options,
            "variant": planned.variant,
            "threads": self.threads,
            "files": {path: self.manifest.files[path].sha256 for path in graph.files},
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def timing_options(policy: Policy, planned: Planned, *, quick: bool) -> TimingOptions:
    """Return how the timed loop of an entry runs; a quick run's is shorter."""
    timing = policy.timing
    return TimingOptions(
        loop_s=timing.quick_loop_s if quick else timing.loop_s,
        min_iterations=least_iterations(planned, policy, quick=quick),
        burst_s=timing.burst_s,
        drift_window_s=timing.drift_window_s,
        warmup_min_calls=timing.warmup_min_calls,
        warmup_max_s=timing.warmup_max_s,
        warmup_steady_window=timing.warmup_steady_window,
        warmup_steady_cv=timing.warmup_steady_cv,
        timed_checks=timing.timed_checks,
        timed_check_min_snr_db=timing.timed_check_min_snr_db,
    )
