"""Write the corpus of records: ``python tests/records/make_bad.py``.

``good_document`` is one small, sealed record; ``good/`` holds it unsigned and signed. Each bad one
is such a record with a single thing wrong: reading refuses those in ``bad/``, checking signatures
those in ``bad_signatures/``. ``expected.json`` in each holds the words of the refusal.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent.parent))

from npumark.policy import load_policy  # noqa: E402
from npumark.record.canonical import payload_sha256  # noqa: E402 - after the path is set
from npumark.record.samples import burst_ips, drift, encode_samples, latency, sustained_ips  # noqa: E402
from npumark.record.signing import sign_record  # noqa: E402
from tests.records.signature_corpus import (  # noqa: E402
    BUILD,
    INSTALL,
    MALFORMED,
    NOT_FOR_THIS,
    forgeries,
)

DURATIONS = [4_000_000 + 1000 * (n * 7 % 40) for n in range(120)]
"""Of the one attempt: 120 calls, so that p99 is supported and p99.9 is not."""


def good_document() -> dict[str, Any]:
    """Return a whole, sealed record document of one engine and one entry."""
    payload = _payload()
    return {"payload": payload, "payload_sha256": payload_sha256(payload), "signatures": None}


def signed_document() -> dict[str, Any]:
    """Return the same record signed by a release build, with the keys of the golden vectors."""
    document = good_document()
    document["signatures"] = sign_record(document["payload_sha256"], INSTALL, BUILD)
    return document


def good_files() -> dict[str, bytes]:
    """Return each good file's bytes."""
    development = signed_document()
    development["signatures"] = sign_record(development["payload_sha256"], INSTALL, None)
    documents = {
        "unsigned": good_document(),
        "signed_by_a_release": signed_document(),
        "signed_by_a_development_build": development,
    }
    return {name: json.dumps(document).encode() for name, document in documents.items()}


def bad_files() -> dict[str, tuple[bytes, str]]:
    """Return each bad file's bytes and the words its refusal must contain."""
    good = good_document()
    text = json.dumps(good)
    digest = good["payload_sha256"]
    ips = json.dumps(good["payload"]["entries"][0]["figure"]["ips"])
    files: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "not complete, correct JSON"),
        "truncated": (text[: len(text) // 2].encode(), "not complete, correct JSON"),
        "trailing": (text.encode() + b"{}", "not complete, correct JSON"),
        "byte_order_mark": (b"\xef\xbb\xbf" + text.encode(), "not complete, correct JSON"),
        "not_utf8": (text.encode().replace(b"Xeon", b"Xe\xf6n"), "not UTF-8 text"),
        "utf16": (text.encode("utf-16"), "not UTF-8 text"),
        "duplicate_key": (
            text.replace('"score_version"', '"score_version": "9.9", "score_version"', 1).encode(),
            'the key "score_version" twice',
        ),
        "duplicate_key_escaped": (
            text.replace('"comparable"', '"compar\\u0061ble": true, "comparable"', 1).encode(),
            'the key "comparable" twice',
        ),
        "nan": (text.replace(ips, "NaN", 1).encode(), "holds NaN, which is no number"),
        "infinity": (text.replace(ips, "-Infinity", 1).encode(), "holds -Infinity"),
        "too_large_number": (text.replace(ips, "1e999", 1).encode(), '"1e999", too large'),
        "too_large_integer": (
            text.replace('"wall_ns": 5', '"wall_ns": 9007199254740992', 1).encode(),
            "beyond what every reader keeps exact",
        ),
        "endless_integer": (
            text.replace('"wall_ns": 5', '"wall_ns": ' + "9" * 5000, 1).encode(),
            "beyond what every reader keeps exact",
        ),
        "lone_surrogate": (text.replace("Xeon", "\\ud800", 1).encode(), "surrogate pair"),
        "too_deep": (
            text.replace('"harness": {}', '"harness": {"x": ' + "[" * 30 + "]" * 30 + "}").encode(),
            "nested more than",
        ),
        "a_list": (b"[]", "has no payload"),
        "no_payload": (b'{"payload": 3}', "has no payload"),
        "other_schema": (
            text.replace("npumark-record/1", "npumark-record/7", 1).encode(),
            'the schema "npumark-record/7"',
        ),
        "no_schema": (_edit(lambda p: p.pop("schema")), "the schema null"),
        "digest_missing": (json.dumps({"payload": good["payload"], "signatures": None}).encode(),
                           "payload_sha256: Field required"),
        "digest_of_another": (text.replace(digest, "0" * 64).encode(), "was changed after"),
        "edited_score": (text.replace(ips, "999.0", 1).encode(), "was changed after"),
    }  # fmt: skip
    shapes: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
        "unknown_field": (
            lambda p: p.update(boast="fast"),
            "payload.boast: Extra inputs are not permitted",
        ),
        "missing_field": (lambda p: p.pop("comparable"), "payload.comparable: Field required"),
        "text_for_number": (
            lambda p: p["entries"][0]["figure"].update(ips="250"),
            "payload.entries[0].figure.ips: Input should be a valid number",
        ),
        "float_for_nanoseconds": (
            lambda p: p["entries"][0]["attempts"][0].update(wall_ns=5.5),
            "payload.entries[0].attempts[0].wall_ns: Input should be a valid integer",
        ),
        "negative_nanoseconds": (
            lambda p: p["entries"][0]["attempts"][0].update(started_ns=-1),
            "payload.entries[0].attempts[0].started_ns: Input should be greater than",
        ),
        "yes_for_true": (
            lambda p: p.update(comparable="yes"),
            "payload.comparable: Input should be a valid boolean",
        ),
        "unknown_status": (
            lambda p: p["entries"][0].update(status="fine"),
            "payload.entries[0].status: Input should be",
        ),
        "unknown_role": (
            lambda p: p["processors"][0].update(role="TPU"),
            "payload.processors[0].role: Input should be",
        ),
        "box_of_processors": (
            lambda p: p["plan"]["box"].update(roles=["CPU"]),
            "payload.plan.box.roles[0]: Input should be",
        ),
    }
    for name, (change, words) in shapes.items():
        files[name] = (_edit(change), words)
    for name, (change, words) in MALFORMED.items():
        files[f"signatures_{name}"] = (_edit_signatures(change), words)
    return files


def bad_signature_files() -> dict[str, tuple[bytes, str]]:
    """Return each file that reads well and whose signatures do not hold, and the words of it."""
    document = signed_document()
    made = forgeries(bytes.fromhex(document["payload_sha256"]))
    files = {name: (_edit_signatures(change), words) for name, (change, words) in made.items()}
    document["payload"]["tool"]["python"] = "3.99.0"
    document["payload_sha256"] = payload_sha256(document["payload"])
    files["payload_edited_and_sealed_anew"] = (json.dumps(document).encode(), NOT_FOR_THIS)
    return files


def write() -> None:
    """Write the corpus."""
    for folder, files in (("bad", bad_files()), ("bad_signatures", bad_signature_files())):
        place = FOLDER / folder
        place.mkdir(exist_ok=True)
        for name, (raw, _) in files.items():
            (place / f"{name}.json").write_bytes(raw)
        expected = {name: words for name, (_, words) in sorted(files.items())}
        text = json.dumps(expected, indent=1, ensure_ascii=False) + "\n"
        (place / "expected.json").write_text(text, "utf-8")
    (FOLDER / "good").mkdir(exist_ok=True)
    for name, raw in good_files().items():
        (FOLDER / "good" / f"{name}.json").write_bytes(raw)


def _edit(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the good record with a changed payload and the digest that fits it: only the
    schema is left to refuse it."""
    document = copy.deepcopy(good_document())
    change(document["payload"])
    document["payload_sha256"] = payload_sha256(document["payload"])
    return json.dumps(document).encode()


def _edit_signatures(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = signed_document()
    change(document["signatures"])
    return json.dumps(document).encode()


def _payload() -> dict[str, Any]:
    timed = sum(DURATIONS)
    ips = len(DURATIONS) * 1e9 / timed
    policy = load_policy()
    times = latency(DURATIONS, policy.percentiles).model_dump()
    burst = burst_ips(DURATIONS, policy.timing.burst_s)
    slower = drift(DURATIONS, policy.timing.drift_window_s)
    observed = {
        "device": "CPU", "precision": "INT8", "precision_why": None, "threads": 2,
        "runtime": "onnxruntime", "version": "1.32.0", "versions": {}, "details": {},
    }  # fmt: skip
    measurement = {
        "iterations": len(DURATIONS), "timed_ns": timed, "ips": ips, "latency_ns": times,
        "burst_ips": burst, "drift": slower, "sustained_ips": sustained_ips(DURATIONS),
        "first_call_ns": 6_000_000,
        "warmup_calls": 3, "warmup_steady": True, "import_ns": 1, "verify_ns": 1, "load_ns": 1,
        "warmup_ns": 14_000_000, "loop_ns": timed, "accuracy_ns": 1, "placement_ns": 1,
        "timer_overhead_ns": 60, "peak_rss_bytes": 1 << 28, "measures": {"snr_db": 30.5},
        "accuracy_why": None,
        "timed_check": {"iterations": [1, 7], "passed": True, "bit_identical": True,
                        "min_snr_db": None, "nondeterministic": False},
        "samples_sha256": hashlib.sha256(encode_samples(DURATIONS)).hexdigest(),
        "loaded_from_cache": None,
    }  # fmt: skip
    attempt = {
        "n": 1, "status": "ok", "why": None, "started_ns": 0, "wall_ns": 5_000_000_000, "seed": 1,
        "pid_exit": 0, "observed": observed, "placement": None, "measurement": measurement,
        "log_tail": None, "cache": None,
    }  # fmt: skip
    entry = {
        "engine": "ort-cpu", "workload": "peak-512x2048x8", "variant": "int8-u8s8",
        "graph_variant": "int8-u8s8", "declared_format": "INT8", "format": "INT8",
        "label": "INT8", "status": "ok", "why": None,
        "figure": {"ips": ips, "tops": ips * 34_359_738_368 / 1e12}, "counts": True,
        "why_not": None, "high_accuracy": False,
        "stats": {"attempts": 1, "counted": 1, "spread": 0.0, "robust_cv": 0.0,
                  "unstable": False, "screened": False, "screened_outlier": False,
                  "agreed": True, "tail_ratio": None},
        "gates": {"standard": None, "strict": None, "timed_check": True},
        "placement": {"verdict": None, "share": None, "op_share": None, "partitions": None,
                      "evidence": None, "why": None, "eligible": True},
        "crashed_attempts": [], "attempts": [attempt],
    }  # fmt: skip
    return {
        "schema": "npumark-record/1", "score_version": "3.2", "run_id": "20260102T030405Z-abcd",
        "created": "2026-01-02T03:04:05Z", "finished": None, "complete": False,
        "tool": {"version": "0.1.0", "python": "3.11.9", "packages": {}},
        "suite": {"name": "npumark-open", "version": "1", "edition": "seeded", "basis": "3.2",
                  "manifest_sha256": "0" * 64, "verified": True, "why_not": None},
        "policy_sha256": "1" * 64, "formula_sha256": "2" * 64,
        "plan": {"quick": True, "ladder": None, "all_variants": False, "engines": None,
                 "workloads": None, "variants": None, "time_budget_s": None,
                 "include_known_crashes": False, "include_emulated": False, "large_peak": False,
                 "box": {"mode": "auto", "roles": None, "cards": None, "solo": []},
                 "argv": ["--quick"],
                 "spacing_s": 0.0, "loop_s": 0.5},
        "score": None, "score_why": "an example", "comparable": False,
        "not_comparable_because": ["quick"], "machine": {"cpu_model": "Intel(R) Xeon(R)"},
        "processors": [{"id": "cpu", "role": "CPU", "name": "Intel Xeon", "number": 1,
                        "details": {}}],
        "environment": {"checks": {}, "noisy": False, "skipped": True, "facts": {}},
        "engines": [{"id": "ort-cpu", "runtime": "onnxruntime", "runtime_title": "ONNX Runtime",
                     "version": "1.32.0", "versions": {}, "processor": "cpu", "requested": {},
                     "environment": None, "emulated": False, "virtual": False, "local_only": False,
                     "package": None, "peak": None,
                     "delivered": None, "high_accuracy": None}],
        "entries": [entry], "prepared": [], "resumed": [], "where_time_went_ns": {"timed": timed},
        "harness": {}, "large_peak": None, "box": None, "box_why": "an example", "warnings": [],
    }  # fmt: skip


if __name__ == "__main__":
    write()
