"""The report of a diagnostics document, for a terminal or a text file."""

from __future__ import annotations

from pathlib import Path

from npumark.diagnose.document import Diagnostics, Document, ProbeFinding, TargetFields
from npumark.diagnose.registry import PROBES
from npumark.machine.preconditions import violations
from npumark.report.catalog import Catalog
from npumark.report.diagnose_table import latency, table
from npumark.report.page import Page
from npumark.report.processors import processor_name
from npumark.report.sheet import BAD, DIM, STRONG, WARN, Part, Sheet
from npumark.report.words import count, figure


def render(
    document: Document, page: Page, *, catalog: Catalog | None = None, where: Path | None = None
) -> str:
    """Return the report of ``document``, laid out for ``page``.

    ``catalog`` tells the workloads' names; ``where`` is the document's path. Every figure and
    every sentence is the document's own.
    """
    run = document.payload
    sheet = Sheet(page)
    _headline(sheet, run)
    for target in run.targets:
        _target(sheet, run, target, catalog or Catalog())
    _closing(sheet, run, where)
    return sheet.text()


def _headline(sheet: Sheet, run: Diagnostics) -> None:
    engines = {target.engine for target in run.targets}
    workloads = {target.workload for target in run.targets}
    what = f"{count(len(engines), 'engine')} on {count(len(workloads), 'workload')}"
    sheet.say(f"Diagnosed: {what if run.targets else 'nothing'}", style=STRONG)
    series = [f"diagnostics run {run.id}", run.created, f"{run.suite.edition} weights"]
    sheet.parts([(part, DIM) for part in series])
    sheet.say(
        "Not comparable, and in no history: its ratios say what these engines do on this computer, "
        "and never feed a score.",
        style=DIM,
    )
    if not run.complete:
        sheet.blank()
        sheet.say(
            "Stopped before its end: what follows is what was measured until then. Run "
            "`npumark diagnose` again for the rest.",
            style=WARN,
        )
    environment = run.environment
    if environment.skipped:
        sheet.blank()
        sheet.say("The machine's state was not looked at (--skip-preconditions).", style=WARN)
    if environment.noisy:
        sheet.heading("Noisy: something besides the probes may have moved these figures")
        for sentence in violations(environment):
            sheet.say(f"- {sentence[0].upper()}{sentence[1:]}.", hang=2)


def _target(sheet: Sheet, run: Diagnostics, target: TargetFields, catalog: Catalog) -> None:
    """Add a block for an engine and a network: what was probed and how fast it is by itself, then
    a part for each probe."""
    encoded = "" if target.variant is None else f" · {_encoded(target)}"
    sheet.heading(f"{target.engine} · {catalog.title(target.workload)}{encoded}")
    processor = next((p for p in run.processors if p.id == target.processor), None)
    version = f" {target.version}" if target.version else ""
    parts: list[Part] = [f"{target.runtime}{version}"]
    parts += [processor_name(processor, run.processors)] if processor is not None else []
    sheet.parts([(part, DIM) if isinstance(part, str) else part for part in parts], indent=2)
    if target.probe_ips is None:
        why = target.why or "the reason was not recorded"
        sheet.say(f"Not diagnosed ({_plainly(target.status)}): {why}", indent=2, hang=2, style=BAD)
    else:
        alone: list[Part] = [(f"{figure(target.probe_ips)} inf/s", STRONG)]
        if target.latency_ns is not None:
            alone.append(f"median {latency(target.latency_ns.median)}")
        sheet.parts([*alone, ("one call at a time, which the probes compare with", DIM)], indent=2)
    sheet.say(f"{_chosen(target)}.", indent=2, hang=2, style=DIM)
    for candidate in target.candidates:
        if candidate.ips is None and target.variant is None:
            why = candidate.why or _plainly(candidate.status)
            sheet.say(f"- {candidate.variant}: {why}", indent=2, hang=2)
    for finding in target.findings:
        _finding(sheet, finding)


def _encoded(target: TargetFields) -> str:
    """Return ``INT8 (int8-u8s8)``, the format alone where the variant's name says no more."""
    variant, declared = target.variant or "", target.format or ""
    return declared if variant.upper() == declared.upper() else f"{declared} ({variant})"


def _chosen(target: TargetFields) -> str:
    """Return where it is known from that this variant is the fastest that passes."""
    if target.chosen == "last benchmark":
        return f"Its fastest passing variant in the last benchmark (run {target.chosen_from})"
    why = f": {target.chosen_why}" if target.chosen_why else ""
    rated = [c for c in target.candidates if c.ips is not None]
    found = (
        f"The fastest of {count(len(rated), 'passing variant')}, " if rated else "Variants were "
    )
    return f"{found}measured now{why}"


def _finding(sheet: Sheet, finding: ProbeFinding) -> None:
    """Add what a probe found: its title, a table with a bar for each row, and two sentences."""
    sheet.blank()
    if finding.status != "ok":
        ended = "not applicable" if finding.status == "not_applicable" else "failed"
        why = finding.why or "the reason was not recorded"
        style = DIM if finding.status == "not_applicable" else WARN
        sheet.say(f"{finding.title}: {ended}: {why}", indent=2, hang=2, style=style)
        return
    sheet.say(finding.title, indent=2, style=STRONG)
    table(sheet, finding, indent=4)
    if finding.finding:
        sheet.say(finding.finding, indent=4, hang=2, style=STRONG)
    if finding.advice:
        sheet.say(finding.advice, indent=4, hang=2)


def _closing(sheet: Sheet, run: Diagnostics, where: Path | None) -> None:
    left = [probe.title for probe in PROBES if probe.deep and probe.name not in run.probes]
    if left and not run.deep:
        sheet.blank()
        names = ", ".join(title[0].lower() + title[1:] for title in left)
        sheet.say(f"Not probed: {names}. `npumark diagnose --deep` does.", style=DIM)
    if where is not None:
        sheet.blank()
        sheet.path("Document:", str(where))
        sheet.say(
            "The raw samples that every ratio follows from are kept in the run's own folder.",
            style=DIM,
        )


def _plainly(status: str) -> str:
    return status.replace("_", " ")
