"""The board: which figures it shows, in which order, page by page, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, delete, event, insert, select

from npumark.server import facets
from npumark.server.board import Board, Filters, board
from npumark.server.board_lines import Sort
from npumark.server.cursor import Cursor
from npumark.server.database import reading, writing
from npumark.server.processor_lists import processor_list, processor_page
from npumark.server.refusal import Refused
from npumark.server.store import Store
from npumark.server.tables import facets as facets_table
from npumark.server.tables import figures, keys, machines, processors, results
from tests.server.conftest import config_of

SERIES = {"score_version": "3.2", "suite": "open 1", "edition": "seeded"}


class Filled:
    """A store whose tables are written to directly."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._leaf = 0
        with writing(store.engine) as c:
            c.execute(insert(machines).values(machine="m" * 64, first_seen=0))
            c.execute(
                insert(keys).values(key_id="k", public_key="x", machine="m" * 64, registered_at=0)
            )

    def processor(self, name: str, role: str = "CPU", runs: int = 1) -> int:
        with writing(self.store.engine) as c:
            slug = f"{role}-{name}".lower().replace(" ", "-")
            values = {"name": name, "folded": name.casefold(), "role": role, "runs": runs}
            done = c.execute(insert(processors).values(slug=slug, **values))
            return int(done.inserted_primary_key[0])  # type: ignore[index]

    def result(self, *of: dict[str, Any], **row: Any) -> str:
        """Add a result with these figures; return its name."""
        n, self._leaf = self._leaf, self._leaf + 1
        name = row.pop("id", f"{'abcdefghijklmnop'[n % 16]}{'a' * 12}{n:03d}".translate(_BASE32))
        ranked = row.get("ranked", True)
        series = {k: row.get(k, v) for k, v in SERIES.items()}
        values = {
            "id": name,
            "leaf_index": n,
            "run_id": f"run{n}",
            "payload_sha256": f"{n:064x}",
            "record_sha256": "0" * 64,
            "key_id": "k",
            "machine": f"{n:064x}",
            "received_at": 1000 + n,
            "trust": "release",
            "attestation": "unattested",
            "created": "2026-12-01T00:00:00Z",
            "tool_version": "1",
            "os": "linux",
            "tops": 1.0,
            "label": "label",
            "quick": False,
            "comparable": True,
            "unstable": False,
            "not_ranked_because": [] if ranked else ["quick"],
            "ranked": ranked,
            "rules_sha256": "0" * 64,
            "verified_at": 0,
            "faults": [],
            "receipt": b"{}",
            **series,
            **row,
        }
        rows = [
            {
                "result_id": name,
                "received_at": values["received_at"],
                "ranked": ranked,
                "os": values["os"],
                "engine": "ort-cpu",
                "workload": "peak-512x2048x8",
                "unstable": False,
                "delivered": None,
                "role": "CPU",
                "runtime": "ONNX Runtime",
                "format": "INT8",
                "level": facets.RUN,
                **series,
                "label": own.get("format", "INT8"),
                **own,
            }
            for own in of
        ]
        with writing(self.store.engine) as c:
            c.execute(insert(results).values(**values))
            facets.put(c, rows)
        return str(name)

    def board(
        self, sort: Sort = "tops", cursor: str | None = None, limit: int = 50, **of: Any
    ) -> Board:
        with reading(self.store.engine) as c:
            return board(c, Filters(**of), sort, cursor, limit)


_BASE32 = str.maketrans("0189", "yzxw")


def figure(processor_id: int, tops: float, **of: Any) -> dict[str, Any]:
    return {"processor_id": processor_id, "tops": tops, **of}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A store of either kind for all tests of this module; each finds it empty."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('board') / 'server.sqlite'}"
    else:
        url = request.getfixturevalue("cluster").database()
    store = Store(config_of(url))
    store.open()
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def filled(shared: Store) -> Filled:
    with writing(shared.engine) as c:
        for table in (figures, facets_table, results, processors, keys, machines):
            c.execute(delete(table))
    return Filled(shared)


def tops(found: Board) -> list[float]:
    return [line.tops for line in found.lines]


def test_an_empty_server_has_an_empty_board(filled: Filled) -> None:
    found = filled.board()
    assert (found.lines, found.total, found.series) == ((), 0, None)


def test_a_run_stands_for_itself_unless_something_is_filtered_by(filled: Filled) -> None:
    cpu, npu = filled.processor("A"), filled.processor("B", "NPU")
    filled.result(
        figure(processor_id=npu, role="NPU", runtime="OpenVINO", tops=9.0, level=facets.RUN),
        figure(processor_id=npu, role="NPU", runtime="OpenVINO", tops=8.0, level=0, format="FP16"),
        figure(processor_id=cpu, tops=5.0, level=facets.ROLE),
        figure(processor_id=cpu, runtime="OpenVINO", tops=4.0, level=facets.ENGINE),
        figure(processor_id=cpu, runtime="OpenVINO", tops=3.0, level=0, format="FP32"),
    )
    assert tops(filled.board()) == [9.0]
    assert tops(filled.board(role="CPU")) == [5.0]
    assert tops(filled.board(runtime="OpenVINO")) == [9.0, 4.0]
    assert tops(filled.board(runtime="OpenVINO", role="CPU")) == [4.0]
    assert tops(filled.board(format="FP32")) == [3.0]
    assert tops(filled.board(format="INT8", runtime="ONNX Runtime")) == [5.0]
    assert tops(filled.board(os="windows")) == []


def test_what_is_not_ranked_shows_only_when_asked_for_and_with_its_reasons(filled: Filled) -> None:
    cpu = filled.processor("A")
    filled.result(figure(processor_id=cpu, tops=1.0))
    filled.result(figure(processor_id=cpu, tops=2.0), ranked=False)
    assert [(line.tops, line.position) for line in filled.board().lines] == [(1.0, 1)]
    every = filled.board(everything=True)
    assert [(line.tops, line.position) for line in every.lines] == [(2.0, None), (1.0, None)]
    assert every.lines[0].not_ranked_because == ("quick",)


def test_series_never_stand_in_one_board(filled: Filled) -> None:
    cpu = filled.processor("A")
    filled.result(figure(processor_id=cpu, tops=1.0))
    filled.result(figure(processor_id=cpu, tops=2.0), edition="trained")
    filled.result(figure(processor_id=cpu, tops=2.5), edition="trained")
    filled.result(figure(processor_id=cpu, tops=3.0), score_version="3.10")
    filled.result(figure(processor_id=cpu, tops=4.0), suite="open 2", score_version="3.1")
    assert tops(filled.board()) == [3.0]  # the newest score version: 3.10 is after 3.2
    assert tops(filled.board(score_version="3.2")) == [2.5, 2.0]  # the larger edition
    assert tops(filled.board(score_version="3.2", edition="seeded")) == [1.0]
    assert tops(filled.board(suite="open 2")) == [4.0]
    assert len(filled.board().choices.series) == 4


def test_the_order_is_by_tops_by_delivered_or_the_newest_first(filled: Filled) -> None:
    cpu = filled.processor("A")
    filled.result(figure(processor_id=cpu, tops=3.0, delivered=0.1))
    filled.result(figure(processor_id=cpu, tops=1.0, delivered=0.3))
    filled.result(figure(processor_id=cpu, tops=2.0))
    assert tops(filled.board("tops")) == [3.0, 2.0, 1.0]
    assert tops(filled.board("delivered")) == [1.0, 3.0]  # one has no figure to be ranked by
    newest = filled.board("newest")
    assert [(line.tops, line.position) for line in newest.lines] == [
        (2.0, None),
        (1.0, None),
        (3.0, None),
    ]


@pytest.mark.parametrize("q", ["", "ryzen"])
@pytest.mark.parametrize("sort", ["tops", "delivered", "newest"])
def test_pages_follow_each_other_both_ways_over_many_facets_and_ties(
    filled: Filled, sort: Sort, q: str
) -> None:
    cpu = filled.processor("Ryzen 9")
    for n in range(23):
        # Every third has the value of its neighbour, in another facet.
        value = float(n // 3)
        filled.result(
            figure(processor_id=cpu, tops=value, delivered=value), os=("linux", "windows")[n % 2]
        )
    whole = [line.result_id for line in filled.board(sort, q=q).lines]
    assert len(whole) == 23
    pages, cursor = [], None
    while True:
        page = filled.board(sort, cursor, 5, q=q)
        pages.append(page)
        cursor = page.next
        if cursor is None:
            break
    assert [line.result_id for page in pages for line in page.lines] == whole
    assert [page.total for page in pages] == [23] * 5
    assert pages[0].previous is None
    back = filled.board(sort, pages[-1].previous, 5, q=q)
    assert back.lines == pages[-2].lines
    first = filled.board(sort, pages[1].previous, 5, q=q)
    assert (first.lines, first.previous) == (pages[0].lines, None)


def test_a_page_stays_what_it_is_while_results_arrive(filled: Filled) -> None:
    cpu = filled.processor("A")
    for value in (1.0, 2.0, 3.0, 4.0):
        filled.result(figure(processor_id=cpu, tops=value))
    first = filled.board(limit=2)
    filled.result(figure(processor_id=cpu, tops=9.0))
    assert tops(filled.board(cursor=first.next, limit=2)) == [2.0, 1.0]
    assert tops(filled.board(limit=2)) == [9.0, 4.0]


def test_the_search_finds_parts_of_names_in_any_case(filled: Filled) -> None:
    one, other = filled.processor("AMD Ryzen 9"), filled.processor("100% Intel_Core")
    filled.result(figure(processor_id=one, tops=1.0))
    named = filled.result(figure(processor_id=other, tops=2.0))
    for q, found in {
        "RYZEN": [1.0],
        "core": [2.0],
        "%": [2.0],  # no pattern
        "l_c": [2.0],
        "d_r": [],
        "' OR 1=1 --": [],
        "\x00": [2.0, 1.0],  # nothing printable: everything
        named[:6]: [2.0],
    }.items():
        assert tops(filled.board(q=q)) == found, q


def test_a_search_counts_no_further_than_it_says(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = filled.processor("A")
    for _ in range(4):
        filled.result(figure(processor_id=cpu, tops=1.0))
    assert (filled.board(q="a").total, filled.board(q="a").more) == (4, False)
    monkeypatch.setattr("npumark.server.board.MOST_COUNTED", 3)
    assert (filled.board(q="a").total, filled.board(q="a").more) == (3, True)


GOOD = Cursor("tops", 1.5, 7, 3, backwards=False)


def test_a_cursor_comes_back_as_it_went() -> None:
    assert Cursor.read(GOOD.write(), "tops") == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "!!!",
        "e30",
        "x" * 5000,
        Cursor("newest", 1, 7, 3, backwards=False).write(),
        Cursor("tops", float("inf"), 7, 3, backwards=False).write(),
        Cursor("tops", float("nan"), 7, 3, backwards=False).write(),
        Cursor("tops", 1e300, 7, 3, backwards=False).write(),
        Cursor("tops", 1.0, -7, 3, backwards=False).write(),
        Cursor("tops", 1.0, 2**63, 3, backwards=False).write(),
        Cursor("tops", True, 7, 3, backwards=False).write(),
    ],
)
def test_any_other_cursor_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        Cursor.read(text, "tops")
    assert refused.value.fault.code == "wrong_form"


def test_figures_that_are_dropped_are_counted_down(filled: Filled) -> None:
    cpu = filled.processor("A")
    gone = filled.result(figure(processor_id=cpu, tops=2.0))
    filled.result(figure(processor_id=cpu, tops=1.0))
    with writing(filled.store.engine) as c:
        facets.drop(c, [gone, "unknown"])
    assert (tops(filled.board()), filled.board().total) == ([1.0], 1)


def test_what_no_version_knows_is_filed_under_other(filled: Filled) -> None:
    cpu = filled.processor("A")
    for n in range(5):
        filled.result(figure(processor_id=cpu, tops=1.0, runtime=f"Mine {n}", format=f"F{n}"))
    assert filled.board().choices.runtimes == ("other",)
    assert len(filled.board(format="other").lines) == 5


def test_a_processor_s_machines_each_count_once(filled: Filled) -> None:
    cpu = filled.processor("A B")
    for value in (1.0, 2.0, 9.0):
        filled.result(figure(processor_id=cpu, tops=value), machine="one")
    filled.result(
        figure(processor_id=cpu, tops=4.0, delivered=1.0),
        figure(processor_id=cpu, tops=2.0, format="FP32", level=0),
        machine="two",
    )
    filled.result(figure(processor_id=cpu, tops=99.0), ranked=False)
    with reading(filled.store.engine) as c:
        found = processor_page(c, "cpu-a-b", Filters())
    assert found is not None
    assert (found.peaks, found.median, found.runs, found.cut) == ((4.0, 2.0), 3.0, 4, False)
    assert [(e.format, e.tops, e.delivered, e.machines) for e in found.engines] == [
        ("INT8", 3.0, 1.0, 2),
        ("FP32", 2.0, None, 1),
    ]


def test_processors_are_listed_by_how_many_results_they_have(filled: Filled) -> None:
    for name, runs in (("A", 1), ("B", 3), ("C", 0)):
        filled.processor(name, runs=runs)
    with reading(filled.store.engine) as c:
        assert [line.name for line in processor_list(c, "").lines] == ["B", "A"]
        assert [line.name for line in processor_list(c, "a").lines] == ["A"]
        assert processor_page(c, "cpu-x", Filters()) is None
        assert processor_page(c, "\x00", Filters()) is None


@contextmanager
def statements(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    """Collect what is executed, as the database gets it."""
    seen: list[tuple[str, Any]] = []

    def keep(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", keep)
    yield seen
    event.remove(connection, "before_cursor_execute", keep)


LARGE = ("figures", "results", "bodies")


def scanned(connection: Connection, statement: str, parameters: Any) -> list[str]:
    """Return the steps of a statement's plan that read a large table from end to end, even
    though they are as unwelcome to the planner as they can be made."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        steps = [str(row[3]) for row in rows]
        return [
            step
            for step in steps
            if step.startswith("SCAN")
            and any(name in step.split() for name in (*LARGE, "found", "head"))
        ]
    connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
    rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
    return [row[0] for row in rows if any(f"Seq Scan on {name}" in row[0] for name in LARGE)]


@pytest.mark.parametrize("sort", ["tops", "delivered", "newest"])
def test_no_page_of_the_board_scans_a_large_table(filled: Filled, sort: Sort) -> None:
    cpu = filled.processor("Ryzen")
    for n in range(30):
        filled.result(
            figure(processor_id=cpu, tops=float(n), delivered=1.0), os=("linux", "macos")[n % 2]
        )
    with reading(filled.store.engine) as c, statements(c) as seen:
        for q in ("", "ryzen", "abcd"):
            for asked in (Filters(q=q), Filters(q=q, role="CPU", os="linux", format="INT8")):
                page = board(c, asked, sort, None, 5)
                for cursor in filter(None, (page.next, page.previous)):
                    board(c, asked, sort, cursor, 5)
        processor_page(c, "cpu-ryzen", Filters())
        asked_for = list(seen)
        assert len(asked_for) > 12
        for statement, parameters in asked_for:
            assert scanned(c, statement, parameters) == [], statement


def test_a_scan_of_a_large_table_would_show(filled: Filled) -> None:
    with reading(filled.store.engine) as c, statements(c) as seen:
        c.execute(select(figures).where(figures.c.engine == "x")).all()
        [(statement, parameters)] = list(seen)
        assert scanned(c, statement, parameters)
