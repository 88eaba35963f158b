"""The Core ML engine on a fake Mac that computes in NumPy: loading, proof, probe, refusals."""

from __future__ import annotations

import gc
import platform
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npumark.engines.base import Array, LoadRequest
from npumark.engines.coreml import CoreMl, requested
from npumark.engines.coreml_native import COMPILED, NativeModel, Units
from npumark.engines.coreml_probe import number_format
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import variant_from
from npumark.pack.program import PROGRAM
from npumark.pack.program_file import load_program
from npumark.worker.eval_set import load_inputs, load_references

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install coremltools")

from tests.engines.fake_coreml import FakeCoreMl, FakeNative, two_gpus
from workloads import coreml_build

pytestmark = pytest.mark.filterwarnings(
    # coremltools leaves a temporary folder of its own to the garbage collector.
    "ignore:Implicitly cleaning up:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

CHAIN = "peak-16x256x3"


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> coreml_build.Pack:
    made = coreml_build.Pack(coreml_build.base_manifest(), tmp_path_factory.mktemp("pack"))
    workload = made.manifest.workloads[CHAIN]
    made.file(f"{CHAIN}/{PROGRAM}")
    for form in ("fp16", "int8"):
        made.file(f"{CHAIN}/{form}.weights")
    for tensor in (*workload.eval.inputs, *workload.eval.references):
        made.file(tensor.file)
    return made


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Keep coremltools' progress bars out of the report."""
    yield
    capfd.readouterr()


@pytest.fixture
def engine() -> FakeCoreMl:
    return FakeCoreMl()


def request(
    pack: coreml_build.Pack,
    device: str = "NPU",
    encoding: str = "coreml-fp16",
    cache: Path | None = None,
) -> LoadRequest:
    program = load_program(pack.root / CHAIN / PROGRAM)
    found = coreml_build.ENCODINGS[encoding]
    variant = variant_from(coreml_build.variant_document(program, found, passed=True))
    return LoadRequest(
        engine_id=f"coreml-{device.lower()}",
        workload_id=CHAIN,
        graph=pack.root / CHAIN / PROGRAM,
        encoding=encoding,
        format=found.format,
        inputs=variant.inputs,
        outputs=variant.outputs,
        threads=None,
        options={"provider": "coreml", "device": device, "cache": True},
        cache_dir=cache,
    )


def eval_pair(pack: coreml_build.Pack, wanted: LoadRequest) -> tuple[Array, Array]:
    workload = pack.manifest.workloads[CHAIN]
    ((x,), *_) = load_inputs(pack.root, workload.eval, wanted.inputs)
    (references,) = load_references(pack.root, workload.eval)
    return x, references[0].astype(np.float64)


# -- a session ----------------------------------------------------------------------------------


def test_a_session_computes_in_the_bound_arrays(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    wanted = request(pack)
    x, reference = eval_pair(pack, wanted)
    session = engine.load(wanted)
    (into,), (out,), step = session.inputs(), session.outputs(), session.step()
    into[...] = x
    step()
    error = np.square(out.astype(np.float64) - reference).sum()
    assert 10 * np.log10(np.square(reference).sum() / error) > 60
    assert session.outputs()[0] is out
    assert session.loaded_from_cache() is None
    session.close()
    with pytest.raises(EngineError, match="is closed"):
        session.step()


@pytest.mark.parametrize(
    ("device", "units"), [("NPU", "CPU_AND_NE"), ("GPU", "CPU_AND_GPU"), ("CPU", "CPU_ONLY")]
)
def test_each_engine_asks_for_its_own_units(
    pack: coreml_build.Pack, engine: FakeCoreMl, device: str, units: str
) -> None:
    engine.load(request(pack, device)).close()
    assert ("load", units, None) in engine.mac.calls


def test_left_to_core_ml_it_may_use_every_device_and_its_plan_tells_what_it_picked(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    own = engine.load(request(pack, "GPU"))
    assert own.picked() == ()
    own.close()
    session = engine.load(replace(request(pack, "GPU"), device_choice="automatic"))
    assert ("load", "ALL", None) in engine.mac.calls
    assert session.picked() == ("Neural Engine",)
    engine.mac.no_plan = "compute plans need macOS 14.4"
    with pytest.raises(EngineError, match=r"macOS 14\.4"):
        session.picked()
    session.close()


def test_a_compiled_program_takes_one_input_per_call(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    with pytest.raises(Unsupported, match="shapes of a compiled Core ML program are fixed"):
        engine.load(request(pack).of_batch(2))


def test_a_model_without_a_cache_leaves_nothing_behind(
    pack: coreml_build.Pack, engine: FakeCoreMl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = engine.load(request(pack))
    assert list(tmp_path.glob("npumark-coreml-*"))
    session.close()
    assert not list(tmp_path.glob("npumark-*"))


def test_a_model_is_compiled_once_and_reused(
    pack: coreml_build.Pack, engine: FakeCoreMl, tmp_path: Path
) -> None:
    for reused in (False, True, True):
        session = engine.load(request(pack, cache=tmp_path / "entry"))
        assert session.loaded_from_cache() is reused
        session.close()
    assert [call[0] for call in engine.mac.calls].count("compile") == 1


def test_a_changed_model_is_compiled_again(
    pack: coreml_build.Pack, engine: FakeCoreMl, tmp_path: Path
) -> None:
    engine.load(request(pack, cache=tmp_path / "entry")).close()
    (weights,) = tmp_path.rglob("weight.bin")
    assert COMPILED in weights.parts
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    session = engine.load(request(pack, cache=tmp_path / "entry"))
    assert session.loaded_from_cache() is False
    session.close()
    assert [call[0] for call in engine.mac.calls].count("compile") == 2


def test_what_the_framework_refuses_to_load_leaves_nothing_behind(
    pack: coreml_build.Pack, engine: FakeCoreMl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine.mac.no_load = {"CPU_AND_NE": "Core ML cannot load the program: no"}
    with pytest.raises(EngineError, match="cannot load the program: no"):
        engine.load(request(pack))
    assert not list(tmp_path.glob("npumark-*"))


# -- proof --------------------------------------------------------------------------------------


def test_a_plan_on_the_neural_engine_proves_it(
    pack: coreml_build.Pack, engine: FakeCoreMl, tmp_path: Path
) -> None:
    wanted = request(pack, cache=tmp_path / "entry")
    engine.load(wanted).close()
    placement = engine.placement(wanted, [], 3)
    assert (placement.verdict, placement.share, placement.partitions) == ("proved", 1.0, 1)
    assert placement.evidence == "plan"
    assert [call[0] for call in engine.mac.calls].count("compile") == 1


def test_a_plan_that_prefers_the_cpu_gives_the_neural_engine_nothing(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    engine.mac.prefers = "CPU"
    placement = engine.placement(request(pack), [], 3)
    assert (placement.verdict, placement.share, placement.op_share) == ("proved", 0.0, 0.0)


def test_without_a_plan_nothing_is_proved(pack: coreml_build.Pack, engine: FakeCoreMl) -> None:
    engine.mac.no_plan = "compute plans need macOS 14.4 or later, and this is 14.3"
    placement = engine.placement(request(pack), [], 3)
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why == engine.mac.no_plan


def test_what_ran_is_told_and_what_is_not_known_is_null(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    session = engine.load(request(pack))
    observed = session.observed()
    session.close()
    assert observed.device == "Neural Engine"
    assert (observed.precision, observed.precision_why) == ("FP16", None)
    assert observed.threads is None
    assert observed.version == "15.1"
    details = observed.details
    assert details["requested_units"] == "CPU_AND_NE"
    assert details["outputs"] == "in place"
    assert details["plan"]["Neural Engine"]["ops"] == 3
    ablation = details["cpu_ablation"]
    assert ablation["label"] == "measured; no proof of placement"
    assert ablation["ips"] > 0
    assert ablation["ratio"] == pytest.approx(ablation["ips"] / ablation["cpu_only_ips"])
    assert ("load", "CPU_ONLY", None) in engine.mac.calls


def test_the_timed_model_is_let_go_of_before_the_one_on_the_cpu_is_loaded(
    pack: coreml_build.Pack, engine: FakeCoreMl, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives: list[weakref.ref[NativeModel]] = []
    beside: list[int] = []
    load = engine.mac.load

    def counting(compiled: Path, units: Units, gpu: int | None = None) -> NativeModel:
        gc.collect()
        beside.append(sum(live() is not None for live in lives))
        model = load(compiled, units, gpu)
        lives.append(weakref.ref(model))
        return model

    monkeypatch.setattr(engine.mac, "load", counting)
    session = engine.load(request(pack))
    assert session.observed().details["cpu_ablation"]["cpu_only_ips"] > 0
    session.close()
    assert len(beside) > 2
    assert not any(beside)


@pytest.mark.parametrize(
    ("encoding", "why"), [("coreml-int8", "as integers"), ("coreml-lut4", "unpacks them")]
)
def test_a_format_that_core_ml_does_not_tell_is_not_claimed(
    pack: coreml_build.Pack, engine: FakeCoreMl, encoding: str, why: str
) -> None:
    session = engine.load(request(pack, encoding=encoding))
    observed = session.observed()
    session.close()
    assert observed.precision is None
    assert why in str(observed.precision_why)


def test_a_product_that_runs_elsewhere_says_nothing_of_the_neural_engine(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    engine.mac.prefers = "CPU"
    session = engine.load(request(pack))
    observed = session.observed()
    session.close()
    assert observed.device == "CPU"
    assert observed.precision is None
    assert "on the CPU, not on the Neural Engine" in str(observed.precision_why)


def test_without_a_plan_the_rest_is_still_told(pack: coreml_build.Pack, engine: FakeCoreMl) -> None:
    engine.mac.no_plan, engine.mac.in_place = "no plans here", False
    session = engine.load(request(pack))
    observed = session.observed()
    session.close()
    assert observed.device is None
    assert observed.precision is None
    assert "nowhere in particular" in str(observed.precision_why)
    assert observed.details["plan"] is None
    assert observed.details["plan_why"] == "no plans here"
    assert observed.details["outputs"] == "copied by every call"


def test_an_ablation_that_fails_costs_only_itself(
    pack: coreml_build.Pack, engine: FakeCoreMl
) -> None:
    engine.mac.no_load = {"CPU_ONLY": "no CPU today"}
    session = engine.load(request(pack))
    ablation = session.observed().details["cpu_ablation"]
    session.close()
    assert ablation["why"] == "no CPU today"
    assert ablation["ratio"] is None


def test_the_cpu_is_no_ablation_of_itself(pack: coreml_build.Pack, engine: FakeCoreMl) -> None:
    session = engine.load(request(pack, "CPU"))
    ablation = session.observed().details["cpu_ablation"]
    session.close()
    assert ablation["why"] == "this engine is the CPU alone"
    assert ablation["ips"] is None


def test_the_small_product_is_told_from_its_answers() -> None:
    native = FakeNative()
    assert number_format(native, "CPU_ONLY", None).family == "FP16"
    native.wrong = True
    assert number_format(native, "CPU_ONLY", None).family is None


# -- the probe ----------------------------------------------------------------------------------


def test_a_mac_has_three_engines(engine: FakeCoreMl) -> None:
    infos = engine.probe({})
    assert [(i.id, i.processor["role"], i.processor["name"]) for i in infos] == [
        ("coreml-ane", "NPU", "Apple M4 Max Neural Engine"),
        ("coreml-gpu", "iGPU", "Apple M4 Max"),
        ("coreml-cpu", "CPU", "Apple M4 Max"),
    ]
    for info in infos:
        assert info.available
        assert info.variants == ("coreml-fp16", "coreml-int8", "coreml-int8-affine")
        assert info.extra_variants == ("coreml-lut4",)
        assert info.options["cache"] is True
        assert requested(info.options).gpu is None


def test_what_a_mac_lacks_is_named(engine: FakeCoreMl) -> None:
    engine.mac.found = engine.mac.found[:2]
    infos = {info.id: info for info in engine.probe({})}
    assert not infos["coreml-ane"].available
    assert infos["coreml-ane"].reason == "this Mac has no Neural Engine that Core ML can use"
    assert infos["coreml-gpu"].available


def test_several_gpus_are_engines_of_their_own(engine: FakeCoreMl) -> None:
    engine.mac.found = two_gpus()
    gpus = [info for info in engine.probe({}) if info.id.startswith("coreml-gpu")]
    assert [(i.id, i.processor["role"], i.options["gpu"]) for i in gpus] == [
        ("coreml-gpu-1", "iGPU", 0),
        ("coreml-gpu-2", "dGPU", 1),
    ]
    assert ("load", "CPU_AND_GPU", 1) in engine.mac.calls


def test_a_device_that_answers_wrongly_or_not_at_all_is_no_engine(engine: FakeCoreMl) -> None:
    engine.mac.wrong = True
    assert {info.reason for info in engine.probe({})} == {
        "a one-node program fails: it gives a wrong answer"
    }
    engine.mac.wrong = False
    engine.mac.no_load = {"CPU_AND_NE": "Core ML cannot load the program: busy"}
    states = {info.id: info.reason for info in engine.probe({})}
    assert "busy" in str(states["coreml-ane"])
    assert states["coreml-gpu"] is None


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.skipif(platform.system() == "Darwin", reason="this is a Mac")
def test_elsewhere_one_sentence_says_why() -> None:
    with pytest.raises(Unsupported, match=r"^Core ML needs macOS$"):
        CoreMl().prepare()


@pytest.mark.parametrize("device", [None, "ANE", "CPU_ONLY", "AUTO"])
def test_a_device_that_is_none_is_refused(device: str | None) -> None:
    with pytest.raises(Unsupported, match="it has NPU, GPU and CPU"):
        requested({"device": device})


def test_an_encoding_that_is_none_is_refused(pack: coreml_build.Pack, engine: FakeCoreMl) -> None:
    with pytest.raises(Unsupported, match="has no encoding fp32"):
        engine.load(replace(request(pack), encoding="fp32"))
