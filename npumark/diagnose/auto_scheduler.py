"""Auto-scheduler: what the runtime picks where it is left to choose the device, and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npumark.diagnose.latency import median_ns
from npumark.diagnose.noise import Noise, noise
from npumark.diagnose.probe import Finding, Probe, Ratio, Seen, Step, Target, rate
from npumark.diagnose.reading import failed, not_applicable
from npumark.policy import DiagnoseRules

_STEP = "auto"
_COLUMNS = (
    ("choice", "device chosen by"),
    ("picked", "device"),
    ("ips", "inf/s"),
    ("median_ns", "median latency"),
    ("load_ns", "load"),
    ("first_call_ns", "first call"),
)


def steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    """Return the one step. Which runtimes choose by themselves is theirs to say, when asked."""
    del target
    return (Step(_STEP, "auto", {"seconds": rules.loop_s}, seconds=rules.loop_s),)


def finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    """Return the rate with the automatic choice against the engine's own device, and of the
    load times where both came about alike."""
    step = seen[_STEP]
    if step.status == "unsupported":
        return not_applicable(step.why or "this engine has no automatic choice of its device")
    if step.status != "ok":
        return failed(step.why or step.status)
    alone, chosen = rate(single.samples["calls"]), rate(step.samples["calls"])
    asked = str(step.facts["asked"])
    own = (single.facts.get("observed") or {}).get("device")
    rows = (
        _row("this engine", own, single, alone, rules),
        _row(asked, step.facts.get("picked"), step, chosen, rules),
    )
    pace = Ratio(
        "auto_rate", chosen / alone, f"inferences/s with {asked} ÷ those on the engine's device"
    )
    ratios = [pace]
    # A load from a compiled model and one that compiles do not compare.
    if not target.compiles or step.facts.get("from_cache"):
        load = step.facts["load_ns"] / single.facts["load_ns"]
        ratios.append(Ratio("auto_load", load, f"load time with {asked} ÷ that on the device"))
    picked = step.facts.get("picked")
    strays = noise(single, seen, rules)
    said, advice = strays.told(*_words(asked, picked, own, pace.value, strays))
    return Finding("ok", None, _COLUMNS, rows, "ips", tuple(ratios), said, advice)


def _row(choice: str, picked: Any, step: Seen, ips: float, rules: DiagnoseRules) -> dict[str, Any]:
    return {
        "choice": choice,
        "picked": picked,
        "ips": ips,
        "median_ns": median_ns(step.samples["calls"], rules),
        "load_ns": step.facts.get("load_ns"),
        "first_call_ns": step.facts.get("first_call_ns"),
    }


def same_device(picked: str | None, own: str | None) -> bool | None:
    """Say whether the main device that was picked is the engine's own: the first that is named,
    which does the most; null where either is not told. OpenVINO puts a device in brackets that
    stands in while the one that it wants still compiles."""
    if picked is None or own is None:
        return None
    mains = (told.partition(",")[0].strip().strip("()").casefold() for told in (picked, own))
    return next(mains) == next(mains)


def _words(
    asked: str, picked: str | None, own: str | None, pace: float, strays: Noise
) -> tuple[str, str]:
    """Return the finding and the advice, a sentence each."""
    took = f"{asked} picks {picked}" if picked else f"{asked} does not tell what it picks"
    if abs(pace - 1) < strays.notable:
        return (
            f"{took} and gives what this engine gives.",
            "Leaving the choice to the runtime costs no speed here.",
        )
    said = f"{took} and gives {pace:.2f} × this engine's rate"
    if strays.loss() <= pace <= strays.gain():
        return (
            f"{said}, no other than chance may give here.",
            "Leaving the choice to the runtime costs no speed, as far as this can tell.",
        )
    same = same_device(picked, own)
    if same:
        return f"{said}.", (
            "It is the same device, so look for what else was running, or for settings that the "
            "choice brings with it, and measure again on a quiet computer."
        )
    if pace < 1:
        return (
            f"{said}.",
            "Name the device in the application instead of leaving it to the runtime.",
        )
    if picked is None:
        return f"{said}.", (
            "Measure the other engines of this runtime, and name the device of the fastest: the "
            "choice does not tell its own."
        )
    return f"{said}.", "Name the device that it picks, so that every start takes the faster one."


PROBE = Probe("auto_scheduler", "Auto-scheduler", True, steps, finding)
