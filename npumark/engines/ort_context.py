"""Compiled models of ONNX Runtime's providers: EPContext graphs, and folders providers fill.

An EPContext graph is what a provider made of a graph: a small ONNX file with one node per
partition, and the compiled code beside it. It is written with ``ep.context_embed_mode`` 0, the
code in a file of its own: providers map it into memory, it has no limit of 2 GB, and the sidecar
hashes it like everything else. The names in the graph lead nowhere but into its own folder.

A provider that compiles to such a graph may keep files of its own beside it, and one that does
not write it may keep those alone: both lie in the same folder.

The graph assignment of a session that loads such a graph shows EPContext nodes alone. Which
operators they stand for is known when it is compiled, and is kept with it (``FACT``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from npumark.engines.base import LoadRequest
from npumark.engines.catalogue import Cache
from npumark.engines.model_cache import ModelCache, Recipe, model_cache
from npumark.errors import EngineError

CONTEXT = "context.onnx"
EMBED_MODE = "0"
FACT = "assigned"
"""Name of the fact: ``[provider, operator, node]`` of every node, as it was when compiled."""

Build = Callable[[Path, Path | None, Mapping[str, str]], Any]
"""Opens a session of a graph, with the folder that the provider may fill or null, and further
configuration entries."""

Told = Callable[[Path], Mapping[str, Any]]
"""Returns what a provider left to read in its folder when it compiled, as facts."""


def open_cached(
    request: LoadRequest,
    kind: Cache,
    build: Build,
    settings: Mapping[str, Any],
    *,
    apart: bool = False,
    told: Told | None = None,
    rewrites: tuple[str, ...] = (),
) -> Any:
    """Return the session that ``build`` opens, through the request's compiled model if it keeps
    one.

    ``settings`` are what it is compiled with. A session ``apart`` (a profiled one) opens
    what there is and makes nothing. ``told`` adds to the facts that are kept with an EPContext
    graph. ``rewrites`` are patterns of the names of files that a provider writes again each time
    in the folder that it fills; to an EPContext graph nothing is added once it is compiled.
    """
    cache = None if kind == "none" else model_cache(request, settings)
    if cache is None:
        return build(request.graph, None, {})
    if kind == "ep-context":
        return _through_context(request.graph, cache, build, apart=apart, told=told)
    if apart:
        return build(request.graph, cache.verified(), {})
    recipe = Recipe(lambda folder: build(request.graph, folder, {}), rewrites=rewrites)
    return cache.open(recipe)


def compiled_nodes(request: LoadRequest) -> tuple[tuple[str, str, str], ...] | None:
    """Return ``(provider, operator, node)`` of every node of the graph that a loaded EPContext
    graph stands for; null where none was loaded, or compiling did not tell."""
    nodes = request.cache_memo.facts.get(FACT)
    return None if nodes is None else tuple((str(p), str(o), str(n)) for p, o, n in nodes)


def _through_context(
    graph: Path, cache: ModelCache, build: Build, *, apart: bool, told: Told | None
) -> Any:
    def load(folder: Path | None) -> Any:
        context = None if folder is None else folder / CONTEXT
        return build(context if context is not None and context.is_file() else graph, folder, {})

    def compile_into(folder: Path) -> Mapping[str, Any]:
        session = build(
            graph,
            folder,
            {
                "ep.context_enable": "1",
                "ep.context_file_path": str(folder / CONTEXT),
                "ep.context_embed_mode": EMBED_MODE,
            },
        )
        facts = dict(told(folder)) if told is not None else {}
        if (folder / CONTEXT).is_file():
            return {FACT: _assigned(session), **facts}
        if not any(folder.iterdir()):
            raise EngineError("the provider wrote no EPContext graph")
        return facts  # it has files of its own, and finds them again when it loads the graph

    if apart:
        return load(cache.verified())
    return cache.open(Recipe(load, compile=compile_into, adds=False))


def _assigned(session: Any) -> list[list[str]] | None:
    try:
        told = session.get_provider_graph_assignment_info()
    except Exception:  # noqa: BLE001 - absent before 1.24, and raises where not recorded
        return None
    return [
        [str(part.ep_name), str(node.op_type), str(node.name)]
        for part in told
        for node in part.get_nodes()
    ]
