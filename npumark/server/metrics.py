"""What a server counts of itself, for Prometheus.

One process keeps its figures in memory. Several share a folder (``PROMETHEUS_MULTIPROC_DIR``, set
before this module is imported), and whichever is asked adds up what all have written there.
"""

from __future__ import annotations

import os
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
MEDIA_TYPE: Final = CONTENT_TYPE_LATEST

_VERIFY_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """The figures of one app. ``submissions`` by the code they ended with (``accepted``, ``again``
    for one that was accepted before, or a refusal's), ``requests`` by route and status."""

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        self.submissions = Counter(
            "npumark_submissions",
            "Submissions by what became of them",
            ["code"],
            registry=self._own,
        )
        self.requests = Counter(
            "npumark_requests",
            "Requests by route and status",
            ["method", "route", "status"],
            registry=self._own,
        )
        self.verify_s = Histogram(
            "npumark_verify_seconds",
            "Time to verify a submission, without waiting for it",
            buckets=_VERIFY_S,
            registry=self._own,
        )
        self.waiting = Gauge(
            "npumark_waiting",
            "Submissions that wait to be verified or stored, or are",
            registry=self._own,
            multiprocess_mode="livesum",
        )

    def text(self, log_size: int) -> bytes:
        """Return everything in Prometheus's text format, with the size of the log beside it."""
        registry = self._own
        if FOLDER_VARIABLE in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return (
            generate_latest(registry)
            + (
                "# HELP npumark_log_size Leaves in the transparency log\n"
                "# TYPE npumark_log_size gauge\n"
                f"npumark_log_size {log_size}\n"
            ).encode()
        )


def forget_process() -> None:
    """Take what only a living process has (its gauges) out of the shared folder."""
    if FOLDER_VARIABLE in os.environ:
        mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]
