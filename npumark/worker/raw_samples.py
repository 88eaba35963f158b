"""Raw samples: the times of every call, in a file beside the record that states its sha256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt


def save_raw(times: npt.NDArray[np.int64], path: str | None) -> str | None:
    """Write ``times`` (little-endian int64, row by row) whole or not at all; return the sha256.

    None where they are not kept, a full disk included: that is no fault of the engine, whose
    measurement stands without them. Why is in the worker's log.
    """
    if path is None:
        return None
    raw = times.astype("<i8").tobytes()
    target = Path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as fault:
        print(f"the raw samples cannot be kept: {fault}", file=sys.stderr)
        with contextlib.suppress(OSError):
            temporary.unlink()
        return None
    return hashlib.sha256(raw).hexdigest()
