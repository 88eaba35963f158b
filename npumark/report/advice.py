"""What a reason code means and what to do about it: the one place that turns codes into words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """``says``: what the code means. ``do``: the next step, empty where there is none."""

    says: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.says} {self.do}".strip()


NOT_COMPARABLE: dict[str, Advice] = {
    "quick": Advice(
        "This is a quick run: one short attempt each.", "Run `npumark run` for figures that count."
    ),
    "partial_selection": Advice(
        "Only a part of the plan was asked for.", "Run without selecting engines or workloads."
    ),
    "incomplete": Advice(
        "The run was stopped before its end.", "Complete it with `npumark run --resume`."
    ),
    "no_score": Advice(
        "No engine has a peak whose answers were confirmed.", "See what failed, below."
    ),
    "peak_unstable": Advice(
        "The attempts of the winning peak vary by more than 5 % (robust).",
        "Close other programs, let the machine cool and measure again. "
        "Where this is the only reason, the run can still be ranked, marked unstable.",
    ),
    "pack_not_verified": Advice(
        "A file of the pack is not the one that this version ships.",
        "Run `npumark pack verify`; it names the file.",
    ),
    "foreign_manifest": Advice(
        "The pack's manifest is not the one that this version pins.",
        "Run without --manifest, or reinstall npumark.",
    ),
    "virtual_engine": Advice("A virtual engine took part; its figures are made up for tests."),
    "emulated_engine": Advice(
        "An engine that emulates its device took part.", "Run without --include-emulated."
    ),
    "local_only": Advice(
        "An engine took part whose results may not be published.",
        "Leave it out with --engine to publish the others.",
    ),
    "resumed_after_change": Advice(
        "The machine changed between the parts of a resumed run.", "Measure again in one go."
    ),
}

WARNINGS: dict[str, Advice] = {}

WHY_NOT: dict[str, Advice] = {
    "gate_failed": Advice(
        "Its answers failed the gate, so its speed does not count.",
        "Look at the margin: it says which measure failed and by how much.",
    ),
    "timed_check_failed": Advice(
        "Timed calls gave other answers than untimed ones for the same inputs.",
        "Report this to the runtime's makers; it may be serving remembered answers.",
    ),
    "placement": Advice(
        "It could not be proved that enough of the work ran on this processor.",
        "Update the driver and the runtime; the log says which operators fell back.",
    ),
    "not_validated": Advice("This encoding did not pass its gate when the pack was built."),
    "screened": Advice("Its first attempt was too slow to become the best, so it ran once."),
    "division": Advice("It is outside the standard division."),
}

STATUS: dict[str, Advice] = {
    "ok": Advice("measured"),
    "gate_failed": Advice(
        "The answers failed the gate; the speed is shown and never counts.",
        "If an update of the runtime does not help, report it to its makers.",
    ),
    "wrong_device": Advice(
        "The work ran on another device than the one asked for.",
        "Check the driver and the runtime's installation; `npumark engines` shows what is found.",
    ),
    "unsupported": Advice("The engine cannot run this encoding; nothing is wrong."),
    "skipped": Advice("It was left out.", "--include-known-crashes runs what is known to crash."),
    "crashed": Advice(
        "The worker process died; the run went on without it.",
        "The record keeps the end of its log. Update the runtime or the driver, then try it "
        "alone with --engine and --workload.",
    ),
    "timeout": Advice(
        "It did not finish in time and was stopped.",
        "Try it alone with --engine and --workload; if it hangs again, update the driver.",
    ),
    "no_result": Advice(
        "The worker ended without giving a result.",
        "The record keeps the end of its log; free memory may have run out.",
    ),
    "pack_error": Advice(
        "A pack file was missing or changed and could not be made again.",
        "Run `npumark pack verify`, then `npumark pack materialize`.",
    ),
    "interrupted": Advice("It was stopped.", "Complete the run with `npumark run --resume`."),
}


def advice(table: dict[str, Advice], code: str) -> Advice:
    """Return what ``table`` says about ``code``; a code it lacks stands for itself."""
    return table.get(code) or Advice(code.replace("_", " ") + ".")
