"""NumPy as an engine: the peak chains in FP32, by its own matrix product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.buffers import aligned
from npumark.errors import Unsupported
from npumark.pack import peak_files
from npumark.pack.seeded import Chain
from npumark.worker.protocol import EngineInfo, Observed, Placement


class NumPyRuntime(Engine):
    """The runtime. Its name is that of the entry point."""

    name = "numpy"

    def _prepare(self) -> None:
        import numpy as np  # noqa: F401 - the import of a runtime is timed apart, here

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        """Name every device, each after a small trial: here one product on the only one."""
        import numpy as np

        one = np.eye(4, dtype=np.float32)
        right = bool((one @ one == one).all())
        return (
            EngineInfo(
                id="numpy-cpu",
                available=right,
                reason=None if right else "a product of identity matrices comes out wrong",
                runtime=self.name,
                runtime_title="NumPy",
                version=np.__version__,
                processor={"key": "cpu", "role": "CPU", "name": None},
                variants=("fp32",),
            ),
        )

    def _load(self, request: LoadRequest) -> Session:
        if not request.workload_id.startswith("peak-"):
            raise Unsupported("NumPy has no operators for networks")
        return ChainSession(request)

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        why = "NumPy computes in the calling process; there is no other device"
        return Placement("inferred", None, None, None, "none", why)


class ChainSession(Session):
    """One chain: every layer's product lands in a buffer of its own, the last in the output."""

    def __init__(self, request: LoadRequest) -> None:
        import numpy as np

        chain = Chain.parse(request.workload_id)
        stored = request.graph.parent / "fp32.weights"  # lies beside the graph, verified
        self._weights = [
            np.fromfile(stored, p.dtype, p.shape[0] * p.shape[1], offset=p.offset).reshape(p.shape)
            for p in peak_files.layout(chain, "fp32")
        ]
        shape = (chain.rows, chain.width)
        self._values = [aligned(shape, "float32") for _ in range(chain.layers + 1)]

    def inputs(self) -> tuple[Array, ...]:
        return (self._values[0],)

    def outputs(self) -> tuple[Array, ...]:
        return (self._values[-1],)

    def step(self) -> Callable[[], object]:
        import numpy as np

        layers = list(zip(self._values, self._weights, self._values[1:], strict=False))

        def run() -> None:
            for x, weight, y in layers:
                np.matmul(x, weight, out=y)
                np.maximum(y, 0, out=y)

        return run

    def observed(self) -> Observed:
        """Say what ran, read back; what cannot be read back is null, with the reason."""
        import numpy as np

        return Observed(
            device="CPU",
            precision={"float32": "FP32"}.get(str(self._values[-1].dtype)),
            precision_why=None,
            threads=None,
            runtime="numpy",
            version=np.__version__,
            details={"threads_why": "NumPy does not say how many threads its BLAS computes on"},
        )
