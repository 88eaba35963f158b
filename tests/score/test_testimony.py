"""What a record says of its engines cannot contradict the catalogue, or what attempts observed."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from npumark.engines import coreml_plan, litert_evidence, openvino_evidence, ort_beneath
from npumark.engines.catalogue import PROVIDERS, provider
from npumark.engines.ort_profile import Inner
from npumark.engines.qnn_profile import QnnProfile
from npumark.policy import load_policy
from npumark.record.model import Payload
from npumark.score.catalogued import BENEATH, EVIDENCE, evidence_of, row_of
from npumark.score.recompute import recompute
from tests import synthetic
from tests.synthetic import CPU, NPU, engine, payload_of, simulate

POLICY = load_policy()
PACK = synthetic.manifest()
THIRD = engine("numpy-cpu", variants=("fp32",), derived_from={}, package="npumark-numpy 0.1")
DOCUMENT = payload_of(simulate(synthetic.steady, (CPU, NPU, THIRD))).model_dump(
    mode="json", by_alias=True
)
Edit = Callable[[dict[str, Any]], object]

HELD: dict[str, Any] = {
    "name": "qnn",
    "python": "3.11.7",
    "packages": {"onnxruntime": "1.0", "onnxruntime-qnn": "2.0"},
    "sha256": "0a" * 32,
}


def named(document: dict[str, Any]) -> list[str]:
    return [d.path for d in recompute(Payload.model_validate(document), PACK, POLICY)]


def of(document: dict[str, Any], name: str) -> Any:
    """Return an engine of the document."""
    return next(e for e in document["engines"] if e["id"] == name)


def first(document: dict[str, Any], name: str) -> Any:
    """Return the first attempt of an engine."""
    return next(e for e in document["entries"] if e["engine"] == name)["attempts"][0]


def housed() -> dict[str, Any]:
    """Return the run with its NPU's engine in an environment of its own, which it agrees with."""
    document = copy.deepcopy(DOCUMENT)
    of(document, NPU.id).update(
        environment=copy.deepcopy(HELD),
        versions=dict(HELD["packages"]),
    )
    for entry in document["entries"]:
        for attempt in entry["attempts"] if entry["engine"] == NPU.id else ():
            attempt["observed"]["versions"] = {"onnxruntime": "1.0"}
    return document


def test_true_records_contradict_nothing() -> None:
    assert named(DOCUMENT) == []
    assert named(housed()) == []


def _emulate(document: dict[str, Any]) -> Any:
    """Put the NPU's engine on a processor that is emulated, and say so nowhere else."""
    told = of(document, NPU.id)
    processor = next(p for p in document["processors"] if p["id"] == told["processor"])
    told["processor"] = processor["id"] = "npu-emulated"
    processor["details"]["emulated"] = True
    return processor


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (_emulate, "engines[1].emulated"),
        (lambda d: _emulate(d)["details"].pop("emulated"), "processors[1].details.emulated"),
        (lambda d: d["processors"][1]["details"].update(emulated=True), "processors[1].details"),
        (lambda d: of(d, NPU.id).update(emulated=True), "engines[1].emulated"),
        (lambda d: d["machine"].update(architecture="x86_64"), "engines[1].emulated"),
        (lambda d: d["machine"].update(architecture="AMD64"), "engines[1].emulated"),
        (lambda d: of(d, NPU.id).update(runtime="openvino"), "engines[1].runtime"),
        (lambda d: of(d, NPU.id).update(runtime_title="TensorRT"), "engines[1].runtime_title"),
        (lambda d: of(d, CPU.id).update(runtime_title="TensorRT"), "engines[0].runtime_title"),
        (lambda d: of(d, CPU.id).update(local_only=True), "engines[0].local_only"),
        (lambda d: of(d, CPU.id).update(package="a package 1.0"), "engines[0].id"),
        (lambda d: of(d, THIRD.id).update(package=None), "engines[2].id"),
        (lambda d: of(d, CPU.id).update(versions={"ort": "9.9"}), None),
    ],
)
def test_an_engine_that_is_not_what_it_is_called_is_named(edit: Edit, path: str | None) -> None:
    document = copy.deepcopy(DOCUMENT)
    edit(document)
    found = named(document)
    assert any(f.startswith(path) for f in found) if path else found == [], found


@pytest.mark.parametrize(
    ("architecture", "maker"),
    [("aarch64", None), ("ARM64", None), ("x86_64", "Qualcomm"), (None, None)],
)
def test_a_device_of_qualcomms_is_no_emulator(architecture: str | None, maker: str | None) -> None:
    document = copy.deepcopy(DOCUMENT)
    document["machine"]["architecture"] = architecture
    document["processors"][1]["details"]["maker"] = maker
    assert named(document) == []


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda e: e["environment"].update(sha256="0" * 63), "engines[1].environment.sha256"),
        (lambda e: e["environment"].update(sha256="not a hash"), "engines[1].environment.sha256"),
        (lambda e: e["environment"].update(sha256="0A" * 32), "engines[1].environment.sha256"),
        (lambda e: e["environment"].update(name="cuda"), "engines[1].environment.name"),
        (lambda e: e["environment"].update(name="mine"), "engines[1].environment.name"),
        (
            lambda e: e["environment"]["packages"].update({"onnxruntime-qnn": "9.9"}),
            "engines[1].environment.packages.onnxruntime-qnn",
        ),
        (
            lambda e: e.update(versions={"onnxruntime": "9.9"}),
            "engines[1].environment.packages.onnxruntime",
        ),
        (lambda e: e["environment"]["packages"].update(numpy="1"), None),
        (lambda e: e["environment"].update(name="windowsml"), None),
    ],
)
def test_an_environment_that_is_not_the_engines_is_named(edit: Edit, path: str | None) -> None:
    document = housed()
    edit(of(document, NPU.id))
    found = named(document)
    assert path in found if path else found == [], found


def test_another_version_than_the_probes_is_named_unless_a_resumption_says_so() -> None:
    document = housed()
    first(document, NPU.id)["observed"]["versions"]["onnxruntime"] = "1.1"
    (found,) = named(document)
    assert found.endswith("attempts[0].observed.versions.onnxruntime")
    document["resumed"] = [{"at_ns": 1, "changed": [f"engine {NPU.id}"]}]
    assert not [f for f in named(document) if "versions" in f]


@pytest.mark.parametrize("name", [CPU.id, NPU.id])
@pytest.mark.parametrize("words", ["", "made up", "plan", "virtual"])
def test_evidence_that_no_engine_of_the_runtime_gives_is_named(name: str, words: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    first(document, name)["placement"]["evidence"] = words
    assert any(f.endswith("attempts[0].placement.evidence") for f in named(document))


def test_a_provider_that_must_name_a_further_witness_does() -> None:
    document = copy.deepcopy(DOCUMENT)
    first(document, NPU.id)["placement"]["evidence"] = EVIDENCE["ort"][0]
    assert any(f.endswith("attempts[0].placement.evidence") for f in named(document))


def test_another_partys_words_are_its_own() -> None:
    document = copy.deepcopy(DOCUMENT)
    for entry in document["entries"]:
        if entry["engine"] == THIRD.id:
            entry["placement"]["evidence"] = "its word"
            for attempt in entry["attempts"]:
                attempt["placement"]["evidence"] = "its word"
    assert named(document) == []


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda a: a["placement"].update(op_share=0.5), "placement.op_share"),
        (lambda a: a["placement"].update(op_share=None), "placement.op_share"),
        (lambda a: a["observed"].update(device="RTX 5090"), "observed.device"),
        (
            lambda a: a["observed"]["details"].update(
                assigned={"CPUExecutionProvider": {"MatMul": 3}}
            ),
            "placement.share",
        ),
        (
            lambda a: a["observed"]["details"]["assigned"].update(
                CPUExecutionProvider={"MatMul": 1}
            ),
            "placement.op_share",
        ),
        (lambda a: a["observed"]["details"].pop("assigned"), "observed.details.assigned"),
        (lambda a: a["observed"]["details"].update(assigned=[]), "observed.details.assigned"),
        (
            lambda a: a["observed"]["details"].update(assigned={"QNNExecutionProvider": 7}),
            "observed.details.assigned",
        ),
    ],
)
def test_a_placement_that_the_assignment_denies_is_named(edit: Edit, path: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    edit(first(document, NPU.id))
    found = named(document)
    assert any(f.endswith(f"attempts[0].{path}") for f in found), found


def test_the_words_that_prove_are_those_that_the_engines_give() -> None:
    """Each runtime's own module is asked, so that the list cannot go stale."""
    assert openvino_evidence.prove([], "CPU", ["CPU"]).evidence in EVIDENCE["openvino"]
    told = {
        litert_evidence.on_cpu([]).evidence,
        litert_evidence.on_accelerator(whole=True).evidence,
    }
    assert told == set(EVIDENCE["litert"])
    assert EVIDENCE["coreml"] == (coreml_plan.EVIDENCE,)
    qnn = ort_beneath.qnn(QnnProfile(1, 1, Counter(node=1)), None, 1)
    inner = Inner("OpenVINOExecutionProvider", "MatMul", "other", 1)
    assert qnn.source == BENEATH["ort-qnn"]
    assert ort_beneath.openvino([inner], "GPU").source == BENEATH["ort-openvino"]


def test_every_row_of_the_catalogue_has_words_and_is_found_by_its_ids() -> None:
    for row in PROVIDERS:
        for role in row.roles:
            assert all(evidence_of(row, role))
            for number in (None, 2):
                told = engine(row.engine_id(role, number), role)
                payload = payload_of(simulate(synthetic.steady, (told,), limit=0))
                assert row_of(payload.engines[0]) == row
    assert evidence_of(provider("ort-openvino"), "CPU") == [EVIDENCE["ort"][0]]  # type: ignore[arg-type]
