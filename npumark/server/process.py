"""The server's processes: one that serves, or a parent that keeps several serving."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from npumark.errors import SetupError
from npumark.server.protocol import GuardedProtocol
from npumark.server.settings import VARIABLE, Settings, config_of

FINISH_S: Final = 5
"""How long requests that were begun may take to end after the server was told to stop."""

_KEEP_ALIVE_S: Final = 15
_HEAD_BYTES: Final = 32 << 10
_METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address, on any free port where ``port`` is 0.

    Raises SetupError where that is taken, forbidden or no address of this computer.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind)
        try:
            if os.name == "posix":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(1024)
        except OSError:
            bound.close()
            raise
    except OSError as fault:
        raise SetupError(
            f"the server cannot listen on {host}, port {port}: {fault.strerror or fault}",
            "Stop what listens there, or choose another --port or --host.",
        ) from fault
    bound.set_inheritable(True)
    return bound


def serve(
    settings: Settings, bound: socket.socket, workers: int, ready: Callable[[], None]
) -> None:
    """Serve on a listening socket until SIGINT or SIGTERM; what was begun is finished.

    ``ready`` is called once requests are answered; with several workers, once they are taken.
    Raises SetupError where a worker could not start.
    """
    os.environ[VARIABLE] = settings.to_json()
    config = uvicorn.Config(
        "npumark.server.process:application",
        factory=True,
        http=GuardedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing is decided by who asks, or over which scheme
        workers=workers,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=FINISH_S,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    if workers > 1:
        _supervise(config, bound, ready)
        return
    # After its end uvicorn raises the signal again, for whoever handled it before.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    _Announced(config, ready).run([bound])


def application() -> FastAPI:
    """Return the app of the settings in the environment: what each serving process runs."""
    from npumark.server.app import create_app

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
    return create_app(config_of(Settings.from_json(os.environ[VARIABLE])))


class _Announced(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _supervise(config: uvicorn.Config, bound: socket.socket, ready: Callable[[], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="npumark-metrics-") as folder:
        os.environ[_METRICS] = folder
        supervisor = Multiprocess(config, [bound])
        ready()  # the socket listens: whoever connects now is answered by the first that is up
        supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise SetupError("a worker process could not start", "Its own message is above.")


def _end_after(parent: Any) -> None:
    """End this process in order once ``parent`` is gone: nobody else would, and it would keep the
    port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
