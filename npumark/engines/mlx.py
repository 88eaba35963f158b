"""MLX: Apple's GPU through Metal, an NVIDIA card through CUDA, or the CPU.

What each choice is for:

- A program of the pack becomes one function, which ``mx.compile`` fuses as an application would
  have it fused. Weights are arrays of MLX's before the first call.
- Evaluation is lazy: a call that does not force it computes nothing. Each timed call copies its
  inputs into new arrays, forces the outputs with ``mx.eval``, which returns when they are done,
  takes NumPy views of them and reads an element of each. The views are not copies; on a card
  with memory of its own taking them is what brings the outputs to the host, so it is timed.
- bfloat16 outputs become float32 inside the function, because NumPy cannot view them.
- The device is set before anything is made, and read back from the stream. MLX moves no
  operation elsewhere by itself: one that a device lacks raises. So a whole function runs on its
  stream's device or not at all, which is the proof of its placement.
- On a GPU nothing promises that sums are added in one order, so answers there may differ in
  their last bits from call to call.
- MLX offers no control over the number of threads, and tells none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.buffers import aligned
from npumark.engines.formats import Formats, Work, weigh
from npumark.engines.mlx_probe import (
    asked,
    import_core,
    multiplies_in,
    probe_devices,
    run_one_node,
    use,
    versions,
)
from npumark.engines.mlx_program import Builder, one_node_program
from npumark.engines.number_probe import Verdict
from npumark.errors import EngineError, Unsupported
from npumark.pack.program import PROGRAM
from npumark.pack.program_file import load_program, parse_program
from npumark.worker.protocol import EngineInfo, Observed, Placement

_ONE_NODE = "one-node"
"""The workload that measures the harness; it comes as an ONNX graph."""

_FAMILIES = {
    "float32": "FP32",
    "float16": "FP16",
    "bfloat16": "BF16",
    "uint32 x 8 bits": "W8",
    "uint32 x 4 bits": "INT4",
}

_UNTOLD_THREADS = "MLX neither takes nor tells a number of threads"


class Mlx(Engine):
    """MLX, through its Python API."""

    name = "mlx"
    batches = True

    def _prepare(self) -> None:
        import_core()

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        del options
        return probe_devices()

    def _load(self, request: LoadRequest) -> Session:
        return MlxSession(request)

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        del feed, runs
        device = asked(request.options)
        run_one_node(device)
        use(device)
        return Placement("proved", 1.0, 1.0, 1, "stream-device")


class MlxSession(Session):
    """A compiled function with its weights, and views of its latest outputs."""

    def __init__(self, request: LoadRequest) -> None:
        mx = import_core()
        self._request = request
        self._device = asked(request.options)
        use(self._device)
        self.nondeterministic = self._device.kind == "gpu"
        self._builder: Builder | None = _builder(request)
        function = mx.compile(self._builder.function(request.inputs, request.outputs))
        self._inputs = tuple(aligned(s.shape, s.dtype) for s in request.inputs)
        self._outputs = [np.zeros(s.shape, s.dtype) for s in request.outputs]
        self._step = _step(mx, function, self._inputs, self._outputs)

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> Sequence[Array]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._step

    def observed(self) -> Observed:
        """Return the stream's device, the types of what was multiplied, and what they show."""
        if self._builder is None:
            raise EngineError("the session is closed")
        told = use(self._device)
        macs = self._builder.macs_by_type()
        computed = self._builder.recipe.compute
        verdict = multiplies_in(computed)
        found = ran(macs, computed, verdict)
        return Observed(
            device=told.stream,
            precision=found.ran,
            precision_why=found.why,
            threads=None,
            runtime="mlx",
            version=versions().get("mlx"),
            versions=versions(),
            details={
                "default_device": told.default,
                "device_info": told.info,
                "mac_share": found.share,
                "mac_share_by": found.by,
                "mac_types": found.counts,
                "number_probe": {"family": verdict.family, "accumulator": verdict.accumulator},
                "threads_why": _UNTOLD_THREADS,
            },
        )

    def close(self) -> None:
        self._step = _closed
        self._builder = None
        self._outputs.clear()


def ran(macs: dict[str, int], computed: str, verdict: Verdict) -> Formats:
    """Return the format that the arrays' types name, unless a small product shows another.

    ``macs`` are multiply-accumulates by the type of the weights, ``computed`` is the type of
    the activations and ``verdict`` what a product of that type shows on the device.
    """
    work = [Work(_FAMILIES.get(name, name), 0, count) for name, count in macs.items()]
    found = weigh(work, macs)
    wanted = _FAMILIES[computed]
    if verdict.family is None:
        return found.unknown(f"what {wanted} arrays are multiplied in is not told: {verdict.why}")
    if verdict.family == wanted:
        return found
    if found.ran == wanted:
        return Formats(verdict.family, None, found.share, found.by, found.counts)
    return found.unknown(f"arrays of {wanted} are multiplied in {verdict.family}")


def _builder(request: LoadRequest) -> Builder:
    if request.workload_id == _ONE_NODE:
        return Builder(parse_program(one_node_program()), request.graph.parent, request.encoding)
    if request.graph.name != PROGRAM:
        raise Unsupported(f"MLX does not read {request.graph.name}")
    # The pack's root is two folders above: <root>/<workload>/program.json.
    root = request.graph.parent.parent
    return Builder(load_program(request.graph), root, request.encoding, request.batch)


def _step(
    mx: Any, function: Callable[..., Any], inputs: tuple[Array, ...], outputs: list[Array]
) -> Callable[[], object]:
    make, force, view = mx.array, mx.eval, np.array

    def step() -> None:
        made = function(*[make(array) for array in inputs])
        force(made)
        for i, array in enumerate(made):
            seen = view(array, copy=False)
            seen.item(0)
            outputs[i] = seen

    return step


def _closed() -> None:
    raise EngineError("the session is closed")
