"""How a virtual engine fails: what a script's faults do to the process and to the answers."""

from __future__ import annotations

import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from npumark.engines.base import Array
from npumark.engines.virtual_script import DEATHS, REFUSALS, Fault
from npumark.errors import Unsupported, WrongDevice


def at_load(faults: Sequence[Fault], when: str | None) -> None:
    """Do what is to happen at a load that does ``when`` (see Fault)."""
    for fault in faults:
        at_a_call = fault.call is not None or fault.after_s is not None
        if not at_a_call and fault.when == when and fault.do in (*DEATHS, *REFUSALS):
            misbehave(fault)


def misbehave(fault: Fault) -> None:
    """Die, hang, flood or refuse as the script says; a flood returns."""
    if fault.do == "abort":
        os.abort()
    if fault.do in ("segfault", "kill"):
        name = "SIGSEGV" if fault.do == "segfault" else "SIGKILL"
        os.kill(os.getpid(), getattr(signal, name, signal.SIGTERM))
    if fault.do == "exit":
        os._exit(fault.code)
    if fault.do in ("half_json", "garbage"):
        text = b'{"schema": "npumark-worker/1", "status": "ok", "measu' * 3
        os.write(int(sys.argv[1]), text if fault.do == "garbage" else text[:50])
        os._exit(0)
    if fault.do == "stderr_flood":
        line = b"virtual engine: nothing is wrong, and this is said at length\n"
        for _ in range(fault.bytes // len(line) + 1):
            os.write(2, line)
    while fault.do == "hang":
        time.sleep(3600)
    if fault.do == "unsupported":
        raise Unsupported("the virtual engine does not run this variant")
    if fault.do == "wrong_device":
        raise WrongDevice("the virtual engine ran on the CPU")
    if fault.do == "out_of_memory":
        raise MemoryError
    if fault.do == "raise":
        raise RuntimeError("a virtual fault\nof two lines")


def distort(fault: Fault, output: Array, gauss: Callable[[float, float], float]) -> None:
    """Make ``output`` wrong in place, in the way that ``fault`` says."""
    if fault.do == "nan":
        output[...] = np.nan
    elif fault.do == "nan_one":
        output.reshape(-1)[0] = np.nan
    elif fault.do == "inf":
        output.reshape(-1)[-1] = np.inf
    elif fault.do == "zeros":
        output[...] = 0
    elif fault.do == "scale":
        output *= fault.factor
    elif fault.do == "roll":
        output[...] = np.roll(output, 1, axis=-1)
    elif fault.do == "jitter":
        output *= 1 + 1e-6 * gauss(0, 1)
    elif fault.do == "noise":
        power = float(np.mean(np.square(output, dtype=np.float64)))
        seed = zlib.crc32(output.tobytes())  # the same answer gets the same noise
        noise = np.random.default_rng(seed).standard_normal(output.shape)
        output += noise * np.sqrt(power / 10 ** (fault.snr_db / 10))
    elif fault.do == "fp16_clip":
        with np.errstate(over="ignore"):
            clipped = (output * fault.gain).astype(np.float16)
        output[...] = clipped.astype(output.dtype) / fault.gain
