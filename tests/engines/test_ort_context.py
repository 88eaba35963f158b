"""EPContext graphs and provider folders, with a provider that is a few lines of Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import TensorProto, helper

from npumark.engines.base import CacheMemo, LoadRequest
from npumark.engines.catalogue import provider as row_of
from npumark.engines.model_sidecar import SIDECAR, hashes_of, read_sidecar, stamps_of
from npumark.engines.one_node import one_node_model
from npumark.engines.ort_context import CONTEXT, compiled_nodes, open_cached
from npumark.engines.ort_session import REWRITES, create
from npumark.errors import EngineError, Unsupported

GRAPH = b"a graph"


class Opened:
    """A session: of which file, and what was assigned."""

    def __init__(self, graph: Path, nodes: list[tuple[str, str, str]]) -> None:
        self.name, self.contents = graph.name, graph.read_bytes()
        self._nodes = nodes

    def get_provider_graph_assignment_info(self) -> list[Any]:
        return [
            SimpleNamespace(
                ep_name=p, get_nodes=lambda o=o, n=n: [SimpleNamespace(op_type=o, name=n)]
            )
            for p, o, n in self._nodes
        ]


@dataclass
class Provider:
    """Compiles to an EPContext graph (``contexts``), or ``fills`` a folder; ``breaks`` at loading
    the former."""

    contexts: bool = True
    fills: bool = False
    breaks: bool = False
    compiled: int = 0
    folders: list[Path | None] = field(default_factory=list)

    def build(self, graph: Path, cache: Path | None, config: Mapping[str, str]) -> Opened:
        self.folders.append(cache)
        if graph.name == CONTEXT:
            if self.breaks:
                raise RuntimeError("an empty path to the context")
            return Opened(graph, [("P", "EPContext", "whole")])
        if "ep.context_enable" in config:
            assert config["ep.context_embed_mode"] == "0"
            self.compiled += 1
            if self.contexts:
                path = Path(config["ep.context_file_path"])
                path.write_bytes(b"compiled " + graph.read_bytes())
                path.with_name("context_p.bin").write_bytes(b"code")
        if self.fills and cache is not None and not (cache / "engine").exists():
            self.compiled += "ep.context_enable" not in config
            (cache / "engine").write_bytes(graph.read_bytes())
        return Opened(graph, [("P", "MatMul", "mm0"), ("CPU", "Hardmax", "h")])


@pytest.fixture
def request_(tmp_path: Path) -> LoadRequest:
    graph = tmp_path / "graph.onnx"
    graph.write_bytes(GRAPH)
    return LoadRequest(
        engine_id="ort-p-npu",
        workload_id="w",
        graph=graph,
        encoding="fp16",
        format="FP16",
        inputs=(),
        outputs=(),
        threads=1,
        options={"cache": True},
        cache_dir=tmp_path / "entry",
    )


def again(request: LoadRequest) -> LoadRequest:
    """Return the request as a later worker has it."""
    return replace(request, cache_memo=CacheMemo())


def reseal(folder: Path) -> None:
    """Make the sidecar say that what lies there now is what was compiled."""
    was = read_sidecar(folder / SIDECAR)
    files = hashes_of(folder, stamps_of(folder / was.models, folder))
    replace(was, files=files).write(folder)


def state(request: LoadRequest) -> str:
    assert request.cache_memo.use is not None
    return request.cache_memo.use.state


def test_what_is_loaded_is_the_compiled_graph_the_first_time_too(request_: LoadRequest) -> None:
    provider = Provider()
    first = open_cached(request_, "ep-context", provider.build, {})
    later = again(request_)
    second = open_cached(later, "ep-context", provider.build, {})
    assert first.contents == second.contents == b"compiled " + GRAPH
    assert (provider.compiled, state(request_), state(later)) == (1, "built", "reused")
    assert request_.cache_memo.reused() is False
    assert later.cache_memo.reused() is True


def test_what_was_assigned_when_it_was_compiled_is_kept_with_it(request_: LoadRequest) -> None:
    provider = Provider()
    open_cached(request_, "ep-context", provider.build, {})
    later = again(request_)
    assert compiled_nodes(later) is None
    open_cached(later, "ep-context", provider.build, {})
    assert compiled_nodes(later) == (("P", "MatMul", "mm0"), ("CPU", "Hardmax", "h"))


def test_a_provider_that_writes_no_context_runs_the_graph_itself(request_: LoadRequest) -> None:
    session = open_cached(request_, "ep-context", Provider(contexts=False).build, {})
    assert session.contents == GRAPH
    assert state(request_) == "unkept"
    assert request_.cache_memo.use is not None
    assert "wrote no EPContext graph" in (request_.cache_memo.use.why or "")
    assert compiled_nodes(request_) is None


def test_a_provider_that_fills_its_folder_instead_keeps_that(request_: LoadRequest) -> None:
    provider = Provider(contexts=False, fills=True)
    asked = [again(request_) for _ in range(2)]
    for each in asked:
        assert open_cached(each, "ep-context", provider.build, {}).contents == GRAPH
    assert [state(each) for each in asked] == ["built", "reused"]
    assert provider.compiled == 1
    assert compiled_nodes(asked[1]) is None


def test_a_provider_that_does_both_keeps_both(request_: LoadRequest) -> None:
    provider = Provider(fills=True)
    for made in ("built", "reused"):
        asked = again(request_)
        session = open_cached(asked, "ep-context", provider.build, {})
        assert (session.name, state(asked)) == (CONTEXT, made)
    assert provider.folders[-1] is not None
    assert {p.name for p in provider.folders[-1].iterdir()} == {CONTEXT, "context_p.bin", "engine"}


def test_a_context_that_does_not_load_runs_the_graph_itself(request_: LoadRequest) -> None:
    session = open_cached(request_, "ep-context", Provider(breaks=True).build, {})
    assert (session.contents, state(request_)) == (GRAPH, "unkept")


def test_a_context_that_no_longer_loads_is_compiled_again(request_: LoadRequest) -> None:
    provider = Provider()
    open_cached(request_, "ep-context", provider.build, {})
    (context,) = Path(str(request_.cache_dir)).glob(f"models-*/{CONTEXT}")
    context.write_bytes(b"another graph")
    later = again(request_)
    session = open_cached(later, "ep-context", provider.build, {})
    assert (session.contents, state(later)) == (b"compiled " + GRAPH, "rebuilt")
    assert provider.compiled == 2


@pytest.mark.parametrize("kind", ["ep-context", "folder"])
def test_other_options_compile_again(request_: LoadRequest, kind: Any) -> None:
    provider = Provider(fills=kind == "folder")
    open_cached(request_, kind, provider.build, {"options": {"soc": "60"}})
    later = again(request_)
    open_cached(later, kind, provider.build, {"options": {"soc": "88"}})
    assert (provider.compiled, state(later)) == (2, "rebuilt")


def test_a_folder_is_the_providers_own_to_fill(request_: LoadRequest) -> None:
    provider = Provider(fills=True)
    for made in (1, 1):
        asked = again(request_)
        assert open_cached(asked, "folder", provider.build, {}).contents == GRAPH
        assert provider.compiled == made
    assert state(asked) == "reused"
    assert all(f is not None and f.parent == request_.cache_dir for f in provider.folders)


@pytest.mark.parametrize("kind", ["ep-context", "folder"])
def test_a_session_apart_makes_nothing(request_: LoadRequest, kind: Any) -> None:
    provider = Provider(fills=kind == "folder")
    session = open_cached(request_, kind, provider.build, {}, apart=True)
    assert (session.contents, provider.compiled, provider.folders) == (GRAPH, 0, [None])
    assert request_.cache_memo.use is None
    open_cached(request_, kind, provider.build, {})
    session = open_cached(request_, kind, provider.build, {}, apart=True)
    assert session.name == (CONTEXT if kind == "ep-context" else "graph.onnx")
    assert provider.compiled == 1
    if kind == "folder":
        assert provider.folders[-1] == provider.folders[-2]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("none", {}),
        ("ep-context", {"options": {"cache": False}}),
        ("folder", {"cache_dir": None}),
    ],
)
def test_without_a_cache_the_graph_is_loaded(
    request_: LoadRequest, kind: Any, changes: dict[str, Any]
) -> None:
    provider = Provider()
    asked = replace(request_, **changes)
    assert open_cached(asked, kind, provider.build, {}).contents == GRAPH
    assert (provider.compiled, provider.folders) == (0, [None])
    assert asked.cache_memo.reused() is None


def test_a_graph_that_fails_fails(request_: LoadRequest) -> None:
    def build(*_: Any) -> Any:
        raise EngineError("the graph is broken")

    for kind in ("none", "ep-context", "folder"):
        with pytest.raises(EngineError, match="the graph is broken"):
            open_cached(again(request_), kind, build, {})


def test_what_a_provider_told_when_it_compiled_is_kept_with_the_model(
    request_: LoadRequest,
) -> None:
    for provider in (Provider(), Provider(contexts=False, fills=True)):
        asked = replace(again(request_), cache_dir=request_.graph.parent / str(provider.contexts))
        told: list[Path] = []

        def tell(folder: Path, told: list[Path] = told) -> Mapping[str, Any]:
            told.append(folder)
            return {"report": sorted(path.name for path in folder.iterdir())}

        open_cached(asked, "ep-context", provider.build, {}, told=tell)
        later = again(asked)
        open_cached(later, "ep-context", provider.build, {}, told=tell)
        assert state(later) == "reused"
        assert len(told) == 1
        assert asked.cache_memo.facts["report"]
        assert later.cache_memo.facts["report"] == asked.cache_memo.facts["report"]


def _foreign_context() -> bytes:
    """Return an EPContext graph of a provider that is not here."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    node = helper.make_node(
        "EPContext",
        ["x"],
        ["y"],
        domain="com.microsoft",
        main_context=1,
        embed_mode=1,
        ep_cache_context=b"code",
        source="AnotherExecutionProvider",
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


def test_a_context_that_onnx_runtime_has_no_taker_for_is_compiled_again(
    request_: LoadRequest,
) -> None:
    """What the real runtime says of it is what it says of a graph that it cannot run."""
    pytest.importorskip("onnxruntime")
    request_.graph.write_bytes(one_node_model())
    row = row_of("ort-cpu")
    assert row is not None
    writes = [_foreign_context(), one_node_model()]
    said: list[str] = []

    def build(graph: Path, cache: Path | None, config: Mapping[str, str]) -> Any:
        del cache
        if "ep.context_enable" in config:
            Path(config["ep.context_file_path"]).write_bytes(writes.pop(0))
        try:
            return create(str(graph), row, {"route": "name"}, {}, threads=1)
        except Unsupported as fault:
            said.append(str(fault))
            raise

    asked = [again(request_) for _ in range(3)]
    # As it is compiled: no provider takes it, and the graph itself runs.
    assert open_cached(asked[0], "ep-context", build, {}).get_inputs()[0].name == "x"
    assert state(asked[0]) == "unkept"
    assert len(said) == 1
    assert "EPContext" in said[0]
    # Later: a model that was sound is one of another provider now, by hash and all.
    open_cached(asked[1], "ep-context", build, {})
    assert state(asked[1]) == "built"
    (context,) = Path(str(request_.cache_dir)).glob(f"models-*/{CONTEXT}")
    context.write_bytes(_foreign_context())
    reseal(Path(str(request_.cache_dir)))
    writes.append(one_node_model())
    open_cached(asked[2], "ep-context", build, {})
    assert state(asked[2]) == "rebuilt"
    assert asked[2].cache_memo.use is not None
    assert "EPContext" in (asked[2].cache_memo.use.why or "")
    assert len(said) == 2


@pytest.mark.parametrize(("kind", "kept"), [("ep-context", False), ("folder", True)])
def test_a_provider_adds_to_the_folder_it_fills_and_to_no_compiled_graph(
    request_: LoadRequest, kind: Any, kept: bool
) -> None:
    provider = Provider(contexts=kind == "ep-context", fills=True)
    asked = [again(request_) for _ in range(3)]
    for each in asked[:2]:
        open_cached(each, kind, provider.build, {})
    (engine,) = Path(str(request_.cache_dir)).glob("models-*/engine")
    engine.with_name("another").write_bytes(b"more")
    asked[1].cache_memo.settle()
    open_cached(asked[2], kind, provider.build, {})
    assert state(asked[2]) == ("reused" if kept else "built")


@pytest.mark.parametrize(("name", "kept"), [("sm86.timing", True), ("g.engine", False)])
def test_of_tensorrts_files_the_timings_alone_may_change(
    request_: LoadRequest, name: str, kept: bool
) -> None:
    def build(graph: Path, cache: Path | None, config: Mapping[str, str]) -> Opened:
        del config
        assert cache is not None
        for made in ("sm86.timing", "g.engine"):
            if not (cache / made).exists():
                (cache / made).write_bytes(b"0")
        return Opened(graph, [])

    asked = [again(request_) for _ in range(3)]
    for each in asked[:2]:
        open_cached(each, "folder", build, {}, rewrites=REWRITES["ort-tensorrt"])
    (path,) = Path(str(request_.cache_dir)).glob(f"models-*/{name}")
    path.write_bytes(b"1")
    asked[1].cache_memo.settle()
    open_cached(asked[2], "folder", build, {}, rewrites=REWRITES["ort-tensorrt"])
    assert state(asked[2]) == ("reused" if kept else "built")
