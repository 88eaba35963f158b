"""A result as it is read back: whole and of this version, or refused."""

from __future__ import annotations

import json
from typing import Any

from npumark.plain import one_line
from npumark.worker.job import SCHEMA, stamps_from
from npumark.worker.probe_answer import in_lines, nonsense, usable_id
from npumark.worker.result import (
    CacheUse,
    EngineInfo,
    Latency,
    Measurement,
    Observed,
    Placement,
    Prepared,
    Probed,
    ProbeSamples,
    Result,
    TimedCheck,
    Window,
    WindowCheck,
)

MAX_ENGINES = 256
"""More than any computer has of one runtime; what a probe lists beyond is left out."""


def decode_result(raw: bytes) -> Result:
    """Return the result in ``raw``. Raises ValueError where it is not one of this version.

    An engine that a probe describes wrongly comes back as one that is not available, with the
    reason; its id is empty where it gave none that can be one.
    """
    doc = json.loads(raw)
    if not isinstance(doc, dict) or doc.get("schema") != SCHEMA:
        raise ValueError("not a result of this version")
    try:
        return Result(
            status=doc["status"],
            why=doc["why"],
            engines=_engine_infos(doc["engines"]),
            observed=Observed(**doc["observed"]) if doc["observed"] else None,
            placement=Placement(**doc["placement"]) if doc["placement"] else None,
            measurement=_measurement(doc["measurement"]) if doc["measurement"] else None,
            stamps=stamps_from(doc["stamps"]),
            harness=dict(doc["harness"]),
            cache=CacheUse(**doc["cache"]) if doc["cache"] else None,
            cache_stamps=stamps_from(doc["cache_stamps"]),
            prepared=Prepared(**doc["prepared"]) if doc["prepared"] else None,
            window=_window(doc["window"]) if doc["window"] else None,
            probed=_probed(doc["probed"]) if doc["probed"] else None,
            python=doc["python"],
        )
    except (TypeError, KeyError, AttributeError, IndexError) as fault:
        raise ValueError(f"not a result of this version: {fault!r}") from fault


def _engine_infos(docs: Any) -> tuple[EngineInfo, ...]:
    if not isinstance(docs, list):
        docs = [docs]
    return tuple(_engine_info(doc) for doc in docs[:MAX_ENGINES])


def _engine_info(doc: Any) -> EngineInfo:
    """Return an engine as its probe described it, or one that is not available and says why."""
    why = nonsense(doc)
    if why is None:
        try:
            return EngineInfo(**in_lines(doc))
        except TypeError as fault:  # a field is missing
            why = str(fault)
    told = doc if isinstance(doc, dict) else {}
    name, runtime = told.get("id"), told.get("runtime")
    title = told.get("runtime_title")
    return EngineInfo(
        id=str(name) if usable_id(name) else "",
        available=False,
        reason=f"its probe answered nonsense: {why}",
        runtime=one_line(runtime) if isinstance(runtime, str) else "",
        runtime_title=one_line(title) if isinstance(title, str) else "",
        version=None,
    )


def _measurement(doc: dict[str, Any]) -> Measurement:
    doc = dict(doc)
    check = dict(doc["timed_check"])
    check["iterations"] = tuple(check["iterations"])
    doc["timed_check"] = TimedCheck(**check)
    doc["latency"] = Latency(**doc["latency"])
    return Measurement(**doc)


def _window(doc: dict[str, Any]) -> Window:
    doc = dict(doc)
    doc["straddling"] = tuple((int(begin), int(end)) for begin, end in doc["straddling"])
    doc["check"] = WindowCheck(**doc["check"])
    doc["cpus"] = None if doc["cpus"] is None else tuple(doc["cpus"])
    return Window(**doc)


def _probed(doc: dict[str, Any]) -> Probed:
    samples = {str(k): ProbeSamples(**v) for k, v in doc["samples"].items()}
    return Probed(samples, dict(doc["facts"]))
