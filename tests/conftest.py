"""What every test shares: properties are judged by what holds, never by how fast."""

from __future__ import annotations

import gc
import os

from hypothesis import settings

settings.register_profile("npumark", deadline=None, derandomize=True)
settings.load_profile("npumark")

os.environ["TERM"] = "xterm"
"""Whoever runs the tests may have a terminal that redraws nothing, or none."""

os.environ["NPUMARK_KEYSTORE"] = "file"
"""No test, and no process that one starts, touches the keystore of whoever runs them."""


def pytest_collection_finish() -> None:
    """Leave what all tests hold out of every later collection: timed loops collect before they
    begin, and would look through all of it each time."""
    gc.collect()
    gc.freeze()
