"""What the harness costs: its rate against bare loops, side by side on the same graph.

    python tool/harness_overhead.py [--workload ID …] [--json]

For each workload and CPU engine, stretches of the timed loop alternate with stretches of a bare
loop written straight against the runtime's API, which makes the same input copy; for OpenVINO
also with runs of its own ``benchmark_app`` (synchronous, latency hint, same precision). Each
ratio is npumark's inferences/s over the other's, the median over the repetitions. It is in
order at 0.99 or more against a bare loop, and within 2 % of ``benchmark_app``. The rest of the
machine should be idle. Exit status: 0 all in order, 1 not, 2 nothing to compare.
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

BARE_AT_LEAST = 0.99
BENCHMARK_APP_WITHIN = 0.02

ENGINES = {"ort-cpu": BUILT_IN["ort"], "openvino-cpu": BUILT_IN["openvino"]}

Call = Callable[[], object]
Bare = tuple[tuple[np.ndarray[Any, Any], ...], Call]


@dataclass(frozen=True)
class Row:
    """``ips`` and ``other_ips`` are medians; ``copy_ns`` is what the input copy costs a call."""

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
    samples: list[Sample]
    timing: TimingOptions
    seconds: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--workload", action="append", help="default: a peak chain and a network")
    parser.add_argument("--engine", action="append", choices=tuple(ENGINES))
    parser.add_argument("--variant", default="fp32")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one stretch")
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
        load_inputs(root, workload.eval, variant.inputs),
        replace(timing, loop_s=seconds, min_iterations=3),
        seconds,
    )


def compare(bench: Bench, repetitions: int) -> list[Row]:
    """Return the rows of one graph on one engine; the order within a repetition alternates."""
    engine = bench.request.engine_id
    session = resolve(ENGINES[engine]).load(bench.request)
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    bare_buffers, bare_call = BARE[engine](bench.request)
    clock = time.perf_counter_ns
    warm = warm_up(step, buffers, bench.samples, bench.timing, clock)
    bare_stretch(bare_buffers, bare_call, bench.samples, 0.2)

    def ours(seed: int) -> float:
        loop = run_timed(
            step,
            buffers,
            outputs,
            bench.samples,
            bench.timing,
            seed=seed,
            fastest_ns=warm.fastest_ns,
            clock=clock,
        )
        return len(loop.durations) / (int(loop.durations.sum()) / 1e9)

    def bare(_: int) -> float:
        return bare_stretch(bare_buffers, bare_call, bench.samples, bench.seconds)

    def app(_: int) -> float:
        calls = max(3, round(bench.seconds * 1e9 / warm.fastest_ns))
        return benchmark_app(bench.request, calls)

    others = {"bare loop": bare}
    if engine == "openvino-cpu":
        others["benchmark_app"] = app
    found: dict[str, list[tuple[float, float]]] = {against: [] for against in others}
    for repetition in range(repetitions):
        for against, other in others.items():
            if repetition % 2:
                theirs = other(repetition)
                mine = ours(repetition)
            else:
                mine = ours(repetition)
                theirs = other(repetition)
            found[against].append((mine, theirs))
    copy_ns = copy_cost_ns(buffers, bench.samples)
    session.close()
    return [row(bench.request, against, pairs, copy_ns) for against, pairs in found.items()]


def row(request: LoadRequest, against: str, pairs: list[tuple[float, float]], copy_ns: int) -> Row:
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    ok = ratio >= BARE_AT_LEAST
    if against == "benchmark_app":
        ok = abs(ratio - 1) <= BENCHMARK_APP_WITHIN
    return Row(
        against=against,
        workload=request.workload_id,
        variant=request.encoding,
        engine=request.engine_id,
        ratio=ratio,
        ok=ok,
        ips=statistics.median(mine for mine, _ in pairs),
        other_ips=statistics.median(theirs for _, theirs in pairs),
        copy_ns=copy_ns,
        repetitions=len(pairs),
    )


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
                str(Path(sys.executable).with_name("benchmark_app")),
                *("-m", str(request.graph), "-d", "CPU", "-api", "sync", "-hint", "latency"),
                *("-infer_precision", precision_hint(request.encoding, capabilities)),
                *("-load_config", str(config), "-niter", str(calls)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"Throughput:\s+([\d.]+) FPS", done.stdout)
    if found is None:
        raise SystemExit(f"benchmark_app gave no throughput: {done.stdout[-500:]}{done.stderr}")
    return float(found.group(1))


if __name__ == "__main__":
    sys.exit(main())
