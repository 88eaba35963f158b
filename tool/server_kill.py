"""Kill a results server while it is sent to, and check that nothing acknowledged is lost.

    python tool/server_kill.py [--rounds 3] [--postgres] [--senders 200] [--queued 20] [--seed 1]

Each round sends one signed record from each of ``--senders`` connections at once, and as many
``--queued`` uploads by ``npumark submit``, from a queue on the disk. Once a number of records that
is drawn was acknowledged, every process of the server gets SIGKILL; it is started again on the
same port and database, and whoever had no answer sends again. Then every acknowledged record has to
be there exactly once and to the byte, every head of the log that was ever seen has to be the
beginning of the present one, ``npumark serve admin check`` must find nothing, and the client's
queue must be empty. Rounds share a server and its log. Exit status 1 where anything is amiss.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.errors import IntegrityError  # noqa: E402
from npumark.paths import HOME_VARIABLE  # noqa: E402
from npumark.record.canonical import canonical_bytes, strict_loads  # noqa: E402
from npumark.record.envelope import Receipt  # noqa: E402
from npumark.record.files import seal  # noqa: E402
from npumark.record.keystore import VARIABLE as KEYSTORE_VARIABLE  # noqa: E402
from npumark.record.keystore import install_key  # noqa: E402
from npumark.transparency.checkpoint import Checkpoint, parse_checkpoint  # noqa: E402
from npumark.transparency.growth import check_growth  # noqa: E402
from npumark.transparency.note import decoded, parse_note, verifier_key  # noqa: E402
from npumark.transparency.receipt import check_receipt  # noqa: E402
from npumark.transparency.tiles import WIDTH, Tile, decode_bundle  # noqa: E402
from npumark.upload.address import parse_address  # noqa: E402
from npumark.upload.client import Client  # noqa: E402
from npumark.upload.prepare import prepare  # noqa: E402
from npumark.upload.published_log import PublishedLog  # noqa: E402
from npumark.upload.queue import Queue  # noqa: E402
from tests import forge  # noqa: E402
from tool.server_load import Connection  # noqa: E402
from tool.server_under_test import NPUMARK, Sender, Served, serving  # noqa: E402

AGAIN_S = 0.2
"""How long a sender waits before it sends again."""
GIVE_UP_S = 120.0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The bytes of a record that was sent, and the receipt that came back."""

    record: bytes
    receipt: Receipt


@dataclass(slots=True)
class Round:
    """``killed_s`` after its start, when ``before`` of ``sent`` records were acknowledged;
    ``again`` had been stored and not acknowledged. ``submit`` are the exit statuses of the client,
    which had ``client_before`` receipts by then, of ``queued``. ``heads`` of the log were seen so
    far, which now has ``leaves``."""

    number: int
    sent: int
    queued: int
    killed_s: float = 0.0
    before: int = 0
    client_before: int = 0
    again: int = 0
    submit: list[int] = field(default_factory=list)
    heads: int = 0
    leaves: int = 0
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        verdict = "; ".join(self.faults) or "all there once"
        return (
            f"round {self.number}: killed after {self.killed_s:.2f} s; acknowledged by then "
            f"{self.before} of {self.sent} and {self.client_before} of {self.queued} queued; "
            f"{self.again} were stored without an answer; {self.leaves} leaves, {self.heads} heads "
            f"seen: {verdict}"
        )


def faults_of(
    acknowledged: Sequence[Acknowledged], served: Mapping[str, bytes], entries: Sequence[bytes]
) -> list[str]:
    """Return a sentence for each acknowledged record that is not there exactly once.

    ``served`` holds what the server gives for a result's id, ``entries`` the log's leaves. Every
    leaf must be of a record that was acknowledged. Pure.
    """
    faults = []
    for one in acknowledged:
        name, proof = one.receipt.result_id, one.receipt.log
        if name not in served:
            faults.append(f"{name} is lost")
        elif served[name] != one.record:
            faults.append(f"{name} was changed")
        if proof.index >= len(entries) or entries[proof.index] != decoded(proof.entry):
            faults.append(f"leaf {proof.index} is not that of {name}")
    leaves = Counter(json.loads(entry)["payload_sha256"] for entry in entries)
    faults += [f"the payload {p[:16]}… has {n} leaves" for p, n in leaves.items() if n > 1]
    indexes = Counter(one.receipt.log.index for one in acknowledged)
    faults += [f"{n} receipts are for leaf {index}" for index, n in indexes.items() if n > 1]
    if len(leaves) > len(acknowledged):
        faults.append(f"{len(leaves)} records have a leaf, {len(acknowledged)} were acknowledged")
    return faults


class Trial:
    """A server, those who send to it, and all that was acknowledged and seen so far."""

    def __init__(self, served: Served, senders: int, draw: random.Random) -> None:
        self._served = served
        self._draw = draw
        self._base = forge.forge_payload(small=True)
        self._senders = [Sender(served.origin, n) for n in range(senders)]
        self._client = Client(parse_address(served.url))
        self._key = str(self._client.get("/api/v1/server").document()["public_key"])
        self._log = PublishedLog(
            self._client, verifier_key(served.origin, bytes.fromhex(self._key))
        )
        self._queue = Queue(parse_address(served.url).slug)
        self._acknowledged: list[Acknowledged] = []
        self._heads: dict[str, Checkpoint] = {}
        for sender in self._senders:
            answer = self._client.post("/api/v1/keys", sender.registration())
            if answer.status != 201:
                raise SystemExit(f"a key was not registered: {answer.body.decode()}")

    def round(self, number: int, queued: int) -> Round:
        """Carry out one round and judge it."""
        found = Round(number, len(self._senders), queued)
        self._enqueue(queued)
        bodies = [sender.submission(self._base) for sender in self._senders]
        asyncio.run(self._send_and_kill(bodies, found))
        waiting = self._take_from_queue(found)
        found.faults += [f"{waiting} uploads still wait"] * bool(waiting)
        self._judge(found)
        return found

    def _enqueue(self, count: int) -> None:
        """Queue runs as ``npumark submit`` does where no server answers."""
        key, now = install_key(), datetime.now(UTC)
        for _ in range(count):
            run_id = f"queued-{os.urandom(6).hex()}"
            created = forge.stamp(now - timedelta(days=1))
            payload = forge.vary(self._base, run_id=run_id, created=created)
            self._queue.add(prepare(seal(payload), None).signed(key), forge.stamp(now))

    def _unsent(self) -> int:
        return sum(item.status != "sent" for item in self._queue.items()[0])

    async def _send_and_kill(self, bodies: Sequence[bytes], found: Round) -> None:
        before = len(self._acknowledged)
        client = asyncio.create_task(asyncio.to_thread(self._submit, found))
        unsent = self._unsent()
        while self._unsent() == unsent and not client.done():  # until it is amid its queue
            await asyncio.sleep(0.05)
        processes = self._served.processes()
        watching = asyncio.create_task(self._watch())
        began = time.monotonic()
        sending = [asyncio.create_task(self._send(body, found)) for body in bodies]
        due = self._draw.randrange(len(bodies))
        while len(self._acknowledged) - before < due and time.monotonic() < began + GIVE_UP_S:
            await asyncio.sleep(0.001)
        await asyncio.sleep(self._draw.uniform(0, 0.05))
        self._served.kill(processes)
        found.killed_s = time.monotonic() - began
        found.before = len(self._acknowledged) - before
        found.client_before = found.queued - self._unsent()
        port = int(self._served.url.rpartition(":")[2])
        await asyncio.to_thread(self._served.start, port)
        await asyncio.gather(*sending)
        await client
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    async def _send(self, body: bytes, found: Round) -> None:
        """Send until there is an answer; keep what was acknowledged."""
        connection, until = Connection(self._served.url), time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            with suppress(OSError, EOFError):
                status, answer = await connection.send("POST", "/api/v1/results", body)
                if status in (200, 201):
                    found.again += status == 200
                    record = canonical_bytes(strict_loads(body)["record"])
                    self._keep(record, answer, found)
                    connection.close()
                    return
                if status != 503:
                    found.faults.append(f"a record was answered with {status}: {answer.decode()}")
                    return
            await asyncio.sleep(AGAIN_S)
        found.faults.append(f"a record had no answer for {GIVE_UP_S:.0f} s")

    def _keep(self, record: bytes, answer: bytes, found: Round) -> None:
        receipt = Receipt.model_validate_json(answer)
        self._acknowledged.append(Acknowledged(record, receipt))
        self._see(receipt.log.checkpoint)
        try:
            check_receipt(receipt, strict_loads(record), self._key)
        except IntegrityError as fault:
            found.faults.append(f"the receipt of {receipt.result_id}: {fault.message}")

    async def _watch(self) -> None:
        """See the heads of the log as they are published."""
        connection = Connection(self._served.url)
        while True:
            with suppress(OSError, EOFError):
                status, note = await connection.send("GET", "/log/checkpoint")
                if status == 200:
                    self._see(note.decode())
            await asyncio.sleep(0.05)

    def _see(self, note: str) -> None:
        if note not in self._heads:
            self._heads[note] = parse_checkpoint(parse_note(note).text)

    def _submit(self, found: Round) -> None:
        """Run ``npumark submit`` until it says that nothing waits any more."""
        command = [*NPUMARK, "submit", "--server", self._served.url, "--yes", "--json"]
        for _ in range(5):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found.submit.append(done.returncode)
            if done.returncode != 6:
                break
        if found.submit[-1] != 0:
            found.faults.append(f"`npumark submit` ended with {found.submit[-1]}: {done.stderr}")

    def _take_from_queue(self, found: Round) -> int:
        """Count what the client had acknowledged as well; return how much still waits."""
        items, damaged = self._queue.items()
        found.faults += damaged
        known = {one.receipt.result_id for one in self._acknowledged}
        for item in items:
            if item.receipt is not None and item.receipt.result_id not in known:
                record = item.signed_by(item.receipt.key_id) or b""
                self._keep(record, item.receipt.model_dump_json(by_alias=True).encode(), found)
        return self._unsent()

    def _judge(self, found: Round) -> None:
        note, head = self._log.head()
        self._see(note)
        found.heads, found.leaves = len(self._heads), head.size
        node = self._log.node(head.size)
        for seen in self._heads.values():
            try:
                check_growth(seen, head, node)
            except IntegrityError as fault:
                found.faults.append(fault.message)
        served = {}
        for name in {one.receipt.result_id for one in self._acknowledged}:
            answer = self._client.get(f"/api/v1/results/{name}/record")
            if answer.ok:
                served[name] = answer.body
        found.faults += faults_of(self._acknowledged, served, self._entries(head.size))
        told = self._served.check()
        found.faults += told["faults"]
        if told["results"] != len(self._acknowledged):
            found.faults.append(f"the database has {told['results']} results")

    def _entries(self, size: int) -> list[bytes]:
        entries: list[bytes] = []
        for start in range(0, size, WIDTH):
            tile = Tile(None, start // WIDTH, min(WIDTH, size - start))
            entries += decode_bundle(self._client.get(f"/log/{tile.path}").body)
        return entries


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", action="store_true", help="a private PostgreSQL, not SQLite")
    parser.add_argument("--senders", type=int, default=200)
    parser.add_argument("--queued", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args()
    rounds = []
    with (
        tempfile.TemporaryDirectory(prefix="npumark-client-") as home,
        serving(postgres=given.postgres, workers=given.workers) as served,
    ):
        os.environ |= {HOME_VARIABLE: home, KEYSTORE_VARIABLE: "file"}
        trial = Trial(served, given.senders, random.Random(given.seed))
        for number in range(1, given.rounds + 1):
            rounds.append(trial.round(number, given.queued))
            if not given.json:
                print(rounds[-1].line(), flush=True)
        kind = served.kind
    if given.json:
        print(json.dumps({"database": kind, "rounds": [asdict(r) for r in rounds]}, indent=2))
    return int(any(r.faults for r in rounds))


if __name__ == "__main__":
    sys.exit(main())
