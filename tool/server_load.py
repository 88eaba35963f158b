"""Measures a results server on this machine: submissions, pages over a full database, memory.

    python tool/server_load.py submissions [--postgres] [--seconds 20] [--clients 32] [--workers 2]
    python tool/server_load.py pages [--postgres] [--runs 1000000] [--requests 2000]
    python tool/server_load.py memory [--requests 36000]

``submissions`` sends distinct signed records, forged beforehand and small, and counts those that
were acknowledged: each was checked, recomputed and logged like any other. ``pages`` fills a
database with synthetic runs, without their bodies but for some, and asks for boards and result
pages. ``memory`` sends an hour's worth of requests (ten a second) as fast as they are answered, and
prints what the server's processes hold in memory after each tenth. The server, the database and the
sender share the machine. Figures are of this machine and this moment.
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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import forge  # noqa: E402
from tool.server_fill import fill  # noqa: E402
from tool.server_under_test import Sender, Served, serving  # noqa: E402


@dataclass(slots=True)
class Sent:
    """What requests came to: how many of each status, and how long each took (seconds)."""

    statuses: Counter[int] = field(default_factory=Counter)
    took: list[float] = field(default_factory=list)

    def at(self, share: float) -> float:
        """Return the latency below which ``share`` of the requests lie, in milliseconds."""
        ordered = sorted(self.took)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Connection:
    """One HTTP/1.1 connection, kept open: as little of a client as can be, since it takes its
    time from the same cores as the server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        length, closes = 0, False
        while line := (await reader.readline()).strip().lower():
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
            closes = closes or (name == b"connection" and value.strip() == b"close")
        answer = await reader.readexactly(length)
        if closes:
            await self.close()
        return status, answer

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def send_all(
    url: str, requests: Sequence[tuple[str, str, bytes]], clients: int, until: float | None = None
) -> Sent:
    """Send ``requests`` (method, path, body) over ``clients`` connections; stop taking new ones
    at ``until`` (monotonic)."""
    sent, left = Sent(), iter(requests)

    async def one() -> None:
        connection = Connection(url)
        for method, path, body in left:
            if until is not None and time.monotonic() > until:
                break
            began = time.perf_counter()
            status, _ = await connection.send(method, path, body)
            sent.took.append(time.perf_counter() - began)
            sent.statuses[status] += 1
        await connection.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    return sent


def forged(
    origin: str, count: int, *, machines: int = 16, small: bool = True
) -> list[tuple[str, str, bytes]]:
    """Return the registrations of some machines' keys, then ``count`` distinct submissions."""
    senders = [Sender(origin, n) for n in range(machines)]
    registrations = [("POST", "/api/v1/keys", sender.registration()) for sender in senders]
    base = forge.forge_payload(small=small, quick=small)
    bodies = [senders[i % machines].submission(base) for i in range(count)]
    return [*registrations, *(("POST", "/api/v1/results", body) for body in bodies)]


def submissions(given: argparse.Namespace, served: Served) -> dict[str, Any]:
    count = int(given.seconds * given.most_per_s)
    requests = forged(served.origin, count, small=not given.whole)
    keys, records = requests[:-count], requests[-count:]
    asyncio.run(send_all(served.url, keys, 1))
    began = time.monotonic()
    sent = asyncio.run(send_all(served.url, records, given.clients, began + given.seconds))
    took = time.monotonic() - began
    accepted = sent.statuses[201]
    return {
        "database": served.kind,
        "bytes": round(statistics.mean(len(body) for *_, body in records)),
        "accepted": accepted,
        "others": {str(s): n for s, n in sent.statuses.items() if s != 201},
        "seconds": took,
        "accepted_per_s": accepted / took,
        "p50_ms": sent.at(0.5),
        "p99_ms": sent.at(0.99),
        "log": served.check(),
    }


def pages(given: argparse.Namespace, served: Served) -> dict[str, Any]:
    ids = fill(served.config(), given.runs, seed=given.seed)
    draw = random.Random(given.seed)
    boards = [
        "/",
        "/?role=CPU",
        "/?role=dGPU",
        "/?format=INT8",
        "/?os=Windows",
        "/?sort=newest",
        "/?sort=delivered",
        "/?q=ryzen",
        "/?all=1",
    ]
    kinds = {
        "board": [("GET", draw.choice(boards), b"") for _ in range(given.requests)],
        "result": [("GET", f"/results/{draw.choice(ids)}", b"") for _ in range(given.requests)],
    }
    found: dict[str, Any] = {"database": served.kind, "runs": given.runs}
    for kind, requests in kinds.items():
        asyncio.run(send_all(served.url, requests[:50], 1))
        sent = asyncio.run(send_all(served.url, requests, given.clients))
        found[kind] = {
            "requests": len(requests),
            "statuses": {str(s): n for s, n in sent.statuses.items()},
            "p50_ms": sent.at(0.5),
            "p99_ms": sent.at(0.99),
        }
    return found


def memory(given: argparse.Namespace, served: Served) -> dict[str, Any]:
    tenth = given.requests // 10
    held = []
    for _ in range(10):
        requests = forged(served.origin, tenth // 10)
        requests += [("GET", "/", b""), ("GET", "/api/v1/results", b"")] * (tenth * 9 // 20)
        asyncio.run(send_all(served.url, requests, given.clients))
        held.append(sum(p.memory_info().rss for p in served.processes()))
    return {
        "database": served.kind,
        "requests": given.requests,
        "resident_bytes": held,
        "last_over_third": held[-1] / held[2],
    }


MODES = {"submissions": submissions, "pages": pages, "memory": memory}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--postgres", action="store_true", help="a private PostgreSQL, not SQLite")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=None)
    parser.add_argument(
        "--whole", action="store_true", help="records of whole runs, not of one entry"
    )
    parser.add_argument("--most-per-s", type=float, default=300.0, help="forged beforehand")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args()
    given.clients = given.clients or (1 if given.mode == "pages" else 32)
    given.requests = given.requests or (36_000 if given.mode == "memory" else 2_000)
    with ExitStack() as ending:
        served = ending.enter_context(serving(postgres=given.postgres, workers=given.workers))
        found = MODES[given.mode](given, served)
    found["cores"], found["load"] = psutil.cpu_count(), psutil.getloadavg()[0]
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
