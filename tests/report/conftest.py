"""A record made by hand: two engines on one CPU, every kind of ending, nothing measured here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npumark.record.model import Record

FORMATS = {"fp32": "FP32", "bf16": "BF16", "int8-u8s8": "INT8", "w8": "W8"}
NETWORKS = ("mobilenet-v3-large", "resnet50", "deeplabv3", "granite-30m")


def gate(*, passed: bool = True, why: str | None = None) -> dict[str, Any]:
    return {
        "passed": passed,
        "basis": "ort-cpu-a8w8",
        "binding": "snr_db",
        "margin": 9.7 if passed else -3.25,
        "bounds": {"snr_db": 20.0},
        "measures": {"snr_db": 29.7 if passed else 16.75},
        "why": why,
    }


def attempt(n: int, status: str = "ok", log: str | None = None) -> dict[str, Any]:
    return {
        "n": n,
        "status": status,
        "why": None,
        "started_ns": n,
        "wall_ns": 3,
        "seed": 1,
        "pid_exit": 0 if status == "ok" else -11,
        "observed": None,
        "placement": None,
        "measurement": None,
        "log_tail": log,
        "cache": None,
    }


def entry(
    engine: str, workload: str, variant: str, tops: float | None, **over: Any
) -> dict[str, Any]:
    declared = FORMATS[variant]
    made = {
        "engine": engine,
        "workload": workload,
        "variant": variant,
        "graph_variant": variant,
        "declared_format": declared,
        "format": declared,
        "label": declared,
        "status": "ok",
        "why": None,
        "figure": None if tops is None else {"ips": tops * 1000 / 3, "tops": tops},
        "counts": tops is not None,
        "why_not": None,
        "high_accuracy": False,
        "stats": {
            "attempts": 3,
            "counted": 3,
            "spread": 0.011,
            "robust_cv": 0.004,
            "unstable": False,
            "screened": False,
            "screened_outlier": False,
            "agreed": True,
            "tail_ratio": 1.05,
        },
        "gates": {"standard": gate(), "strict": None, "timed_check": True},
        "placement": {
            "verdict": "proved",
            "share": 1.0,
            "op_share": None,
            "partitions": None,
            "evidence": "profile",
            "why": None,
            "eligible": True,
        },
        "crashed_attempts": [],
        "attempts": [attempt(n) for n in (1, 2, 3)],
    }
    return made | over


def engine(id_: str, title: str, peak: float, delivered: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": id_,
        "runtime": id_.split("-")[0],
        "runtime_title": title,
        "version": "1.32.0",
        "versions": {},
        "processor": "cpu",
        "requested": {},
        "environment": None,
        "emulated": False,
        "virtual": False,
        "local_only": False,
        "package": None,
        "peak": {
            "tops": peak,
            "format": "INT8",
            "label": "INT8 (u8s8)",
            "workload": "peak-512x2048x8",
            "variant": "int8-u8s8",
            "unstable": False,
            "robust_cv": 0.006,
            "attempts": 5,
            "counted": 3,
        },
        "delivered": delivered,
        "high_accuracy": None,
    }


def payload() -> dict[str, Any]:
    nets = {
        n: {
            "variant": "int8-u8s8",
            "format": "INT8",
            "tops": 0.2,
            "ips": 66.7,
            "unstable": False,
            "screened_outlier": False,
        }
        for n in NETWORKS
    }
    whole = {
        "tops": 0.2,
        "complete": True,
        "unstable": False,
        "missing": [],
        "networks": nets,
    }
    partial = whole | {
        "complete": False,
        "missing": ["granite-30m"],
        "networks": {n: nets[n] for n in NETWORKS[:3]},
    }
    entries = []
    for id_, speed in (("ort-cpu", 1.0), ("openvino-cpu", 0.9)):
        for shape in ("peak-512x2048x8", "peak-2048x2048x4"):
            entries += [
                entry(id_, shape, "fp32", 0.17 * speed),
                entry(id_, shape, "bf16", 0.0421 * speed, format="FP32"),
                entry(id_, shape, "int8-u8s8", 0.83 * speed),
            ]
        for network in NETWORKS:
            entries += [
                entry(id_, network, "fp32", 0.11 * speed),
                entry(id_, network, "int8-u8s8", 0.2 * speed),
            ]
    failed = "snr_db 16.75 dB is below the bound 20 dB"
    entries += [
        entry(
            "ort-cpu",
            "resnet50",
            "w8",
            0.4,
            counts=False,
            status="gate_failed",
            why=failed,
            why_not="gate_failed",
            gates={
                "standard": gate(passed=False, why=failed),
                "strict": None,
                "timed_check": True,
            },
        ),
        entry(
            "openvino-cpu",
            "granite-30m",
            "w8",
            None,
            format=None,
            status="crashed",
            why="the worker died: signal 11 (segmentation fault)",
            why_not="crashed",
            gates={"standard": None, "strict": None, "timed_check": None},
            placement={
                "verdict": None,
                "share": None,
                "op_share": None,
                "partitions": None,
                "evidence": None,
                "why": None,
                "eligible": False,
            },
            attempts=[attempt(1, "crashed", "loading model\nSegmentation fault (core dumped)\n")],
        ),
    ]
    return {
        "schema": "npumark-record/1",
        "score_version": "3.2",
        "run_id": "20261130-214500-abcd",
        "created": "2026-11-30T21:45:00Z",
        "finished": "2026-11-30T21:52:00Z",
        "complete": True,
        "tool": {"version": "0.1.0", "python": "3.11.7", "packages": {}},
        "suite": {
            "name": "npumark-open",
            "version": "1.0",
            "edition": "seeded",
            "basis": "3.2",
            "manifest_sha256": "0" * 64,
            "verified": True,
            "why_not": None,
        },
        "policy_sha256": "0" * 64,
        "formula_sha256": "0" * 64,
        "plan": {
            "quick": False,
            "ladder": None,
            "all_variants": False,
            "engines": None,
            "workloads": None,
            "variants": None,
            "time_budget_s": None,
            "include_known_crashes": False,
            "include_emulated": False,
            "large_peak": False,
            "box": {"mode": "auto", "roles": None, "cards": None, "solo": []},
            "argv": [],
            "spacing_s": 30.0,
            "loop_s": 2.0,
        },
        "score": {
            "tops": 0.83,
            "label": "0.83 TOPS · CPU · Intel Xeon Platinum 8581C (ONNX Runtime) · INT8",
            "engine": "ort-cpu",
            "processor": "cpu",
            "format": "INT8",
            "workload": "peak-512x2048x8",
            "variant": "int8-u8s8",
            "unstable": False,
        },
        "score_why": None,
        "comparable": True,
        "not_comparable_because": [],
        "machine": {},
        "processors": [
            {
                "id": "cpu",
                "role": "CPU",
                "name": "Intel Xeon Platinum 8581C",
                "number": 1,
                "details": {},
            }
        ],
        "environment": {"checks": {}, "noisy": False, "skipped": False, "facts": {}},
        "engines": [
            engine("ort-cpu", "ONNX Runtime", 0.83, whole),
            engine("openvino-cpu", "OpenVINO", 0.747, partial),
        ],
        "entries": entries,
        "prepared": [],
        "resumed": [],
        "where_time_went_ns": {
            "loop": 180_000_000_000,
            "accuracy": 90_000_000_000,
            "load": 30_000_000_000,
            "warmup": 20_000_000_000,
        },
        "harness": {"overhead_ns": {"call": 2209, "bare_call": 2168, "added": 41, "timer": 38}},
        "large_peak": None,
        "box": None,
        "box_why": None,
        "warnings": [],
    }


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """Return a maker of records: keywords replace top-level fields of the payload."""

    def make(**over: Any) -> Record:
        document = {
            "payload": payload() | over,
            "payload_sha256": "0" * 64,
            "signatures": None,
        }
        return Record.model_validate(document)

    return make


@pytest.fixture
def make_entry() -> Callable[..., dict[str, Any]]:
    return entry


@pytest.fixture
def make_engine() -> Callable[..., dict[str, Any]]:
    return engine
