"""Changes every byte of a compiled model, one after the other, and counts what was believed.

    python tool/scramble_cache.py                      OpenVINO on the CPU, its cache forced on
    python tool/scramble_cache.py --engine ort-qnn-npu the QNN emulator (its environment installed)

For each byte of each file, the sidecar too, the changed model must not be believed. At every
``--load-every``-th byte, changed before a session and once more while one lives, after cutting
at ``--cuts`` lengths, with the sidecar of another version and with the model of another graph
that has the same names of tensors, a worker then loads the entry as a run would: it must answer
so that the gate passes and leave a model that the next one loads. The exit status is 1 where
anything was believed that was changed, or answered wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.engines.model_cache import ModelCache, Recipe  # noqa: E402
from npumark.engines.model_sidecar import SCHEMA, SIDECAR, read_sidecar  # noqa: E402
from npumark.gates.judge import judge  # noqa: E402
from npumark.orchestrator.discover import Found  # noqa: E402
from npumark.orchestrator.interrupts import Interrupts  # noqa: E402
from npumark.orchestrator.jobs import JobMaker  # noqa: E402
from npumark.orchestrator.lock import measuring  # noqa: E402
from npumark.orchestrator.supervisor import Outcome, supervise  # noqa: E402
from npumark.orchestrator.survey import probe_all  # noqa: E402
from npumark.pack.manifest import Manifest, load_manifest  # noqa: E402
from npumark.pack.materialize import materialize, workload_paths  # noqa: E402
from npumark.policy import load_policy  # noqa: E402
from npumark.score.planned import Planned  # noqa: E402
from npumark.worker.protocol import Job  # noqa: E402

POLICY = load_policy()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="openvino-cpu")
    parser.add_argument("--workload", default="peak-16x256x3")
    parser.add_argument("--variant", default="int8-u8s8")
    parser.add_argument("--other", default="fp32", help="the graph whose model is put in its place")
    parser.add_argument("--every", type=int, default=1, help="look at every N-th byte only")
    parser.add_argument("--load-every", type=int, default=20_000, metavar="N")
    parser.add_argument("--cuts", type=int, default=5)
    args = parser.parse_args(argv)
    manifest = load_manifest()
    with tempfile.TemporaryDirectory(prefix="npumark-scramble-") as place:
        folder = Path(place)
        materialize(manifest, workload_paths(manifest, [args.workload]), root=folder / "pack")
        with Interrupts() as interrupts, measuring("tool/scramble_cache.py") as holder:
            survey = probe_all(None, POLICY, interrupts, holder.marker)
            try:
                found = survey.engine(args.engine)
            except KeyError:
                print(f"there is no engine {args.engine} here", file=sys.stderr)
                return 2

            def work(job: Job) -> Outcome:
                return supervise(
                    job,
                    limits=POLICY.worker,
                    deadline_s=POLICY.worker.attempt_deadline_s,
                    interrupts=interrupts,
                    marker=f"{holder.marker}/scramble",
                    python=found.runtime.python,
                )

            bench = Bench(manifest, found, folder, args.workload, work)
            return scramble(bench, args)


@dataclass
class Bench:
    """One engine and workload; its compiled models lie under ``folder/compiled``."""

    manifest: Manifest
    found: Found
    folder: Path
    workload: str
    work: Callable[[Job], Outcome]
    jobs: JobMaker = field(init=False)

    def __post_init__(self) -> None:
        options = {**self.found.info.options, "cache": True}
        found = replace(self.found, info=replace(self.found.info, options=options))
        self.jobs = JobMaker(
            self.manifest,
            POLICY,
            {found.info.id: found},
            self.folder / "pack",
            self.folder / "compiled",
            "scramble",
            quick=True,
            threads=1,
        )

    def planned(self, variant: str) -> Planned:
        graph = self.manifest.workloads[self.workload].variant(variant)
        engine = self.found.info.id
        return Planned(engine, self.workload, variant, variant, graph.format, "peak", "extra")

    def load(self, variant: str) -> tuple[bool, str]:
        """Run the eval set in a worker; say whether its answers pass, and what was loaded."""
        job = self.jobs.measure(self.planned(variant), 1, {}, Path(), {})
        if job.timing is None:
            raise RuntimeError("the job has no timing")
        brief = replace(job.timing, loop_s=0.0, min_iterations=1, warmup_max_s=0.0)
        outcome = self.work(replace(job, timing=brief, samples_path=None))
        result = outcome.result
        if outcome.status != "ok" or result is None or result.measurement is None:
            return False, outcome.why or outcome.status
        gate = self.manifest.workloads[self.workload].gates["standard"]
        state = result.cache.state if result.cache else "without a cache"
        return judge(result.measurement.measures, gate).passed, state

    def cache(self, variant: str) -> Path:
        return self.jobs.cache_dir(self.planned(variant))


@dataclass
class Count:
    """``wrong`` names what must not have been: believed although changed, or answered wrong."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def loaded(self, what: str, told: tuple[bool, str], due: str) -> None:
        right, state = told
        self.seen["loads"] += 1
        self.seen["right answers"] += right
        if not right or state != due:
            self.wrong.append(f"{what}: {'right' if right else 'wrong'}, {state} (due: {due})")


def scramble(bench: Bench, args: argparse.Namespace) -> int:
    count, began = Count(), time.monotonic()
    for variant in (args.variant, args.other):
        count.loaded(f"first load of {variant}", bench.load(variant), "built")
        count.loaded(f"second load of {variant}", bench.load(variant), "reused")
    folder = bench.cache(args.variant)
    names = list(_files(folder))
    sizes = ", ".join(f"{n} {p.stat().st_size} B" for n, p in _files(folder).items())
    print(f"{args.engine} · {args.workload} · {args.variant}: {sizes}", flush=True)
    for name in names:
        _bytes(bench, args, name, count)
        told = ", ".join(f"{n} {what}" for what, n in count.seen.items())
        print(f"  {name}: so far {told}", flush=True)
    for name in names:
        for i in range(args.cuts):
            path = _files(folder)[name]
            raw = path.read_bytes()
            path.write_bytes(raw[: len(raw) * i // args.cuts])
            count.loaded(f"{name} cut, {i}/{args.cuts}", bench.load(args.variant), "rebuilt")
    sidecar = folder / SIDECAR
    text = sidecar.read_text(encoding="utf-8")
    sidecar.write_text(text.replace(SCHEMA, "npumark-compiled/0"), encoding="utf-8")
    count.loaded("the sidecar of another version", bench.load(args.variant), "rebuilt")
    theirs = _files(bench.cache(args.other))
    for mine, other in zip(names, theirs, strict=True):
        if mine != SIDECAR:
            shutil.copyfile(theirs[other], _files(folder)[mine])
            count.loaded(f"{mine} of {args.other}", bench.load(args.variant), "rebuilt")
    shutil.rmtree(folder)
    shutil.copytree(bench.cache(args.other), folder)
    count.loaded(f"everything of {args.other}", bench.load(args.variant), "rebuilt")
    print(f"{time.monotonic() - began:.0f} s")
    for what, n in count.seen.items():
        print(f"  {n} {what}")
    print(f"  {len(count.wrong)} believed or answered wrong")
    for line in count.wrong[:20]:
        print(f"    {line}")
    return 1 if count.wrong else 0


def _bytes(bench: Bench, args: argparse.Namespace, name: str, count: Count) -> None:
    """Change one byte of a file after the other; each is put right again, or compiled again."""
    folder = bench.cache(args.variant)
    path = _files(folder)[name]
    good = path.read_bytes()
    settings = read_sidecar(folder / SIDECAR).settings
    if not ModelCache(folder, settings=settings).intact():
        count.wrong.append(f"{name}: not believed although nothing was changed")
    for place in range(0, len(good), args.every):
        if place >= len(good):
            break  # compiled again, it came out shorter
        _write(path, place, good[place] ^ (1 + place % 255))
        count.seen["bytes changed"] += 1
        if ModelCache(folder, settings=settings).intact():
            count.wrong.append(f"{name}, byte {place}: believed")
        if place % args.load_every == 0:
            count.loaded(f"{name}, byte {place}", bench.load(args.variant), "rebuilt")
            count.loaded(f"{name} after byte {place}", bench.load(args.variant), "reused")
            _in_use(bench, args, name, place, count)
            path = _files(folder)[name]
            good = path.read_bytes()
        else:
            _write(path, place, good[place])


def _in_use(bench: Bench, args: argparse.Namespace, name: str, place: int, count: Count) -> None:
    """Change a byte while a session of the model lives, and end that: it must not be sealed."""
    folder = bench.cache(args.variant)
    cache = ModelCache(folder, settings=read_sidecar(folder / SIDECAR).settings)
    cache.open(Recipe(lambda _: None))
    path = _files(folder)[name]
    good = path.read_bytes()
    if not cache.reused or place >= len(good):
        return
    _write(path, place, good[place] ^ (1 + place % 255))
    count.seen["bytes changed in use"] += 1
    cache.settle()
    # The sidecar says again what it said; a model that it does not fit is gone.
    due = "reused" if name == SIDECAR else "built"
    sealed = (folder / SIDECAR).exists()
    if sealed != (due == "reused"):
        count.wrong.append(f"{name}, byte {place}, in use: {'sealed' if sealed else 'lost'}")
    count.loaded(f"{name} after byte {place}, in use", bench.load(args.variant), due)


def _write(path: Path, place: int, value: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(bytes([value]))


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a whole model and its sidecar, by name."""
    models = folder / read_sidecar(folder / SIDECAR).models
    found = sorted(p for p in models.rglob("*") if p.is_file())
    return {p.relative_to(models).as_posix(): p for p in found} | {SIDECAR: folder / SIDECAR}


if __name__ == "__main__":
    sys.exit(main())
