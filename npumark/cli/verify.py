"""``npumark verify``: recompute a record from its attempts and name each difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import complete, output
from npumark.plain import count

if TYPE_CHECKING:
    from npumark.cli.verify_log import LogReport
    from npumark.cli.verify_signatures import SignatureReport
    from npumark.record.model import Payload, Record
    from npumark.score.difference import Difference

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_SHOWN = 20


@app.command()
def verify(
    record: Annotated[
        str,
        typer.Argument(
            metavar="RECORD",
            help="A record's file, a run's id or the start of it, or `last`.",
            autocompletion=complete.runs,
        ),
    ],
    json: Annotated[
        bool, typer.Option("--json", help="Put one JSON document on standard output.")
    ] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest", metavar="FILE", help="The manifest of the pack that the run used."
        ),
    ] = None,
    log: Annotated[
        bool,
        typer.Option("--log", help="Check the receipts of the servers that took this run as well."),
    ] = False,
    receipt: Annotated[
        Path | None,
        typer.Option("--receipt", metavar="FILE", help="Check this receipt; implies --log."),
    ] = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Prove that the servers' logs only grew since; implies --log."
        ),
    ] = False,
) -> None:
    """Recompute every figure of a record from its attempts; exit 5 if one differs.

    The digest shows whether any byte of the record was edited; the arithmetic shows whether the
    figures follow from the attempts, the manifest and the policy, to the last bit; the signatures
    show which installation made it. Raw samples beside the record are checked against it as well.

    With --log, each server's receipt is checked: its signature, that it is for the very bytes that
    were sent, and that they are in the server's transparency log. Of somebody else's result,
    download the record and the receipt from its page: `npumark verify RECORD --receipt FILE`. No
    connection is opened without --online, which fetches the log's present head and exits with 5
    where the log was rewritten.
    """
    from npumark.cli.report import diagnostics_of
    from npumark.cli.verify_log import check_receipts
    from npumark.cli.verify_signatures import signatures_of
    from npumark.errors import IntegrityError, UsageError
    from npumark.record.files import read_record, seal
    from npumark.record.history import locate
    from npumark.record.samples import check_samples

    if (diagnostics := diagnostics_of(record)) is not None:
        raise UsageError(
            f"{diagnostics} is what `npumark diagnose` saved, and no record",
            f"`npumark diagnose --check {diagnostics}` reads its findings again.",
        )
    path = locate(record)
    fault: IntegrityError | None = None
    try:
        whole = read_record(path)
    except IntegrityError as refused:
        fault = refused
        try:
            whole = read_record(path, edited_too=True)
        except IntegrityError:
            if json:
                output.put_json(_document(path, None, refused.message, []))
            raise refused from None
    payload = whole.payload
    digest = seal(payload).payload_sha256
    found = _differences(whole, digest, manifest)
    signed = signatures_of(whole, digest, path)
    samples = path.parent / "samples"
    raw = check_samples(whole, samples) if samples.is_dir() else None
    asked = log or online or receipt is not None
    logged = check_receipts(whole, receipt, online=online) if asked else None
    faults = len(found) + len(raw or ())
    fault = fault or signed.fault
    if faults and fault is None:
        fault = IntegrityError(
            f"{path} does not recompute: {faults} of its values {'is' if faults == 1 else 'are'} "
            "not what its attempts give",
            "Use an unedited copy, or the npumark version and pack that made it.",
        )
    if json:
        worst = fault or (logged.fault if logged else None)
        error = worst.message if worst else None
        output.put_json(_document(path, payload.run_id, error, found, raw, signed, logged))
    elif fault is None:
        attempts = sum(len(e.attempts) for e in payload.entries)
        attempts += sum(len(r.attempts) for r in payload.box.roles) if payload.box else 0
        output.put(
            f"{path}: the digest holds, and every figure recomputes exactly from "
            f"{count(attempts, 'attempt')}{_stated(payload)}; {_kept(payload, raw)}.\n"
            f"{signed.line}\n"
        )
    else:
        lines = [*map(str, found), *(raw or ())]
        if len(lines) > _SHOWN:
            lines = [*lines[:_SHOWN], f"… and {faults - _SHOWN} more; --json lists all"]
        output.put("".join(f"{line}\n" for line in lines))
    if logged and not json:
        output.put("".join(f"{line}\n" for line in logged.lines))
    if fault is not None:
        raise fault
    if logged and logged.fault:
        raise logged.fault


def _stated(payload: Payload) -> str:
    """Return what of a record's figures is another record's statement, which its own attempts
    do not bear out."""
    runs = dict.fromkeys(s.source.run_id for s in payload.plan.box.solo if s.source)
    return f", with the solo peaks that run {' and '.join(runs)} states" if runs else ""


def _kept(payload: Payload, raw: list[str] | None) -> str:
    """Return what raw samples bear out: an attempt, or a card's window in one, may have kept
    none."""
    from npumark.record.samples import without_samples

    lost, of = without_samples(payload)
    seen = raw is not None and lost < of
    told = "the raw samples agree" if seen else "no raw samples lie beside it"
    return f"{told}, and {lost} of {count(of, 'attempt')} kept none" if lost else told


def _differences(whole: Record, digest: str, manifest: Path | None) -> list[Difference]:
    """Return what differs, first ``digest``, the payload's, where the record states another."""
    from datetime import UTC, datetime

    from npumark.pack.manifest import load_manifest
    from npumark.pack.pin import PINNED_MANIFEST_SHA256
    from npumark.policy import load_policy
    from npumark.score.difference import Difference
    from npumark.score.recompute import recompute

    edited = digest != whole.payload_sha256
    why = "the record was changed after it was written"
    found = [Difference("payload_sha256", whole.payload_sha256, digest, why)] if edited else []
    return found + recompute(
        whole.payload,
        load_manifest(manifest),
        load_policy(),
        pinned_sha256=PINNED_MANIFEST_SHA256,
        now=datetime.now(UTC),
    )


def _document(
    path: Path,
    run_id: str | None,
    error: str | None,
    found: Sequence[Difference],
    raw: list[str] | None = None,
    signed: SignatureReport | None = None,
    logged: LogReport | None = None,
) -> dict[str, Any]:
    return {
        "record": str(path),
        "run_id": run_id,
        "verified": error is None,
        "error": error,
        "differences": [
            {
                "path": d.path,
                "recorded": _plain(d.recorded),
                "recomputed": _plain(d.recomputed),
                "why": d.why,
            }
            for d in found
        ],
        "raw_samples": raw,
        "signatures": signed.document if signed else None,
        "log": logged.documents if logged else None,
    }


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON can hold it; what it cannot is told as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return str(value)
