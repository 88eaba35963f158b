"""A conversation with one server: who it is, what time it has, and which key speaks to it.

What can be got out of the way of a signed statement is: a key that is not registered there, one
that is refused (the installation makes itself another, once in a conversation), clocks that
differ. Everything else that a server refuses is left to whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from npumark.errors import IntegrityError, NetworkError
from npumark.record.canonical import canonical_bytes
from npumark.record.signing import InstallKey, Purpose, sign_statement
from npumark.upload.client import STAYS, Answer, Client, Error, Shell
from npumark.upload.prepare import Keys
from npumark.upload.servers import KnownServer, ServerInfo, known, pinned, remember

Body = Callable[[InstallKey], bytes]
"""Makes what is posted, signed by the key that it is given."""


class Session:
    """``skew_s`` is how far this computer's clock is behind the server's, null until it is known;
    where that is more than the server allows, statements carry the server's time."""

    def __init__(
        self, client: Client, keys: Keys, shell: Shell, *, trust_new_key: bool = False
    ) -> None:
        self._client = client
        self._keys = keys
        self._shell = shell
        self._trust_new_key = trust_new_key
        self._server: KnownServer | None = None
        self._allowed_s = 0.0
        self._most_bytes = 0
        self._registered: set[str] = set()
        self._rotated = self._corrected = False
        self.skew_s: float | None = None

    @property
    def origin(self) -> str:
        """What the server is called by its address."""
        return self._client.address.origin

    def server(self) -> KnownServer:
        """Ask the server who it is, the first time; hold its key to the one it had, and the clocks
        to each other. Raises IntegrityError where it is another, NetworkError where it is none."""
        if self._server is None:
            before = self._shell.now()
            answer = self._client.get("/api/v1/server")
            after = self._shell.now()
            info, at = self._read(answer)
            address = self._client.address
            first = known(address)
            server = pinned(first, info, address, trust_new_key=self._trust_new_key)
            if first.public_key not in (None, server.public_key):
                self._shell.tell(
                    f"note: {address.origin} has another key than before. If its log is another as "
                    "well, its history begins anew: receipts of the old one are still checked with "
                    "`npumark verify --log`, but --online cannot prove that the old one only grew"
                )
            self._server = replace(server, used_at=after)
            remember(address, self._server)
            self._allowed_s, self._most_bytes = info.limits.skew_s, info.limits.body_bytes
            self._see_clock(at - (before + after) / 2)
        return self._server

    def most_bytes(self) -> int:
        """Return how long a body the server takes."""
        self.server()
        return self._most_bytes

    def now(self) -> float:
        """Return the present in UTC seconds: by the server's clock where ours is far off."""
        far = self.skew_s is not None and abs(self.skew_s) > self._allowed_s
        return self._shell.now() + (self.skew_s or 0.0) * far

    def stated(self, purpose: Purpose, key: InstallKey, **fields: Any) -> dict[str, Any]:
        """Return a signed statement to this server, of this machine, now."""
        origin, machine_id = self.server().origin, self._keys.machine_id()
        return stated(purpose, key, origin, machine_id, instant(self.now()), **fields)

    def post(self, path: str, body: Body) -> tuple[Answer, Error | None]:
        """Post what the present key signs; return the answer, and why it refuses (null: it does
        not).

        Raises NetworkError where there is no answer of a results server, or where the machine has
        to wait for its key; IntegrityError where the server takes no key of it.
        """
        self.server()
        while True:
            key = self._keys.install()
            answer = self._client.post(path, body(key))
            error = self._error(answer)
            if error is None or not self._helped(error, key):
                return answer, error

    def _helped(self, error: Error, key: InstallKey) -> bool:
        """Get out of the way what stands there, each once; return whether that was done."""
        if error.code == "unknown_key" and key.key_id not in self._registered:
            self._registered.add(key.key_id)
            self._register()
        elif error.code == "key_refused" and not self._rotated:
            self._rotated = True
            new = self._keys.rotate()
            self._shell.tell(
                f"{self.origin} refuses this installation's key ({error.message}); it has a new "
                f"one, {new.key_id}, which signs what is queued anew"
            )
        elif error.code == "clock_skew" and not self._corrected and error.server_time is not None:
            self._corrected, self._allowed_s = True, 0.0
            self._see_clock(_seconds(error.server_time) - self._shell.now())
        else:
            return False
        return True

    def _register(self) -> None:
        def body(key: InstallKey) -> bytes:
            return canonical_bytes(self.stated("registration", key, public_key=key.public.hex()))

        answer, error = self.post("/api/v1/keys", body)
        if error is None:
            return
        if error.code == "too_many_keys":
            wait = answer.retry_after_s
            when = "later" if wait is None else f"from {instant(self.now() + wait)} on"
            raise NetworkError(
                f"{self.origin} has as many keys of this machine as it takes: {error.message}",
                f"`npumark submit` works {when}; what is queued stays queued.",
            )
        raise IntegrityError(
            f"{self.origin} takes no key of this installation: {error.message} ({error.code})",
            f"Ask whoever runs the server. {STAYS}",
        )

    def _see_clock(self, behind_s: float) -> None:
        self.skew_s = behind_s
        if abs(behind_s) > self._allowed_s:
            side = "behind" if behind_s > 0 else "ahead of"
            self._shell.tell(
                f"this computer's clock is {_span(behind_s)} {side} the server's: the server's "
                "time is stated instead. No signature is at fault; set the clock right"
            )

    def _read(self, answer: Answer) -> tuple[ServerInfo, float]:
        try:
            info = ServerInfo.model_validate(answer.document())
            return info, _seconds(info.time)
        except ValueError:  # a ValidationError is one
            raise NetworkError(
                f"what answers at {self._client.address.url} is no results server "
                f"(HTTP {answer.status})",
                f"Check the address. {STAYS}",
            ) from None

    def _error(self, answer: Answer) -> Error | None:
        """Return why the server refuses. What is not its answer, but a proxy's, is no refusal."""
        if answer.ok:
            return None
        error = answer.error()
        if error is None:
            raise NetworkError(
                f"something else than a results server answers for {self.origin} "
                f"(HTTP {answer.status})",
                f"Check the address, and a proxy on the way. {STAYS}",
            )
        return error


def stated(
    purpose: Purpose, key: InstallKey, origin: str, machine_id: str, at: str, **fields: Any
) -> dict[str, Any]:
    """Return a statement of ``record.envelope``, signed by ``key`` for the server ``origin``."""
    kind, when = ("envelope", "sent_at") if purpose == "submission" else (purpose, "signed_at")
    statement = {
        "schema": f"npumark-{kind}/1",
        "origin": origin,
        "machine_id": machine_id,
        when: at,
        **fields,
    }
    return {**statement, "signature": sign_statement(statement, purpose, key)}


def instant(seconds: float) -> str:
    """Return UTC seconds as an ``envelope.Instant``."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def _seconds(text: str) -> float:
    """Return an ``Instant`` as UTC seconds. Raises ValueError where it is none."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def _span(seconds: float) -> str:
    length = abs(seconds)
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if length >= 2 * size:
            return f"{length / size:.0f} {name}"
    return f"{length:.0f} seconds"
