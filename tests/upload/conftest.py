"""What tests of uploads share: a home of its own, and a computer that submits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest

from npumark import paths
from npumark.upload import client
from tests.upload.paper_server import Desk, PaperServer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    # Whether a disk keeps what it was told to is beyond any test; waiting for it is slow.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return tmp_path / "home"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PaperServer:
    """Return the server that every connection leads to."""
    made = PaperServer()
    made.clock = time.time()
    paper = httpx.MockTransport(made.answer)

    def handle(_: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        return paper.handle_request(request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.0)
    return made
