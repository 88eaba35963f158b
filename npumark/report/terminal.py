"""The report of a record, for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npumark.record.model import Record
from npumark.report import closing
from npumark.report.box import box
from npumark.report.catalog import Catalog
from npumark.report.compiled import compiled
from npumark.report.failures import failures
from npumark.report.large_peak import large_peak
from npumark.report.networks import networks
from npumark.report.page import Page
from npumark.report.processors import processors
from npumark.report.sheet import Sheet
from npumark.report.standing import headline, standing
from npumark.report.uploads import links
from npumark.upload.links import Upload


def render(
    record: Record,
    page: Page,
    *,
    catalog: Catalog | None = None,
    where: Path | None = None,
    logs: Path | None = None,
    kept: bool = True,
    uploads: Sequence[Upload] = (),
) -> str:
    """Return the report of ``record``, laid out for ``page``.

    ``catalog`` tells the workloads' names; ``where`` is the record's path, ``logs`` the folder
    of the workers' logs; ``kept`` says that the run is in this computer's history; ``uploads`` are
    the servers that took it. Every figure is the record's own: nothing is computed here but ratios
    of figures and layout.
    """
    run = record.payload
    known = catalog or Catalog()
    sheet = Sheet(page)
    headline(sheet, run)
    standing(sheet, run, kept=kept)
    processors(sheet, run, known)
    large_peak(sheet, run)
    box(sheet, run, logs)
    networks(sheet, run, known)
    failures(sheet, run, logs)
    closing.harness(sheet, run)
    compiled(sheet, run)
    closing.time_spent(sheet, run)
    closing.measured_and_derived(sheet, run)
    closing.saved(sheet, run, where, kept=kept)
    links(sheet, uploads)
    return sheet.text()
