"""Runtimes that report home are told not to, before they are imported.

A run opens no network connection and writes nothing outside its own folders; and a thread that
sends while a loop is timed is part of what is measured. Importing OpenVINO starts its usage
telemetry without asking (where the package ``openvino_telemetry`` is found; it does without),
and ONNX Runtime keeps an event store under the user's cache.
"""

from __future__ import annotations

import os
import sys


def silence() -> None:
    """Turn off the telemetry of every runtime known to have one; call before importing any."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # An entry of None makes the import fail, and OpenVINO then uses its own stub.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
