"""What a worker is told: the job of an attempt, made from plan, manifest and policy alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from npumark.orchestrator.discover import Found
from npumark.pack.manifest import Manifest, Variant
from npumark.policy import Policy
from npumark.score.attempt import least_iterations
from npumark.score.planned import Planned, attempt_seed
from npumark.worker.protocol import FileCheck, Job, TimingOptions

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class JobMaker:
    """What all jobs of a run share. ``threads`` is what every CPU engine is asked for."""

    manifest: Manifest
    policy: Policy
    engines: Mapping[str, Found]
    pack_root: Path
    cache_root: Path
    run_id: str
    quick: bool
    threads: int

    def measure(self, planned: Planned, n: int, stamps: Mapping[str, Stamp], samples: Path) -> Job:
        """Return the job of attempt ``n`` of an entry; raw durations go to ``samples``."""
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
            cache_dir=str(self.cache_root / self._cache_key(planned, graph)),
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

    def prepare(self, planned: Planned, stamps: Mapping[str, Stamp]) -> Job | None:
        """Return a job that fills the cache of compiled models before attempt 1, so that it
        loads the way every later attempt does; None for an engine that keeps no cache.

        An engine that keeps one says so in its options (``cache``). What the job measures in
        its few calls is thrown away.
        """
        if not self.engines[planned.engine].info.options.get("cache"):
            return None
        job = self.measure(planned, 0, stamps, Path())
        timing = timing_options(self.policy, planned, quick=self.quick)
        brief = replace(timing, loop_s=0.0, min_iterations=1, warmup_max_s=0.0)
        return replace(job, timing=brief, profile_runs=0, samples_path=None)

    def _cache_key(self, planned: Planned, graph: Variant) -> str:
        """Name a compiled model by all that it depends on: contents, runtime, device, options."""
        found = self.engines[planned.engine]
        parts = {
            "engine": found.info.id,
            "ref": found.runtime.ref,
            "version": found.info.version,
            "versions": found.info.versions,
            "device": found.info.processor,
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
