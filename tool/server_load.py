"""Measures a results server on this machine: submissions, pages over a full database, memory.

    python tool/server_load.py submissions [--postgres] [--whole] [--seconds 20] [--clients 32]
    python tool/server_load.py pages [--postgres] [--runs 1000000] [--requests 2000]
    python tool/server_load.py memory [--postgres] [--requests 36000]

``submissions`` sends distinct signed records, forged beforehand: of one entry each, or ``--whole``
runs. Those that were acknowledged are counted: each was checked, recomputed, logged and on the
disk. ``pages`` fills a database with synthetic runs, the last of them with their records, and asks
for boards, for result pages that nobody asked for before, and for these again. ``memory`` sends an
hour's worth of requests of every kind (ten a second) as fast as they are answered, and prints what
the server's processes hold in memory after each tenth. ``--workers`` is how many processes serve.

The server, its database and the sender share the machine; CPU times tell how much each took. One
JSON document is printed. Its figures are of this machine and this moment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.record.model import Payload  # noqa: E402
from npumark.transparency.checkpoint import parse_checkpoint  # noqa: E402
from npumark.transparency.note import parse_note  # noqa: E402
from tests import forge  # noqa: E402
from tool.server_fill import fill  # noqa: E402
from tool.server_under_test import Sender, Served, serving  # noqa: E402

Request = tuple[str, str, bytes]
"""Method, path and body."""

BOARDS = (
    *("/", "/?role=CPU", "/?role=dGPU", "/?format=INT8", "/?os=windows", "/?sort=newest"),
    *("/?sort=delivered", "/?q=ryzen", "/?q=rtx&all=1", "/?all=1", "/?all=1&sort=newest"),
)
OTHERS = (
    *("/processors", "/methodology", "/static/site.css", "/healthz", "/readyz", "/metrics"),
    *("/api/v1/server", "/api/v1/results", "/api/v1/results.csv", "/api/v1/processors"),
    *("/log/checkpoint", "/log/tile/0/000", "/no-such-page", "/?cursor=none"),
)


@dataclass(slots=True)
class Sent:
    """What requests came to: how many of each status, how long each took (seconds), and what was
    kept of the answers."""

    statuses: Counter[int] = field(default_factory=Counter)
    took: list[float] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return them as they are printed; latencies in milliseconds."""
        took = sorted(self.took)
        return {
            "requests": len(took),
            "statuses": {str(status): n for status, n in sorted(self.statuses.items())},
            "p50_ms": 1e3 * took[len(took) // 2],
            "p99_ms": 1e3 * took[len(took) * 99 // 100],
            "longest_ms": 1e3 * took[-1],
        }


class Connection:
    """One HTTP/1.1 connection, kept open: as little of a client as can be, since it takes its
    time from the same cores as the server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of the answer. Raises OSError and EOFError where there
        is none; the next request then goes over a new connection."""
        try:
            return await self._send(method, path, body)
        except (OSError, EOFError):
            self.close()
            raise

    async def _send(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        status, *fields = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in fields if line)
        answer = await reader.readexactly(int(headers.get(b"content-length", 0)))
        if headers.get(b"connection") == b"close":
            self.close()
        return int(status.split()[1]), answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def send_all(
    url: str,
    requests: Iterable[Request],
    clients: int,
    *,
    seconds: float | None = None,
    keep: Callable[[int, bytes], Any] | None = None,
) -> Sent:
    """Send requests over so many connections, no more of them after ``seconds``. What ``keep``
    makes of a status and a body is kept."""
    sent, left = Sent(), iter(requests)
    until = None if seconds is None else time.monotonic() + seconds

    async def one() -> None:
        connection = Connection(url)
        for method, path, body in left:
            if until is not None and time.monotonic() > until:
                break
            began = time.perf_counter()
            status, answer = await connection.send(method, path, body)
            sent.took.append(time.perf_counter() - began)
            sent.statuses[status] += 1
            if keep is not None:
                sent.kept.append(keep(status, answer))
        connection.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(clients)))

    asyncio.run(all_of_them())
    return sent


class Senders:
    """Registered installations that submit runs like ``base`` in turn. Each of them is known to
    be accepted."""

    def __init__(self, served: Served, base: Payload, machines: int = 16) -> None:
        self._base = base
        self._senders = [Sender(served.origin, n) for n in range(machines)]
        keys = [("POST", "/api/v1/keys", sender.registration()) for sender in self._senders]
        _expect_201(send_all(served.url, keys, 1, keep=_both))
        _expect_201(send_all(served.url, self.submissions(machines), 1, keep=_both))

    def submissions(self, count: int) -> list[Request]:
        """Return distinct submissions."""
        chosen = (self._senders[i % len(self._senders)] for i in range(count))
        return [("POST", "/api/v1/results", s.submission(self._base)) for s in chosen]


def _both(status: int, answer: bytes) -> tuple[int, bytes]:
    return status, answer


def _expect_201(sent: Sent) -> None:
    for status, answer in sent.kept:
        if status != 201:
            raise SystemExit(f"the server answers {status}: {answer.decode()}")


def submissions(given: argparse.Namespace, served: Served) -> dict[str, Any]:
    whole = given.whole
    senders = Senders(served, forge.forge_payload(small=not whole, quick=not whole))
    requests = senders.submissions(int(given.seconds * given.most_per_s))
    groups: dict[str, Callable[[], list[psutil.Process]]] = {
        "server": served.processes,
        "database": served.database_processes,
        "sender": lambda: [psutil.Process()],
    }
    spent = {name: -_cpu_s(processes()) for name, processes in groups.items()}
    began = time.monotonic()
    sent = send_all(served.url, requests, given.clients, seconds=given.seconds, keep=_log_size)
    took = time.monotonic() - began
    spent = {name: spent[name] + _cpu_s(processes()) for name, processes in groups.items()}
    accepted = sent.statuses[201]
    return {
        "bytes": round(statistics.mean(len(body) for *_, body in requests)),
        "seconds": took,
        "accepted": accepted,
        "accepted_per_s": accepted / took,
        "cpu_ms_each": {name: 1e3 * s / max(accepted, 1) for name, s in spent.items()},
        "accepted_per_commit": accepted / max(len(set(sent.kept) - {None}), 1),
        **sent.figures(),
        "check": served.check(),
    }


def _log_size(status: int, answer: bytes) -> int | None:
    """Return how large the log was under the head of a receipt: those of one commit share it."""
    if status != 201:
        return None
    return parse_checkpoint(parse_note(json.loads(answer)["log"]["checkpoint"]).text).size


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(t.user + t.system for t in times)


def pages(given: argparse.Namespace, served: Served) -> dict[str, Any]:
    began = time.monotonic()
    ids = fill(served.config(), given.runs, seed=given.seed)
    filled_s = time.monotonic() - began
    draw = random.Random(given.seed)
    of_results = [("GET", f"/results/{i}", b"") for i in draw.choices(ids, k=given.requests)]
    kinds = {
        "board": [("GET", draw.choice(BOARDS), b"") for _ in range(given.requests)],
        "result": list(dict.fromkeys(of_results)),
        "result_again": of_results,
    }
    warm = [("GET", path, b"") for path in (*BOARDS, f"/results/{ids[0]}") * 2 * given.workers]
    send_all(served.url, warm, 2 * given.workers)
    return {
        "runs": given.runs,
        "filled_s": filled_s,
        **{
            kind: send_all(served.url, requests, given.clients).figures()
            for kind, requests in kinds.items()
        },
    }


def memory(given: argparse.Namespace, served: Served) -> dict[str, Any]:
    draw = random.Random(given.seed)
    senders = Senders(served, forge.forge_payload(small=True))
    statuses: Counter[int] = Counter()
    ids: list[str] = []
    held = []
    for _ in range(10):
        requests = _every_kind(senders, ids, draw, given.requests // 10)
        sent = send_all(served.url, requests, given.clients, keep=_result_id)
        statuses += sent.statuses
        ids += [name for name in sent.kept if name is not None]
        held.append(sum(process.memory_info().rss for process in served.processes()))
    return {
        "statuses": {str(status): n for status, n in sorted(statuses.items())},
        "resident_bytes": held,
        "last_over_third": held[-1] / held[2],
    }


def _every_kind(
    senders: Senders, ids: Sequence[str], draw: random.Random, count: int
) -> list[Request]:
    """Return requests in any order: submissions, some of them again, some of them no JSON; boards,
    results and their parts, and whatever else a server answers."""
    submitted = senders.submissions(count // 10)
    again = [("POST", path, draw.choice([body, body[:-1]])) for _, path, body in submitted[::10]]
    paths: list[str] = []
    while len(paths) < count - len(submitted) - len(again):
        paths += [draw.choice(BOARDS), draw.choice(OTHERS)]
        if ids:
            name, other = draw.choice(ids), draw.choice(ids)
            paths += [f"/results/{name}", f"/compare?id={name}&id={other}"]
            paths += [f"/api/v1/results/{name}{part}" for part in ("", "/record", "/receipt")]
    requests = [*submitted, *again, *(("GET", path, b"") for path in paths)]
    draw.shuffle(requests)
    return requests


def _result_id(status: int, answer: bytes) -> str | None:
    return str(json.loads(answer)["result_id"]) if status == 201 else None


MODES = {"submissions": submissions, "pages": pages, "memory": memory}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--postgres", action="store_true", help="a private PostgreSQL, not SQLite")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=None)
    parser.add_argument("--whole", action="store_true", help="records of whole runs")
    parser.add_argument("--most-per-s", type=float, default=250.0, help="forged beforehand")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.clients = given.clients or (1 if given.mode == "pages" else 32)
    given.requests = given.requests or (36_000 if given.mode == "memory" else 2_000)
    with serving(postgres=given.postgres, workers=given.workers) as served:
        found = {
            "database": served.kind,
            "workers": given.workers,
            "clients": given.clients,
            **MODES[given.mode](given, served),
            "cores": psutil.cpu_count(),
            "load": psutil.getloadavg()[0],
        }
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
