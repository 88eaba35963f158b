"""What the harness costs: its rate against bare loops, side by side on the same graph.

    python tool/harness_overhead.py [--workload ID …] [--json]

Against a bare loop written straight against the runtime's API, which makes the same input copy:
blocks of a few calls of each, in turn, in one process that holds both sessions, so that the
machine's drift meets both alike; several processes, because each one's luck with memory differs
by more than the harness costs. The ratio is the median over all pairs of blocks, in order at
0.99 or more.

Against OpenVINO's own ``benchmark_app`` (synchronous, latency hint, same precision): runs of
each in turn, every one a process of its own as a worker is. The ratio is that of the medians of
the fastest halves, as the peak test counts; other programs only ever slow a run. In order within
2 %. Rates are inferences/s. The rest of the machine should be idle. Exit status: 0 all in order,
1 not, 2 nothing to compare.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from npumark.engines.base import LoadRequest
from npumark.engines.openvino import precision_hint
from npumark.engines.registry import BUILT_IN, resolve
from npumark.errors import NpumarkError
from npumark.machine.cpu_limits import thread_count
from npumark.orchestrator.jobs import timing_options
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.policy import load_policy
from npumark.score.planned import Planned
from npumark.worker.eval_set import load_inputs
from npumark.worker.protocol import TimingOptions
from npumark.worker.timed_loop import Sample, run_timed, warm_up

ROOT = Path(__file__).resolve().parent.parent
BARE_AT_LEAST = 0.99
BENCHMARK_APP_WITHIN = 0.02
PROCESSES = 5
APP = (
    "from npumark.engines.telemetry import silence; silence(); "
    "from openvino.tools.benchmark.main import main; main()"
)
"""The same program, kept from reporting home while it is timed."""
BLOCK_S = 0.2

ENGINES = {"ort-cpu": BUILT_IN["ort"], "openvino-cpu": BUILT_IN["openvino"]}

Call = Callable[[], object]
Bare = tuple[tuple[np.ndarray[Any, Any], ...], Call]


@dataclass(frozen=True)
class Row:
    """``ips`` and ``other_ips`` are medians (of fastest halves against ``benchmark_app``);
    ``copy_ns`` is what the input copy costs a call; ``repetitions`` how many pairs there were."""

    against: str
    workload: str
    variant: str
    engine: str
    ratio: float
    ok: bool
    ips: float
    other_ips: float
    copy_ns: int
    repetitions: int


@dataclass(frozen=True)
class Bench:
    """One graph on one engine: what a stretch of each kind needs."""

    request: LoadRequest
    variant: str
    samples: list[Sample]
    timing: TimingOptions
    seconds: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--workload", action="append", help="default: a peak chain and a network")
    parser.add_argument("--engine", action="append", choices=tuple(ENGINES))
    parser.add_argument("--variant", default="fp32")
    parser.add_argument("--repetitions", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of one stretch")
    parser.add_argument("--stretch", choices=("ours", "pairs"), help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON alone")
    options = parser.parse_args(arguments)
    try:
        manifest = load_manifest()
        workloads = options.workload or default_workloads(manifest)
        unknown = [w for w in workloads if w not in manifest.workloads]
        if unknown or not workloads:
            print(f"no workload {', '.join(unknown)} in the pack; there are", file=sys.stderr)
            print(", ".join(manifest.workloads), file=sys.stderr)
            return 2
        root = materialize(manifest, workload_paths(manifest, workloads))
    except NpumarkError as fault:
        print(fault.message, file=sys.stderr)
        return 2
    rows: list[Row] = []
    for workload in workloads:
        for engine in options.engine or ENGINES:
            bench = prepare(
                manifest,
                root,
                workload,
                options.variant,
                engine,
                threads=options.threads or thread_count(),
                seconds=options.seconds,
            )
            if options.stretch:
                print(json.dumps(HERE[options.stretch](bench)))
                return 0
            rows += compare(bench, options.repetitions)
            if not options.json:
                for row in rows[-(2 if engine == "openvino-cpu" else 1) :]:
                    print(sentence(row), flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if all(row.ok for row in rows) else 1


def default_workloads(manifest: Manifest) -> list[str]:
    """Return the first peak chain and the first scored network of the pack."""
    found = []
    for tier in ("peak", "scored"):
        found += [w.id for w in manifest.workloads.values() if w.tier == tier][:1]
    return found


def prepare(
    manifest: Manifest,
    root: Path,
    workload_id: str,
    variant_id: str,
    engine: str,
    *,
    threads: int,
    seconds: float,
) -> Bench:
    workload = manifest.workloads[workload_id]
    variant = workload.variant(variant_id)
    request = LoadRequest(
        engine_id=engine,
        workload_id=workload_id,
        graph=root / variant.graph,
        encoding=variant.encoding,
        format=variant.format,
        inputs=variant.inputs,
        outputs=variant.outputs,
        threads=threads,
        options={"device": "CPU"} if engine == "openvino-cpu" else {},
        cache_dir=None,
    )
    planned = Planned(
        engine,
        workload_id,
        variant_id,
        variant_id,
        variant.format,
        workload.kind,
        workload.tier,
    )
    timing = timing_options(load_policy(), planned, quick=False)
    return Bench(
        request,
        variant_id,
        load_inputs(root, workload.eval, variant.inputs),
        replace(timing, loop_s=seconds, min_iterations=3),
        seconds,
    )


def compare(bench: Bench, repetitions: int) -> list[Row]:
    """Return the rows of one graph on one engine."""
    rows = [against_bare(bench)]
    if bench.request.engine_id == "openvino-cpu":
        rows.append(against_app(bench, repetitions, rows[0].copy_ns))
    return rows


def against_bare(bench: Bench) -> Row:
    told = [child(bench, "pairs") for _ in range(PROCESSES)]
    pairs = [(mine, theirs) for t in told for mine, theirs in t["pairs"]]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    return Row(
        against="bare loop",
        workload=bench.request.workload_id,
        variant=bench.request.encoding,
        engine=bench.request.engine_id,
        ratio=ratio,
        ok=ratio >= BARE_AT_LEAST,
        ips=statistics.median(mine for mine, _ in pairs),
        other_ips=statistics.median(theirs for _, theirs in pairs),
        copy_ns=int(statistics.median(t["copy_ns"] for t in told)),
        repetitions=len(pairs),
    )


def against_app(bench: Bench, repetitions: int, copy_ns: int) -> Row:
    first = child(bench, "ours")
    calls = max(3, round(bench.seconds * 1e9 / first["fastest_ns"]))
    mine, theirs = [], []
    for repetition in range(repetitions):
        for whose in ("ours", "app") if repetition % 2 else ("app", "ours"):
            if whose == "ours":
                mine.append(float(child(bench, "ours")["ips"]))
            else:
                theirs.append(benchmark_app(bench.request, calls))
    ips, other = fastest_half(mine), fastest_half(theirs)
    return Row(
        against="benchmark_app",
        workload=bench.request.workload_id,
        variant=bench.request.encoding,
        engine=bench.request.engine_id,
        ratio=ips / other,
        ok=abs(ips / other - 1) <= BENCHMARK_APP_WITHIN,
        ips=ips,
        other_ips=other,
        copy_ns=copy_ns,
        repetitions=repetitions,
    )


def fastest_half(rates: list[float]) -> float:
    """Return the median of the fastest half, the middle one included."""
    return statistics.median(sorted(rates, reverse=True)[: -(-len(rates) // 2)])


def child(bench: Bench, kind: str) -> dict[str, Any]:
    """Run one stretch in a process of its own and return what it tells."""
    request = bench.request
    done = subprocess.run(
        [
            *(sys.executable, __file__, "--stretch", kind, "--engine", request.engine_id),
            *("--workload", request.workload_id, "--variant", bench.variant),
            *("--seconds", str(bench.seconds), "--threads", str(request.threads)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


class Ours:
    """npumark's own timed loop on its own session."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._session = resolve(ENGINES[bench.request.engine_id]).load(bench.request)
        self._step, self.buffers = self._session.step(), self._session.inputs()
        self.warm = warm_up(
            self._step,
            self.buffers,
            self._session.outputs(),
            bench.samples,
            bench.timing,
            time.perf_counter_ns,
        )

    def rate(self, seconds: float) -> float:
        loop = run_timed(
            self._step,
            self.buffers,
            self._session.outputs(),
            self._bench.samples,
            replace(self._bench.timing, loop_s=seconds),
            seed=0,
            fastest_ns=self.warm.fastest_ns,
            clock=time.perf_counter_ns,
        )
        return len(loop.durations) / (int(loop.durations.sum()) / 1e9)


def ours_here(bench: Bench) -> dict[str, Any]:
    """Run one stretch of npumark's timed loop in this process."""
    ours = Ours(bench)
    return {"ips": ours.rate(bench.seconds), "fastest_ns": ours.warm.fastest_ns}


def pairs_here(bench: Bench) -> dict[str, Any]:
    """Run blocks of npumark's loop and of the bare one in turn, in this process."""
    ours = Ours(bench)
    buffers, call = BARE[bench.request.engine_id](bench.request)
    warm_up(call, buffers, (), bench.samples, bench.timing, time.perf_counter_ns)
    block = max(BLOCK_S, 3 * ours.warm.fastest_ns / 1e9)
    pairs = []
    for i in range(max(2, round(10 * bench.seconds / block) // 2 * 2)):
        if i % 2:
            theirs = bare_stretch(buffers, call, bench.samples, block)
            mine = ours.rate(block)
        else:
            mine = ours.rate(block)
            theirs = bare_stretch(buffers, call, bench.samples, block)
        pairs.append((mine, theirs))
    return {"pairs": pairs, "copy_ns": copy_cost_ns(ours.buffers, bench.samples)}


HERE = {"ours": ours_here, "pairs": pairs_here}


def sentence(row: Row) -> str:
    share = row.copy_ns * row.ips / 1e7
    return (
        f"{row.workload} {row.variant} on {row.engine}: {row.ips:.2f}/s, "
        f"{row.ratio:.4f} of {row.against} ({row.other_ips:.2f}/s), "
        f"{'in order' if row.ok else 'NOT IN ORDER'}; "
        f"input copy {row.copy_ns / 1e3:.1f} us, {share:.2f} % of a call"
    )


def bare_stretch(
    buffers: tuple[np.ndarray[Any, Any], ...], call: Call, samples: list[Sample], seconds: float
) -> float:
    """Return calls per second of a loop that copies the next input and calls, nothing else."""
    count = 0
    started = time.perf_counter()
    until = started + seconds
    while (now := time.perf_counter()) < until or count < 3:
        for buffer, source in zip(buffers, samples[count % len(samples)], strict=True):
            buffer[...] = source
        call()
        count += 1
    return count / (now - started)


def copy_cost_ns(buffers: tuple[np.ndarray[Any, Any], ...], samples: list[Sample]) -> int:
    """Return the median cost of putting the next input into the bound buffers."""
    costs = []
    for i in range(200):
        started = time.perf_counter_ns()
        for buffer, source in zip(buffers, samples[i % len(samples)], strict=True):
            buffer[...] = source
        costs.append(time.perf_counter_ns() - started)
    return int(statistics.median(costs))


def bare_ort(request: LoadRequest) -> Bare:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = request.threads
    session = ort.InferenceSession(str(request.graph), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    buffers = tuple(np.zeros(s.shape, s.dtype) for s in request.inputs)
    for spec, buffer in zip(request.inputs, buffers, strict=True):
        binding.bind_ortvalue_input(spec.name, ort.OrtValue.ortvalue_from_numpy(buffer))
    for spec in request.outputs:
        binding.bind_output(spec.name, "cpu")
    return buffers, lambda: session.run_with_iobinding(binding)


def bare_openvino(request: LoadRequest) -> Bare:
    import openvino as ov

    core = ov.Core()
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    model = core.compile_model(
        str(request.graph),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision_hint(request.encoding, list(capabilities)),
            "INFERENCE_NUM_THREADS": request.threads,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
        },
    )
    infer = model.create_infer_request()
    buffers = tuple(infer.get_tensor(s.name).data for s in request.inputs)
    return buffers, lambda: infer.infer(share_outputs=True)


BARE: dict[str, Callable[[LoadRequest], Bare]] = {
    "ort-cpu": bare_ort,
    "openvino-cpu": bare_openvino,
}


def benchmark_app(request: LoadRequest, calls: int) -> float:
    """Return the inferences/s that OpenVINO's own tool reports."""
    import openvino as ov

    capabilities = list(ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    with tempfile.TemporaryDirectory() as folder:
        # Its -nthreads excludes -hint; a configuration file takes both.
        config = Path(folder) / "config.json"
        config.write_text(json.dumps({"CPU": {"INFERENCE_NUM_THREADS": str(request.threads)}}))
        done = subprocess.run(
            [
                *(sys.executable, "-c", APP),
                *("-m", str(request.graph), "-d", "CPU", "-api", "sync", "-hint", "latency"),
                *("-infer_precision", precision_hint(request.encoding, capabilities)),
                *("-load_config", str(config), "-niter", str(calls)),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
    found = re.search(r"Throughput:\s+([\d.]+) FPS", done.stdout)
    if found is None:
        raise SystemExit(f"benchmark_app gave no throughput: {done.stdout[-500:]}{done.stderr}")
    return float(found.group(1))


if __name__ == "__main__":
    sys.exit(main())
