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
        "This is a quick run: one short attempt each.", "`npumark run` gives figures that count."
    ),
    "pack_not_verified": Advice(
        "The pack's manifest or a file of it is not the one that this version pins, or changed "
        "while the run measured.",
        "`npumark pack verify` names what differs.",
    ),
    "no_score": Advice("There is no score; the first line says why."),
    "peak_unstable": Advice(
        "The attempts of the leading peak spread too far.",
        "Close other programs, let the machine cool and measure again. Where this is the only "
        "reason the run can still be ranked, marked unstable.",
    ),
    "time_budget": Advice(
        "The time budget ended the run before all that it measures was complete.",
        "`npumark run --resume` goes on; or give it more time.",
    ),
    "incomplete": Advice(
        "The run ended before all that it measures was complete.",
        "`npumark run --resume` goes on.",
    ),
    "resumed_changed": Advice(
        "Something about the machine changed between the parts of a resumed run.",
        "Measure again in one go.",
    ),
    "selection": Advice(
        "Only some engines, workloads or encodings were asked for, or the cards of a box alone.",
        "`npumark run` without --engine, --workload and --variant measures everything.",
    ),
    "virtual": Advice("A virtual engine took part; its figures are made up for tests."),
    "emulated": Advice(
        "An engine that emulates its device took part.", "Run without --include-emulated."
    ),
    "local_only": Advice(
        "An engine took part whose results may not be published.",
        "Name the other engines with --engine to leave it out.",
    ),
    "third_party": Advice(
        "An engine from another package took part, which nobody here has checked.",
        "Uninstall that package for a run that can be compared.",
    ),
    "short_loop": Advice("The timed loop was shorter than the policy's."),
    "short_spacing": Advice("Attempts were allowed closer together than the policy's spacing."),
}
"""Why a run cannot be compared, by the codes of ``score.comparability.REASONS``."""

WARNINGS: dict[str, Advice] = {
    "noisy": Advice("The machine was not quiet; see above."),
    "preconditions_skipped": Advice(
        "The machine's state was not looked at.", "Run without --skip-preconditions."
    ),
    "attempts_died": Advice(
        "Attempts crashed, hung or gave no result.", "Each is named below, with its reason."
    ),
    "slow_tail": Advice(
        "Some figures have calls far slower than their median call, which the robust CV does not "
        "see.",
        "Something may have run beside them: close other programs and measure again.",
    ),
    "screened_outlier": Advice(
        "An encoding that was not repeated beat the winner's median once; its row is marked.",
        "`npumark run --variant` measures it alone.",
    ),
    "format_differs": Advice(
        "Some encodings were computed in another format than they declare; they count under the "
        "one that ran."
    ),
    "format_unconfirmed": Advice(
        "A runtime does not say in which format it computed; the declared one is shown as "
        "unconfirmed."
    ),
    "third_party": Advice(
        "An engine from another package took part; its figures are marked as such.",
        "The record names the package under `engines`.",
    ),
    "delivered_partial": Advice(
        "An engine's delivered figure lacks a scored network and is not ranked.",
        "See below what failed.",
    ),
    "network_unstable": Advice(
        "The attempts of a counted network spread too far; its delivered figure is not ranked.",
        "Close other programs, let the machine cool and measure again.",
    ),
    "box_void": Advice(
        "An attempt at all cards at once does not count: a card crashed, hung, answered wrong or "
        "started late.",
        "It is named below, with its reason.",
    ),
    "box_card_slow": Advice(
        "A card is slower than its identical cards; which, is told below its bars.",
        "Check its cooling, power and PCIe link.",
    ),
    "box_scaling": Advice(
        "All cards at once reached more than they can by themselves, summed: a card was measured "
        "too slow alone. The results database refuses such a total.",
        "Let the machine cool, close other programs and measure again.",
    ),
}
"""What a reader should know, by the codes of ``score.comparability.WARNINGS``."""

ENTRIES: dict[str, Advice] = {
    "crashed": Advice(
        "The worker process died; the run went on without it.",
        "Update the runtime or the driver, then try the entry alone with --engine and --workload.",
    ),
    "out_of_memory": Advice(
        "A worker ran out of memory; the run went on without it.",
        "Close other programs, then try the entry alone with --engine and --workload.",
    ),
    "timeout": Advice(
        "It did not finish in time and was stopped.",
        "Try it alone with --engine and --workload; if it hangs again, update the driver.",
    ),
    "no_result": Advice(
        "The worker ended without giving a result.",
        "Try the entry alone with --engine and --workload.",
    ),
    "wrong_device": Advice(
        "Too much of the work ran on another device than the one asked for.",
        "Check the driver and the runtime's installation; `npumark engines` shows what is found.",
    ),
    "placement_unproved": Advice(
        "Where the work ran could not be proved, so the figure is shown and never counted.",
        "Update the runtime and the driver.",
    ),
    "pack_error": Advice(
        "A pack file was missing or changed and could not be made again.",
        "Run `npumark pack verify`, then `npumark pack materialize`.",
    ),
    "gate_failed": Advice(
        "The answers are not right enough; the speed is shown and never counts.",
        "If an update of the runtime does not help, report it to its makers.",
    ),
    "timed_check_failed": Advice(
        "Timed calls gave other answers than untimed ones for the same inputs.",
        "The runtime may be serving remembered answers; report it to its makers.",
    ),
    "gate_missing": Advice(
        "The manifest has no gate for it, so nothing can be confirmed.",
        "Run without --manifest.",
    ),
    "format_changed": Advice("Its attempts were computed in different formats."),
    "too_short": Advice("Its timed loop held too few calls."),
    "too_few_attempts": Advice(
        "Only one of its attempts gave a result, and a single attempt never counts.",
        "Try the entry alone with --engine and --workload.",
    ),
    "incomplete": Advice(
        "The run ended before its attempts were complete.", "`npumark run --resume` goes on."
    ),
    "interrupted": Advice("It was stopped.", "`npumark run --resume` goes on."),
    "not_started": Advice(
        "The run ended before it was measured.", "`npumark run --resume` goes on."
    ),
    "unvalidated": Advice("This encoding did not pass its gate when the pack was built."),
    "division": Advice("It is outside the standard division."),
    "skipped": Advice("It was left out for the reason given."),
    "unsupported": Advice("The engine cannot run this encoding; that is no fault of the machine."),
}
"""Why an entry does not count, by its ``why_not`` (a status or a reason code), worst first.
``out_of_memory`` is a crash whose reason says so. ``screened`` is missing by design: an encoding
too slow to lead is a result."""

NOT_ASKED_FOR = Advice(
    "An engine's delivered figure is of the networks that were asked for alone, and is not ranked."
)
"""``delivered_partial`` where nothing that is missing was part of the run."""


def void_attempts(void: int, made: int) -> Advice:
    """Return ``box_void`` for a run in which ``void`` of the ``made`` attempts do not count."""
    general = WARNINGS["box_void"]
    if made < 2:
        return general
    verb = "does" if void == 1 else "do"
    reason = general.says.partition(": ")[2]
    says = f"{void} of {made} attempts at all cards at once {verb} not count: {reason}"
    return Advice(says, "Each is named below, with its reason." if void > 1 else general.do)


def advice(table: dict[str, Advice], code: str) -> Advice:
    """Return what ``table`` says about ``code``; a code it lacks stands for itself."""
    return table.get(code) or Advice(code.replace("_", " ") + ".")
