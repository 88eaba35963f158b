"""What an engine is: a runtime that names its devices and runs a graph on one of them.

Public methods are concrete and turn any foreign exception into an ``EngineError``; an engine
implements the underscored ones. A module that defines an engine imports its runtime only
inside those methods, so that finding an engine costs nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from npumark.errors import EngineError, PackError, Unsupported
from npumark.pack.manifest import TensorSpec
from npumark.worker.protocol import CacheUse, EngineInfo, Observed, Placement, Stamp

Array = npt.NDArray[Any]

_OF_SHAPES = re.compile(r"shape|dimension|\bdims?\b|broadcast", re.IGNORECASE)
_OF_MEMORY = re.compile(r"alloc|memory", re.IGNORECASE)
"""Runtimes name the tensor's shape where they have no room for it, too."""

DeviceChoice = Literal["own", "automatic"]
"""Who says where a graph runs: the engine's own device, or the runtime itself."""


@dataclass(slots=True)
class CacheMemo:
    """What this worker knows of its entry's compiled model (engines.model_cache).

    ``stamps`` maps each file, relative to the entry's folder, to its stamp when this run hashed
    it; ``use`` is what the first session found and did, ``facts`` what compiling told, and
    ``settle`` is to be called once the sessions are closed.
    """

    stamps: dict[str, Stamp] = field(default_factory=dict)
    use: CacheUse | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    settle: Callable[[], None] = lambda: None

    def reused(self) -> bool | None:
        """Say whether the first session came from a compiled model; null: it keeps none."""
        return None if self.use is None else self.use.state == "reused"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Everything an engine needs to load one variant of one workload.

    ``graph`` is the model file (its external data lies beside it). ``encoding`` is what is
    asked for (``fp32``, ``bf16``, ``int8-u8s8`` …) and ``format`` its family. ``options`` come
    from the engine's own probe. ``cache_dir`` is this entry's place for its compiled model,
    which ``cache_memo`` remembers between sessions; ``preparing`` marks the load before the
    first attempt, which is not measured.

    Two requests are made by diagnostics alone, and no figure comes from them. ``batch`` other
    than 1 asks for the same graph on so many inputs per call; ``inputs`` and ``outputs`` are then
    those of the whole batch (see ``of_batch``). ``device_choice`` ``automatic`` leaves the
    device to the runtime.
    """

    engine_id: str
    workload_id: str
    graph: Path
    encoding: str
    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    threads: int | None
    options: dict[str, Any]
    cache_dir: Path | None
    cache_memo: CacheMemo = field(default_factory=CacheMemo)
    preparing: bool = False
    batch: int = 1
    device_choice: DeviceChoice = "own"

    def of_batch(self, n: int) -> LoadRequest:
        """Return the request for ``n`` inputs per call: every input and output has the leading
        dimension times ``n``, and no compiled model is read or kept, which is another graph's."""
        return replace(
            self,
            batch=n,
            inputs=tuple(_times(spec, n) for spec in self.inputs),
            outputs=tuple(_times(spec, n) for spec in self.outputs),
            cache_dir=None,
            cache_memo=CacheMemo(),
        )


def _times(spec: TensorSpec, n: int) -> TensorSpec:
    return replace(spec, shape=(spec.shape[0] * n, *spec.shape[1:]))


class Session(ABC):
    """A loaded graph with its buffers bound once.

    ``inputs`` returns host arrays that stay the same for the session's life: writing into one
    sets what the next ``step`` computes on. ``outputs`` returns a sequence that stays the same,
    whose items are host arrays of the latest call's results: filled in place, or, where a
    runtime makes new ones at every call, replaced by views of those (never by copies). They are
    plain ``numpy.ndarray``, no subclass; one element of each is read in the timed region.
    ``step`` returns the callable of the timed loop: it must not return before the outputs can
    be read.
    """

    nondeterministic = False

    @abstractmethod
    def inputs(self) -> tuple[Array, ...]: ...

    @abstractmethod
    def outputs(self) -> Sequence[Array]: ...

    @abstractmethod
    def step(self) -> Callable[[], object]: ...

    @abstractmethod
    def observed(self) -> Observed:
        """Return what the runtime says it loaded; called after the timed loop."""

    def loaded_from_cache(self) -> bool | None:
        return None

    def picked(self) -> tuple[str, ...]:
        """Return the devices that an automatic choice came to, the one with most of the work
        first, in the words of ``observed().device``; none where none was asked for. Asked after
        the timed loop: a runtime may change its mind. May raise where the runtime does not
        tell."""
        return ()

    def close(self) -> None:  # noqa: B027 - optional
        """Free the session before the placement run loads its own."""


class Engine(ABC):
    """A runtime. ``name`` is its entry point's name.

    ``batches`` says that it can load a graph for several inputs per call, ``automatic`` names
    its way of choosing the device by itself, null for none.
    """

    name: str
    batches = False
    automatic: str | None = None

    def prepare(self) -> None:
        """Import the runtime, so that its import is timed apart from the load."""
        with _foreign_errors():
            self._prepare()

    def probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        """Return every device of this runtime, each having run a one-node model, or why not."""
        with _foreign_errors():
            return self._probe(options)

    def load(self, request: LoadRequest) -> Session:
        """Load a variant afresh. Raises Unsupported, WrongDevice, PackError or EngineError."""
        if request.batch != 1 and not self.batches:
            raise Unsupported(f"{self.name} takes one input per call")
        if request.device_choice == "automatic" and self.automatic is None:
            raise Unsupported(f"{self.name} has no automatic choice of its device")
        with _foreign_errors(request.batch):
            return self._load(request)

    def placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        """Prove where ``runs`` calls run, in a bounded session apart from the timed one."""
        with _foreign_errors():
            return self._placement(request, feed, runs)

    def _prepare(self) -> None:  # noqa: B027 - optional
        """Import what the engine needs."""

    @abstractmethod
    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]: ...

    @abstractmethod
    def _load(self, request: LoadRequest) -> Session: ...

    @abstractmethod
    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement: ...


@contextmanager
def _foreign_errors(batch: int = 1) -> Iterator[None]:
    try:
        yield
    except (EngineError, PackError):
        raise
    except MemoryError as fault:
        raise EngineError("the runtime ran out of memory") from fault
    except Exception as fault:
        text = " ".join(str(fault).split())[:500]
        if batch != 1:
            raise batch_fault(batch, fault) from fault
        raise EngineError(f"{type(fault).__name__}: {text}") from fault


def batch_fault(n: int, fault: Exception) -> EngineError:
    """Return what a runtime's exception says of ``n`` inputs per call, where the same graph runs
    with one: Unsupported where it speaks of shapes, EngineError where it failed otherwise."""
    text = " ".join(str(fault).split())[:500]
    if _OF_SHAPES.search(text) and not _OF_MEMORY.search(text):
        return Unsupported(f"the graph does not allow {n} inputs per call: {text}")
    return EngineError(f"with {n} inputs per call: {type(fault).__name__}: {text}")
