"""The API does what its own description says, whatever it is sent; nothing is worse than a 4xx."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy.exc import OperationalError

from npumark.record.canonical import canonical_bytes
from npumark.record.signing import sign_statement
from npumark.server.app import create_app
from npumark.server.refusal import CODES
from npumark.server.store import Store
from tests import forge
from tests.server.conftest import NOW, config_of
from tests.server.stored import registration

FEW = settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """An app with one result, whose clock stands still."""
    url = f"sqlite:///{tmp_path_factory.mktemp('server') / 'server.sqlite'}"
    config = config_of(url, build_keys={forge.BUILD.key_id: forge.BUILD})
    with ExitStack() as ending:
        store = Store(config, now=lambda: NOW)
        ending.callback(store.close)
        store.open()
        store.migrate()
        store.register_key(registration())
        yield create_app(config, store, now=lambda: NOW)


class Client:
    """Asks an app without a socket between."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner) -> None:
        self._runner = runner
        transport = httpx.ASGITransport(app)
        headers = {"Content-Type": "application/json"}
        self._client = httpx.AsyncClient(
            transport=transport, base_url="http://server", headers=headers
        )

    def ask(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, content=body))


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[Client]:
    with asyncio.Runner() as runner:
        yield Client(app, runner)


@pytest.fixture(scope="module")
def document(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.ask("GET", "/openapi.json").json()
    return found


def test_every_error_is_described_with_the_body_that_it_has(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            errors = {s: r for s, r in told["responses"].items() if s >= "400"}
            assert "500" in errors, (method, path)
            for status, reply in errors.items():
                schema = reply["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (path, status)


def test_every_code_has_its_status_in_the_description(document: dict[str, Any]) -> None:
    for methods in document["paths"].values():
        for told in methods.values():
            for status, reply in told["responses"].items():
                for code in re.findall(r"`(\w+)`: ", reply["description"]):
                    assert str(CODES[code][0]) == status


def test_every_model_that_is_named_is_there(document: dict[str, Any]) -> None:
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= document["components"]["schemas"].keys()


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [told["operationId"] for m in document["paths"].values() for told in m.values()]
    assert len(set(names)) == len(names)


def test_the_page_of_the_api_shows_every_address_and_code(
    client: Client, document: dict[str, Any]
) -> None:
    page = client.ask("GET", "/docs").text
    assert [path for path in document["paths"] if path not in page] == []
    assert [code for code in CODES if f"<code>{code}</code>" not in page] == []
    assert "<script>" not in page


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_whatever_is_sent_is_answered_as_described(app: FastAPI) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    tried = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.label == "POST /api/v1/results":
            continue  # a whole record takes seconds to invent; its like is below

        @FEW
        @given(case=operation.as_strategy())
        def answered(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        answered()
        tried.append(operation.label)
    assert {"POST /api/v1/keys", "GET /api/v1/results/{id}/record"} <= {*tried}


# What nobody foresaw


RECORD = "/api/v1/results/aaaaaaaaaaaaaaaa/record"


def failing(fault: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise fault

    return fail


def test_an_error_that_nobody_foresaw_is_in_the_log_under_the_id_that_is_told(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Store, "result", failing(ZeroDivisionError("a secret")))
    answer = client.ask("GET", RECORD)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert f"error {error['details']['id']}: a secret" in caplog.text
    assert "Traceback" in caplog.text


def test_a_database_that_does_not_answer_is_no_error_of_the_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = OperationalError("SELECT 1", {}, ConnectionError("gone"))
    monkeypatch.setattr(Store, "result", failing(gone))
    answer = client.ask("GET", RECORD)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
    assert answer.headers["retry-after"] == "5"
    assert "SELECT" not in answer.text


# Submissions that are valid but for one change


_SMALL = forge.forge_payload(small=True)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value in a document."""
    yield path
    if isinstance(value, dict | list):
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in members:
            yield from places(inner, (*path, key))


WHOLE = json.loads(forge.forge_submission(forge.forge_record(_SMALL)))
PLACES = list(places(WHOLE["record"]["payload"], ("record", "payload")))[1:]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "0", "<script>", "'; --", "\n", "\x00", "\U0001f680", "\u202e", "a" * 5000]
    ),
    st.sampled_from([[], {}, [[]], [None], {"": ""}, [0] * 100]),
)


def with_value(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed: Any = json.loads(json.dumps(WHOLE))
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return dict(changed)


def resealed(whole: dict[str, Any]) -> bytes:
    """Return the body after everything in it was signed anew, as a forger would."""
    record = forge.forge_record(whole["record"]["payload"])
    return forge.forge_submission(record)


@pytest.mark.parametrize("seal", [canonical_bytes, resealed], ids=["edited", "resealed"])
@settings(FEW, max_examples=60)
@given(path=st.sampled_from(PLACES), value=ODD)
def test_a_submission_with_one_odd_value_is_taken_or_refused(
    client: Client,
    seal: Callable[[dict[str, Any]], bytes],
    path: tuple[str | int, ...],
    value: Any,
) -> None:
    answer = client.ask("POST", "/api/v1/results", seal(with_value(path, value)))
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"]["code"] in CODES


def test_the_submission_that_those_are_made_of_is_taken(client: Client) -> None:
    assert client.ask("POST", "/api/v1/results", canonical_bytes(WHOLE)).status_code in (200, 201)


@FEW
@given(body=st.binary(max_size=300))
def test_any_bytes_at_all_are_refused(client: Client, body: bytes) -> None:
    assert 400 <= client.ask("POST", "/api/v1/results", body).status_code < 500


def test_a_signed_withdrawal_is_carried_out_once(client: Client) -> None:
    record = forge.forge_record(forge.vary(_SMALL, run_id="to-withdraw"))
    receipt = client.ask("POST", "/api/v1/results", forge.forge_submission(record)).json()
    statement = {
        "schema": "npumark-withdrawal/1",
        "origin": forge.ORIGIN,
        "machine_id": forge.MACHINE_ID,
        "key_id": forge.INSTALL.key_id,
        "result_id": receipt["result_id"],
        "signed_at": forge.stamp(forge.NOW),
    }
    signature = sign_statement(statement, "withdrawal", forge.INSTALL)
    body = canonical_bytes({**statement, "signature": signature})
    path = f"/api/v1/results/{receipt['result_id']}"
    first, second = (client.ask("POST", f"{path}/withdrawal", body) for _ in range(2))
    assert first.status_code == 200
    assert first.json() == second.json()
    gone = client.ask("GET", f"{path}/record")
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "withdrawn")
    assert client.ask("GET", f"{path}/receipt").json() == receipt
    assert client.ask("GET", f"{path}/proof").json()["log"]["index"] == receipt["log"]["index"]
