"""The pages and the read API on a whole app: what they say, and that they say it safely."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from npumark.record.envelope import Receipt
from npumark.record.model import Check, Payload
from npumark.report.catalog import Catalog
from npumark.server import web
from npumark.server.api.board import _cell
from npumark.server.app import create_app
from npumark.server.charts import Dot, bar, bins, dots, histogram
from npumark.server.comparison import compare
from npumark.server.database import writing
from npumark.server.reverify import OTHER_RULES
from npumark.server.store import Store
from npumark.server.tables import results
from npumark.server.web.computer import facts, state, violations
from npumark.server.web.entry_view import entry_view, latency
from npumark.server.web.page_cache import PageCache
from npumark.server.web.pages import query
from npumark.server.web.result_view import result_view
from npumark.server.web.standing import reason_words
from tests import forge
from tests.server import populated
from tests.server.conftest import config_of
from tests.server.populated import NASTY, Shown
from tests.server.stored import new_result, registration, withdrawal


class Client:
    """Asks an app for pages, without a socket."""

    def __init__(self, app: FastAPI) -> None:
        self._transport = httpx.ASGITransport(app)

    def get(
        self,
        address: str,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url=f"https://{forge.ORIGIN}"
            ) as client:
                return await client.get(address, params=params, headers=headers)

        return asyncio.run(asked())


class Site:
    """An app over a populated store, and what is in it."""

    def __init__(self, client: Client, store: Store, shown: Shown) -> None:
        self.client = client
        self.store = store
        self.shown = shown

    def page(self, address: str, status: int = 200) -> str:
        answer = self.client.get(address)
        assert answer.status_code == status, answer.text[:500]
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    def json(self, address: str, status: int = 200) -> Any:
        answer = self.client.get(address)
        assert answer.status_code == status, answer.text[:500]
        return answer.json()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    store = Store(config_of(f"sqlite:///{place / 'server.sqlite'}"), now=forge.NOW.timestamp)
    store.open()
    store.migrate()
    shown = populated.populate(store)
    app = create_app(store.config, store, now=forge.NOW.timestamp)
    yield Site(Client(app), store, shown)
    store.close()


class Outline(HTMLParser):
    """What of a page matters to those who do not see it; and every element and attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.controls: list[str] = []
        self.labels: list[str] = []
        self.attributes: set[str] = set()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes |= of.keys()
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.ids += [of["id"]] if "id" in of else []
        self.refers += of.get("aria-labelledby", "").split()
        if tag in ("select", "input") and of.get("type") != "hidden" and "aria-label" not in of:
            self.controls.append(of.get("id", ""))
        if tag == "label":
            self.labels.append(of.get("for", ""))


PAGES = ("/", "/?all=1", "/processors", "/compare", "/methodology", "/results/{cards}",
         "/results/{nasty}", "/results/{quick}", "/compare?id={cards}&id={cpu}&id={nasty}",
         "/processors/cpu-amd-ryzen-9-7950x", "/?q=nothing-of-that-name")  # fmt: skip


def every_page(site: Site) -> Iterator[tuple[str, str]]:
    for address in PAGES:
        yield address, site.page(address.format(**vars_of(site.shown)))
    yield "404", site.page("/results/aaaaaaaaaaaaaaaa", 404)


def vars_of(shown: Shown) -> dict[str, str]:
    return {name: getattr(shown, name) for name in ("cards", "cpu", "quick", "nasty")}


def test_every_page_can_be_found_through_without_seeing_it(site: Site) -> None:
    for address, text in every_page(site):
        page = Outline(text)
        assert page.headings[0] == 1, address
        assert page.headings.count(1) == 1, address
        steps = zip(page.headings, page.headings[1:], strict=False)
        assert all(after - before <= 1 for before, after in steps), (address, page.headings)
        assert len(page.ids) == len(set(page.ids)), address
        assert set(page.refers) <= set(page.ids), address
        assert set(page.controls) <= set(page.labels), address
        assert text.index('href="#main"') < text.index("<main"), address


def test_no_page_has_a_script_or_a_style_of_its_own(site: Site) -> None:
    for address, text in every_page(site):
        page = Outline(text)
        handlers = {name for name in page.attributes if name.startswith("on") or name == "style"}
        assert handlers == set(), address
        assert "style" not in page.tags, address
        assert page.tags.count("script") == text.count('<script src="/static/site.js?'), address


def test_what_a_record_says_is_shown_escaped_and_its_direction_kept_to_itself(site: Site) -> None:
    for address in ("/results/{nasty}", "/?all=1&suite=", "/compare?id={nasty}&id={cpu}"):
        text = site.page(address.format(**vars_of(site.shown)))
        assert "<b " not in text, address
        assert "{{7*7}}" in text or address.startswith("/?"), address
        assert "49" not in re.sub(r"[0-9a-f]{16,}|[\d.,]+", "", text), address
    text = site.page(f"/results/{site.shown.nasty}")
    for found in re.finditer(re.escape("&lt;b onclick"), text):
        before = text[: found.start()]
        in_bdi = before.rfind("<bdi") > before.rfind("</bdi")
        in_title = before.rfind("<title") > before.rfind("</title")
        in_attribute = before.rfind('="') > before.rfind(">")
        in_item = before.rfind("<li>") > before.rfind("</li>")
        assert in_bdi or in_title or in_attribute or in_item, text[found.start() - 80 :][:160]


@pytest.mark.parametrize("q", ["<script>alert(1)</script>", "' OR 1=1 --", "\u202e🚀", "{{7*7}}"])
def test_what_is_searched_for_is_shown_escaped(site: Site, q: str) -> None:
    text = site.client.get("/", params={"q": q, "role": q}).text
    assert "<script>alert" not in text
    assert Outline(text).tags.count("script") == 1


def test_the_result_page_holds_all_that_speaks_for_a_result(site: Site) -> None:
    shown = site.shown
    text = site.page(f"/results/{shown.cards}")
    row = site.store.result(shown.cards)
    assert row is not None
    for needed in (
        "95.3",
        row.record_sha256,
        row.payload_sha256,
        row.rules_sha256,
        row.key_id,
        "unattested",
        "a release build",
        "All at once",
        "Large-batch peak",
        "ResNet-50",
        f"npumark verify npumark-{shown.cards}.json --receipt npumark-{shown.cards}.receipt.json",
        f"/api/v1/results/{shown.cards}/record",
        f'/api/v1/results/{shown.cards}/receipt" download="npumark-{shown.cards}.receipt.json"',
        f"/api/v1/results/{shown.cards}/proof",
        'href="/processors/npu-intel-ai-boost"',
    ):
        assert needed in text, needed
    assert "not ranked" not in text
    assert "Under the present rules" not in text


def test_a_record_and_its_receipt_download_as_files_that_verify_takes(site: Site) -> None:
    name = f"npumark-{site.shown.cards}"
    address = f"/api/v1/results/{site.shown.cards}"
    record = site.client.get(f"{address}/record")
    receipt = site.client.get(f"{address}/receipt")
    assert f'filename="{name}.json"' in record.headers["content-disposition"]
    assert f'filename="{name}.receipt.json"' in receipt.headers["content-disposition"]
    row = site.store.result(site.shown.cards)
    assert row is not None
    assert receipt.content == row.receipt
    digest = hashlib.sha256(record.content).hexdigest()
    assert Receipt.model_validate_json(receipt.content).record_sha256 == digest


def test_a_fresh_board_says_how_to_submit_and_one_without_a_rank_where_results_are(
    sqlite_store: Store,
) -> None:
    client = Client(create_app(sqlite_store.config, sqlite_store, now=forge.NOW.timestamp))
    command = f"npumark submit --server https://{forge.ORIGIN}"
    fresh = client.get("/").text
    assert "No result was submitted yet." in fresh
    assert command in fresh
    sqlite_store.register_key(registration())
    sqlite_store.accept(new_result(ranked=False, not_ranked_because=["quick"]))
    unranked = client.get("/").text
    assert "Nothing is ranked yet." in unranked
    assert "clear the filter" not in unranked
    assert command in unranked
    assert "clear the filter" in client.get("/?q=nothing").text


def test_the_computer_is_told_in_words_with_units_and_nothing_twice() -> None:
    checks = {
        "cpu_busy": Check(value=1.0, why=None, violation=True),
        "memory": Check(
            value={"available_bytes": 23_606_243_328, "needed_bytes": 301_989_888},
            why=None,
            violation=False,
        ),
        "clocks": Check(
            value={"current_khz": {"min": 3_000_000, "max": 5_400_000}, "boost": True},
            why=None,
            violation=False,
        ),
        "throttling": Check(
            value={"before": {"a": 7}, "in_window": {"a": 0}}, why=None, violation=False
        ),
        "cpu_limits": Check(value={"usable": 4, "logical": 32}, why=None, violation=False),
        "kernel": Check(value="6.14", why=None, violation=False),
        "of the future": Check(value=[{"x": 1}, None], why=None, violation=False),
    }
    assert dict(state(checks, beside={"kernel": "6.14"})) == {
        "processor busy before the run": "100 %",
        "memory": "available 23.6 GB, needed 302.0 MB",
        "clocks": "current 3.00 GHz to 5.40 GHz, boost yes",
        "throttled before the run": "no",
        "processors that may be used": "4 of 32",
        "of the future": "x 1, unknown",
    }
    assert list(violations(checks)) == ["processor busy before the run: 100 %"]
    known = {"memory_bytes": 68_719_476_736, "isa": ["avx2", "fma"], "boot": None, "why": {}}
    assert dict(facts(known)) == {"memory": "68.7 GB", "instruction sets": "avx2, fma"}


@pytest.mark.parametrize("value", ["hot", [], {"available_bytes": "x"}, {"in_window": 3}, True])
def test_a_check_of_another_form_is_shown_as_it_is(value: Any) -> None:
    names = ("cpu_busy", "memory", "throttling", "cpu_limits", "thermal")
    checks = {name: Check(value=value, why=None, violation=True) for name in names}
    assert len(list(violations(checks))) == len(names)


def test_what_was_not_quiet_is_named() -> None:
    run = forge.forge_payload()
    busy = {"cpu_busy": Check(value=0.87, why=None, violation=True)}
    environment = run.environment.model_copy(update={"checks": busy, "noisy": True})
    noisy = run.model_copy(update={"environment": environment, "warnings": ["noisy"]})
    view = result_view(noisy, Catalog())
    assert view.warnings == ()
    assert view.violations == ("processor busy before the run: 87 %",)
    assert compare([noisy, run]).noisy == (True, False)


def test_a_run_s_time_is_told_in_the_words_of_the_terminal_most_first() -> None:
    run = forge.forge_payload()
    spent = {"import": 1_000_000_000, "loop": 3_000_000_000, "placement": 0}
    view = result_view(run.model_copy(update={"where_time_went_ns": spent}), Catalog())
    assert view.went == (("timed loops", "3.0 s (75 %)"), ("importing runtimes", "1.0 s (25 %)"))


@pytest.mark.parametrize(
    ("ns", "text"), [(136_400_000, "136 ms"), (1_362_000_000, "1.36 s"), (43_210, "0.0432 ms")]
)
def test_a_latency_has_three_digits(ns: int, text: str) -> None:
    assert latency(ns) == text


def test_what_does_not_count_has_no_dot_that_does() -> None:
    run = forge.forge_payload()
    entry = next(e for e in run.entries if e.figure and e.stats.counted)
    lost = entry.model_copy(update={"counts": False, "why_not": "gate_failed"})
    view = entry_view(lost, "a network", "CPU", 1.0, best=False)
    assert not any(dot.counted for dot in view.dots)
    assert "<title>not counted: " in dots(view.dots, view.middle)


def test_scores_of_different_formats_are_told_apart() -> None:
    run = forge.forge_payload()
    assert run.score is not None
    other = run.model_copy(update={"score": run.score.model_copy(update={"format": "FP4"})})
    assert [(a.what, a.values[1]) for a in compare([run, other]).apart] == [
        ("score's format", "FP4")
    ]


def test_what_is_not_ranked_says_why_in_words(site: Site) -> None:
    text = site.page(f"/results/{site.shown.quick}")
    assert "This is a quick run: one short attempt each." in text
    assert "A development build made it" in text


def test_an_unknown_reason_stands_for_itself() -> None:
    assert reason_words("of_the_future") == "Of the future."
    assert reason_words("above_ceiling") == "A peak is above what the chip can compute."


def test_a_withdrawn_result_is_gone_and_an_unknown_one_not_found(
    sqlite_store: Store, site: Site
) -> None:
    shown = populated.populate(sqlite_store, others=0)
    app = create_app(sqlite_store.config, sqlite_store, now=forge.NOW.timestamp)
    client = Client(app)
    assert client.get(f"/results/{shown.cpu}").status_code == 200
    install = forge.InstallKey(bytes([1]) * 32)
    sqlite_store.withdraw(withdrawal(shown.cpu, install, "0" * 64))
    gone = client.get(f"/results/{shown.cpu}")
    assert gone.status_code == 410
    assert "withdrew it" in gone.text
    assert client.get(f"/api/v1/results/{shown.cpu}").json()["error"]["code"] == "withdrawn"
    compared = client.get(f"/compare?id={shown.cpu}&id={shown.cards}")
    assert compared.status_code == 410
    for address in ("/results/unknown", "/results/" + "a" * 16, "/processors/unknown", "/x"):
        assert site.client.get(address).status_code == 404, address


def test_a_browser_gets_a_page_where_a_program_gets_json(site: Site) -> None:
    browser = site.client.get("/nowhere", headers={"Accept": "text/html,*/*"})
    assert (browser.status_code, "<h1>Not found</h1>" in browser.text) == (404, True)
    program = site.client.get("/nowhere", headers={"Accept": "*/*"})
    assert program.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "address",
    ["/?sort=best", "/?cursor=zzz", "/?q=" + "x" * 500, "/compare?id=a&id=b&id=c&id=d&id=e"],
)
def test_an_address_that_cannot_be_read_gets_a_page_that_says_so(site: Site, address: str) -> None:
    assert "This address cannot be read" in site.page(address, 422)


def test_pages_are_not_sent_again_to_who_has_them(site: Site) -> None:
    first = site.client.get("/methodology")
    again = site.client.get("/methodology", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = site.client.get("/methodology", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200


def test_static_files_may_be_kept_for_ever_by_the_address_that_pages_give_them(site: Site) -> None:
    for address in re.findall(r'/static/[^"]+', site.page("/")):
        answer = site.client.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]


def test_the_methodology_page_names_the_policy_s_thresholds(site: Site) -> None:
    text = site.page("/methodology")
    for needed in ("fastest 3 of 5", "fastest 5 of 9", "within 2 %", "20 dB", "512×2048, 8 layers"):
        assert needed in text, needed


def test_the_board_answers_in_json_and_in_csv_alike(site: Site) -> None:
    page = site.json("/api/v1/results?limit=3")
    assert [item["position"] for item in page["items"]] == [1, 2, 3]
    assert page["total"] == {"lines": 5, "exact": True}
    assert page["items"][0]["url"] == f"https://{forge.ORIGIN}/results/{site.shown.cards}"
    more = site.json(f"/api/v1/results?limit=3&cursor={page['next']}")
    assert ([item["position"] for item in more["items"]], more["next"]) == ([4, 5], None)
    answer = site.client.get("/api/v1/results.csv?limit=3")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["result_id"] for row in rows] == [item["result_id"] for item in page["items"]]
    assert [float(row["tops"]) for row in rows] == [item["tops"] for item in page["items"]]
    following = re.fullmatch(r'<(\?[^>]+)>; rel="next"', answer.headers["link"])
    assert following is not None
    rest = site.client.get("/api/v1/results.csv" + following[1]).text
    assert len(list(csv.DictReader(io.StringIO(rest)))) == 2


def test_nothing_in_csv_is_a_formula(site: Site) -> None:
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\n=1", "＝1"):
        assert _cell(text).startswith("'"), text
    assert (_cell("a\nb"), _cell(-1.5), _cell(True), _cell(None)) == ("a b", -1.5, "true", None)
    rows = site.client.get("/api/v1/results.csv?all=1&suite=" + suite_of(site)).text
    [row] = csv.DictReader(io.StringIO(rows))
    assert row["processor"].startswith("<b onclick")


def suite_of(site: Site) -> str:
    row = site.store.result(site.shown.nasty)
    assert row is not None
    return quote(row.suite)


def test_a_summary_says_what_the_server_knows(site: Site) -> None:
    found = site.json(f"/api/v1/results/{site.shown.quick}")
    assert found["not_ranked_because"] == ["quick", "development_build"]
    assert (found["trust"], found["ranked"], found["faults"]) == ("development", False, [])


def test_processors_and_comparisons_answer_in_json(site: Site) -> None:
    listed = site.json("/api/v1/processors?q=ryzen")
    assert [line["slug"] for line in listed["items"]] == ["cpu-amd-ryzen-9-7950x"]
    one = site.json("/api/v1/processors/cpu-amd-ryzen-9-7950x")
    assert len(one["peaks"]) == 4
    assert one["peaks"] == sorted(one["peaks"], reverse=True)
    shown = site.shown
    compared = site.json(f"/api/v1/compare?id={shown.cards}&id={shown.cpu}")
    assert (compared["one_series"], compared["score"]["best"]) == (True, 0)
    site.json(f"/api/v1/compare?id={shown.cards}&id={shown.cards}", 422)
    site.json(f"/api/v1/compare?id={shown.cards}", 422)
    site.json("/api/v1/compare?id=" + "&id=".join([shown.cards] * 5), 422)


def whole() -> Payload:
    return populated.whole()


def other_suite(run: Payload) -> Payload:
    return run.model_copy(update={"suite": run.suite.model_copy(update={"edition": "trained"})})


def test_figures_of_one_series_are_ranked() -> None:
    found = compare([whole(), forge.forge_payload()])
    assert found.one_series
    assert found.score.best == 0
    shared = next(line for line in found.peaks if line.name == "CPU · ONNX Runtime · INT8")
    assert shared.best is None or shared.values[0] != shared.values[1]


def test_figures_of_different_series_are_never_ranked() -> None:
    found = compare([whole(), other_suite(forge.forge_payload())])
    assert not found.one_series
    lines = (found.score, *found.peaks, *found.delivered)
    assert all(line.best is None for line in lines)
    assert found.apart[0].what == "edition"
    assert found.apart[0].values == ("seeded", "trained")


def test_other_versions_of_a_runtime_are_told() -> None:
    run = forge.forge_payload()
    newer = [e.model_copy(update={"version": "9.9"}) for e in run.engines]
    found = compare([run, run.model_copy(update={"engines": newer})])
    assert [(a.what, a.values) for a in found.apart] == [("ONNX Runtime", (forge.ORT, "9.9"))]
    assert compare([run, run]).apart == ()


def test_the_dots_that_are_counted_are_those_of_the_median() -> None:
    view = result_view(forge.forge_payload(), Catalog())
    [peak] = [e for e in view.processors[0].engines[0].peaks if e.best]
    counted = sorted(d.ips for d in peak.dots if d.counted and d.ips is not None)
    others = [d.ips for d in peak.dots if not d.counted and d.ips is not None]
    assert (len(counted), len(others)) == (3, 2)
    assert max(others) <= min(counted)
    assert counted[1] == peak.ips


def test_charts_say_what_they_show() -> None:
    drawn = dots(
        [Dot(1, 100.0, counted=True), Dot(2, 50.0, counted=False), Dot(3, None, False)], 100.0
    )
    assert drawn.count('class="dot counted"') == 1
    assert drawn.count('class="dot"') == 1
    assert drawn.count('class="cross"') == 1
    assert "counted: 100 inferences/s; not counted: 50.0; 1 without a figure" in drawn
    assert dots([], None) == ""
    assert 'width="100.00"' in bar(7.0)
    assert 'width="0.50"' in bar(0.0001)
    assert 'width="0.00"' in bar(0.0)
    assert "<b>" not in histogram([1.0, 2.0, 3.0], "<b>")
    assert "3 machines from 1.00 to 3.00 TOPS, median 2.00 TOPS" in histogram([1.0, 2.0, 3.0], "x")
    assert histogram([], "x") == ""


def test_every_value_is_in_one_column_of_a_histogram() -> None:
    values = [1.0, 1.1, 2.0, 5.0, 5.0, 9.0]
    found = bins(values)
    assert sum(column.machines for column in found) == len(values)
    assert (found[0].low, found[-1].high) == (1.0, pytest.approx(9.0))
    assert [column.machines for column in bins([2.0, 2.0])] == [2]


def test_the_page_cache_keeps_within_its_bytes_and_lets_the_least_used_go() -> None:
    cache = PageCache(10)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    assert cache.get("a") == b"1234"
    cache.put("c", b"1234")
    assert (cache.get("b"), cache.get("a"), cache.get("c")) == (None, b"1234", b"1234")
    cache.put("a", b"12")
    assert cache.held_bytes == 6
    cache.put("d", b"x" * 11)
    assert (cache.get("d"), cache.held_bytes) == (None, 6)


def test_a_result_page_is_made_anew_when_its_standing_changes(sqlite_store: Store) -> None:
    shown = populated.populate(sqlite_store, others=0)
    app = create_app(sqlite_store.config, sqlite_store, now=forge.NOW.timestamp)
    client = Client(app)
    assert "Under the present rules" not in client.get(f"/results/{shown.cpu}").text
    fault = {"code": "above_ceiling", "message": "it is <too> fast", "details": {}}
    with writing(sqlite_store.engine) as c:
        c.execute(
            update(results)
            .where(results.c.id == shown.cpu)
            .values(faults=[fault], ranked=False, rules_sha256="1" * 64)
        )
    text = client.get(f"/results/{shown.cpu}").text
    assert "Under the present rules" in text
    assert "it is &lt;too&gt; fast" in text


def test_a_query_holds_what_is_set_and_nothing_else() -> None:
    assert query({"a": "x y", "b": ""}, c="&") == "?a=x+y&c=%26"
    assert query({"a": "1"}, a="") == ""


def test_the_templates_and_styles_ship_with_the_package() -> None:
    place = Path(web.__file__).parent
    assert {p.name for p in (place / "static").iterdir()} == {"site.css", "site.js", "icon.svg"}
    assert json.dumps(sorted(p.suffix for p in (place / "templates").iterdir())).count(".html") > 5


def test_the_nasty_name_is_what_it_should_be() -> None:
    assert all(c in NASTY for c in "<>'\";&{}🚀\u202e")


def test_a_verdict_that_stands_by_older_rules_is_told_as_such(sqlite_store: Store) -> None:
    shown = populated.populate(sqlite_store, others=0)
    client = Client(create_app(sqlite_store.config, sqlite_store, now=forge.NOW.timestamp))
    fault = {"code": OTHER_RULES, "message": "the policy is unknown here", "details": {}}
    with writing(sqlite_store.engine) as c:
        c.execute(update(results).where(results.c.id == shown.cpu).values(faults=[fault]))
    text = client.get(f"/results/{shown.cpu}").text
    assert "the verdict of then stands" in text
    assert "would be refused" not in text
