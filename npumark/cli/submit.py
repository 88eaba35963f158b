"""``npumark submit``: upload a run to a results server, signed, once somebody agreed to it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npumark.cli import complete, output
from npumark.cli.ask import ask
from npumark.cli.options import InsecureHttp, Server
from npumark.plain import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npumark.errors import NpumarkError
    from npumark.record.model import Record
    from npumark.upload.address import Address
    from npumark.upload.client import Shell
    from npumark.upload.item import Item
    from npumark.upload.listing import Listing
    from npumark.upload.prepare import Keys, Prepared
    from npumark.upload.queue import Queue
    from npumark.upload.submit import Outcome

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SERVER_VARIABLE = "NPUMARK_SERVER"


@app.command()
def submit(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A run's id or the start of it, a record's file, or the last run.",
            autocompletion=complete.runs,
        ),
    ] = None,
    server: Server = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Agree to what is sent, or to --withdraw, without being asked."),
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show every upload and where it stands; send nothing.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would be sent; with --json, the very bytes. Open no connection.",
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Put one JSON document on standard output.")
    ] = False,
    withdraw: Annotated[
        str | None,
        typer.Option(
            "--withdraw",
            metavar="RUN",
            autocompletion=complete.runs,
            help="Have the server delete the result of a run for good: the run can never be sent "
            "there again, and the log keeps a hash. Asks first.",
        ),
    ] = None,
    discard: Annotated[
        str | None,
        typer.Option(
            "--discard",
            metavar="RESULT",
            help="Drop an upload that waits or was refused, by its result's id or its run's; with "
            "--server where several servers have one.",
        ),
    ] = None,
    insecure_http: InsecureHttp = False,
    trust_new_key: Annotated[
        bool,
        typer.Option(
            "--trust-new-key",
            help="Accept that the server has another key than before. If its log began anew as "
            "well, that is another history: `verify --online` proves no earlier receipt by it.",
        ),
    ] = False,
) -> None:
    """Upload a run to a results server, and what waits from earlier.

    What is sent is shown first, and nothing is sent before you agreed: on a terminal you are asked
    once for each server, elsewhere --yes agrees. Results of engines that may not be published, the
    command line, logs and names stay here. An upload that is interrupted anywhere, or that meets
    no server, waits for the next `npumark submit` and arrives exactly once.

    A run needs a score, or a total of all cards at once, to be uploaded: one without the peak test
    stays here.

    The server is the one of --server, of NPUMARK_SERVER, or the one used last.

    Exit status: 0 everything was sent; 2 the request cannot be carried out, or nobody agreed; 5
    the server refused something, or is not to be trusted; 6 it could not be reached, and what is
    queued waits; 130 stopped at the question, and nothing was sent.
    """
    if sum((listed, dry_run, withdraw is not None, discard is not None)) > 1:
        raise typer.BadParameter("give one of --list, --dry-run, --withdraw and --discard")
    if listed:
        _list(server, as_json=json)
        return
    if dry_run:
        _dry_run(run, server, as_json=json)
        return
    if discard is not None:
        _discard(discard, server, as_json=json)
        return
    address = chosen(server, insecure_http=insecure_http)
    if withdraw is not None:
        _withdraw(withdraw, address, yes=yes, as_json=json, trust_new_key=trust_new_key)
    else:
        _send(run, address, yes=yes, as_json=json, trust_new_key=trust_new_key)


def chosen(server: str | None, *, insecure_http: bool) -> Address:
    """Return the server that is meant. Raises UsageError where none is known."""
    import os

    from npumark.errors import UsageError
    from npumark.upload.address import parse_address
    from npumark.upload.servers import last_used

    named = server or os.environ.get(SERVER_VARIABLE, "").strip()
    if named:
        return parse_address(named, insecure_http=insecure_http)
    if (last := last_used()) is not None:
        return parse_address(last.url, insecure_http=insecure_http)
    raise UsageError(
        "no server is named, and there is no public one yet",
        f"Name one, as in `npumark submit --server https://results.example`, or set "
        f"{SERVER_VARIABLE}; `npumark serve` runs one of your own.",
    )


def agree(address: Address, shown: Listing, *, yes: bool) -> None:
    """Have somebody agree to what is sent to a server, unless they did before.

    Raises as ``ask`` where they do not.
    """
    from dataclasses import replace

    from npumark.report.page import page_of
    from npumark.report.uploads import listing_text
    from npumark.upload.servers import CONSENT, known, remember

    server = known(address)
    if server.agreed:
        return
    tell(f"What is sent to {address.url}:")
    print(listing_text(shown, page_of(sys.stderr)), end="", file=sys.stderr, flush=True)
    if not yes:
        ask(
            f"Send results to {address.origin} from now on?",
            nobody=f"nobody agreed yet that results go to {address.origin}",
            hint="Agree with --yes; `npumark submit --dry-run` shows what is sent.",
            declined="nothing was sent: it was not agreed to",
        )
    remember(address, replace(server, consent=CONSENT))


def send(
    run: str | None, address: Address, *, yes: bool = False, trust_new_key: bool = False
) -> Outcome:
    """Queue a run (the last one by default) and send everything that waits for a server, once it
    is agreed to. One that is named and was sent before is told, and nothing is sent. Raises what
    keeps it from being begun."""
    import time

    from npumark.upload.client import Client
    from npumark.upload.listing import general, listing
    from npumark.upload.queue import Queue
    from npumark.upload.session import Session
    from npumark.upload.submit import Outcome, deliver

    keys, shell, queue = _own_keys(), _shell(), Queue(address.slug)
    run_id, prepared = _wanted(run, queue)
    earlier = queue.of_run(run_id) if run_id is not None and prepared is None else None
    if earlier is not None and earlier.receipt is not None:
        at = earlier.receipt.received_at
        if run is not None:
            tell(f"note: run {run_id} was already sent, at {at}; nothing was sent now")
            return Outcome([earlier])
        tell(f"note: the last run, {run_id}, was already sent, at {at}")
    key = keys.install()
    agree(address, listing(prepared, key.key_id) if prepared else general(), yes=yes)
    with Client(address, shell=shell) as client:
        session = Session(client, keys, shell, trust_new_key=trust_new_key)
        done = deliver(queue, session, prepared, key, time.time())
    if run_id is not None and run_id not in [item.state.run_id for item in done.items]:
        done.items.append(queue.find(run_id))
    return done


def _wanted(run: str | None, queue: Queue) -> tuple[str | None, Prepared | None]:
    """Return the id of the run that is meant, and the run made ready unless it waits or was sent
    already. Both are None where none was named, the last one cannot be sent, and others wait."""
    from npumark.errors import NpumarkError
    from npumark.upload.submit import there

    try:
        record = _record(run)
        run_id = record.payload.run_id
        return run_id, None if there(queue, run_id) else _ready(record)
    except NpumarkError as fault:
        if run is not None or not any(item.status == "queued" for item in queue.items()[0]):
            raise
        tell(f"note: {fault.message}; what waits is sent")
        return None, None


def _record(run: str | None) -> Record:
    from npumark.record.files import read_record
    from npumark.record.history import LATEST, locate

    return read_record(locate(run or LATEST))


def _ready(record: Record) -> Prepared:
    from npumark.upload.prepare import prepare

    return prepare(record, _own_keys().build())


def _send(
    run: str | None, address: Address, *, yes: bool, as_json: bool, trust_new_key: bool
) -> None:
    done = send(run, address, yes=yes, trust_new_key=trust_new_key)
    for damaged in done.damaged:
        tell(f"note: {damaged}")
    if as_json:
        more = {"server": address.url, "clock_behind_s": done.skew_s, "damaged": done.damaged}
        _put(done.items, as_json=True, **more, error=done.fault.message if done.fault else None)
    elif done.items:
        _put(done.items, as_json=False)
    if (fault := failure(done, address)) is not None:
        raise fault


def failure(done: Outcome, address: Address) -> NpumarkError | None:
    """Return what kept an upload from being taken, null where everything was sent."""
    from npumark.errors import IntegrityError

    if done.fault is not None:
        return done.fault
    refused = [item for item in done.items if item.status == "refused"]
    if not refused:
        return None
    return IntegrityError(
        f"{address.origin} refused {len(refused)} of {count(len(done.items), 'upload')}",
        "They are kept; `npumark submit --list` shows them with the reasons.",
    )


def _dry_run(run: str | None, server: str | None, *, as_json: bool) -> None:
    import time

    from npumark.record.canonical import canonical_bytes
    from npumark.report.page import page_of
    from npumark.report.uploads import listing_text
    from npumark.upload.listing import listing
    from npumark.upload.servers import known
    from npumark.upload.session import instant, stated
    from npumark.upload.submit import submission

    prepared, keys = _ready(_record(run)), _own_keys()
    key = keys.install()
    if not as_json:
        output.put(listing_text(listing(prepared, key.key_id), page_of(sys.stdout)))
        return
    origin = known(chosen(server, insecure_http=True)).origin  # nothing is sent
    record = prepared.signed(key)
    envelope = stated(
        "submission",
        key,
        origin,
        keys.machine_id(),
        instant(time.time()),
        key_id=key.key_id,
        payload_sha256=record["payload_sha256"],
        attestation=None,
    )
    output.put(submission(envelope, canonical_bytes(record)).decode())


def _withdraw(run: str, address: Address, *, yes: bool, as_json: bool, trust_new_key: bool) -> None:
    from npumark.upload.client import Client
    from npumark.upload.queue import Queue
    from npumark.upload.session import Session
    from npumark.upload.submit import withdraw

    queue, shell = Queue(address.slug), _shell()
    item = queue.find(_run_id(run))
    if item.status == "withdrawn":
        tell(f"note: it was already withdrawn, at {item.state.withdrawn_at}")
    elif item.status == "sent" and not yes:
        ask(
            f"Withdraw run {item.state.run_id}? {address.origin} deletes its result for good, and "
            "the run can never be sent there again.",
            nobody="a withdrawal deletes a result for good",
            hint="Agree with --yes.",
            declined="nothing was withdrawn",
        )
    with queue.held(), Client(address, shell=shell) as client:
        session = Session(client, _own_keys(), shell, trust_new_key=trust_new_key)
        item = withdraw(queue.find(item.state.result_id), session)
    _put([item], as_json=as_json)


def _run_id(name: str) -> str:
    """Return the id of the saved run that ``name`` means; where it means none, the name itself,
    which may be that of a result."""
    from npumark.errors import UsageError
    from npumark.record.history import find

    try:
        return find(name).run_id
    except UsageError:
        return name


def _discard(name: str, server: str | None, *, as_json: bool) -> None:
    from npumark.upload.queue import Queue, find_waiting
    from npumark.upload.submit import discard

    if server is not None:
        queue = Queue(chosen(server, insecure_http=True).slug)  # nothing is sent
        item = queue.find(_run_id(name))
    else:
        queue, item = find_waiting(_run_id(name))
    with queue.held():
        item = queue.find(item.state.result_id)
        discard(item, queue)
    if as_json:
        output.put_json({"discarded": item.state.result_id})
    else:
        output.put(f"Dropped the upload of run {item.state.run_id}; the run itself stays.\n")


def _list(server: str | None, *, as_json: bool) -> None:
    from npumark.upload.queue import Queue, queues

    listed = queues()
    if server is not None:
        listed = [Queue(chosen(server, insecure_http=True).slug)]  # nothing is sent
    found: list[Item] = []
    for queue in listed:
        items, faults = queue.items()
        found += items
        for fault in faults:
            tell(f"note: {fault}; the next `npumark submit` sets it aside")
    _put(found, as_json=as_json)


def _put(items: Sequence[Item], *, as_json: bool, **more: Any) -> None:
    """Put uploads on standard output, as text or as one JSON document with ``more`` in it."""
    from npumark.report.page import page_of
    from npumark.report.uploads import document, render

    if as_json:
        output.put_json({**more, "uploads": [document(item) for item in items]})
    else:
        output.put(render(items, page_of(sys.stdout)))


def tell(line: str) -> None:
    """Write a line on standard error, without what a terminal would obey."""
    from npumark.plain import printable

    print(printable(line), file=sys.stderr, flush=True)


def _shell() -> Shell:
    from npumark.upload.client import Shell

    return Shell(tell=tell)


def _own_keys() -> Keys:
    from npumark.upload.prepare import own_keys

    return own_keys()
