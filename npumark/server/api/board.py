"""Reading results: the board, a result's summary, processors, comparisons; as JSON and as CSV."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel

from npumark.record.envelope import ResultId
from npumark.server.answers import JSON, documented, instant
from npumark.server.api.board_models import (
    ApartOut,
    BoardOut,
    ComparedOut,
    ComparisonOut,
    Item,
    ProcessorDetail,
    ProcessorLineOut,
    ProcessorOut,
    ProcessorsOut,
    SeriesOut,
    Summary,
    Total,
)
from npumark.server.api.submissions import Id, shown
from npumark.server.board import Board, Filters, Series, board
from npumark.server.board_lines import Line, Sort
from npumark.server.comparison import MOST_COMPARED, compare
from npumark.server.database import reading
from npumark.server.processor_lists import processor_list, processor_page
from npumark.server.refusal import refuse

router = APIRouter(prefix="/api/v1", tags=["board"])

MOST_LINES = 1_000


Text = Annotated[str, Query(max_length=120)]
Limit = Annotated[int, Query(ge=1, le=MOST_LINES, description="Lines of a page, at the most.")]
Cursor = Annotated[str, Query(max_length=200, description="`next` or `previous` of a page.")]


def filters_of(
    role: Text = "",
    runtime: Text = "",
    format: Text = "",  # noqa: A002 - the filter's name in an address
    os: Text = "",
    score_version: Text = "",
    suite: Text = "",
    edition: Text = "",
    q: Annotated[
        str, Query(max_length=120, description="Part of a processor's name, or of a result's id.")
    ] = "",
    all: Annotated[  # noqa: A002
        bool, Query(description="Show what is not ranked as well.")
    ] = False,
) -> Filters:
    return Filters(role, runtime, format, os, score_version, suite, edition, q.strip(), all)


Asked = Annotated[Filters, Depends(filters_of)]


@router.get(
    "/results",
    response_model=BoardOut,
    responses=documented("wrong_form"),
)
def results_list(
    request: Request, filters: Asked, sort: Sort = "tops", cursor: Cursor = "", limit: Limit = 50
) -> Response:
    """Return a page of the board. Only figures of one series stand in it: of the newest score
    version, unless another is asked for."""
    found = _board(request, filters, sort, cursor, limit)
    return _answer(
        request,
        BoardOut(
            items=[_item(request, line) for line in found.lines],
            next=found.next,
            previous=found.previous,
            total=Total(lines=found.total, exact=not found.more),
            series=_series(found.series),
        ),
        kept_s=10,
    )


@router.get(
    "/results.csv",
    response_class=Response,
    responses={
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}},
        **documented("wrong_form"),
    },
)
def results_csv(
    request: Request,
    filters: Asked,
    sort: Sort = "tops",
    cursor: Cursor = "",
    limit: Limit = MOST_LINES,
) -> Response:
    """Return a page of the board as CSV (RFC 4180, UTF-8). The header ``Link`` names the next
    page. A text that a spreadsheet would take for a formula begins with an apostrophe."""
    found = _board(request, filters, sort, cursor, limit)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for line in found.lines:
        writer.writerow([_cell(value) for value in _row(request, line)])
    headers = {"Content-Disposition": 'attachment; filename="npumark-results.csv"'}
    if found.next:
        address = request.url.include_query_params(cursor=found.next)
        headers["Link"] = f'<?{address.query}>; rel="next"'
    return _kept(request, out.getvalue().encode(), "text/csv; charset=utf-8", 10, headers)


@router.get(
    "/results/{id}",
    response_model=Summary,
    responses=documented("not_found", "withdrawn", "wrong_form"),
)
def one_result(request: Request, result_id: Id) -> Response:
    """Return a result's summary and standing."""
    row = shown(request.app.state.store.result(result_id))
    return _answer(request, _summary(request, row), kept_s=10)


@router.get("/processors", response_model=ProcessorsOut, responses=documented("wrong_form"))
def processors_list(request: Request, q: Text = "") -> Response:
    """Return processors whose name holds ``q``, those with the most results first."""
    with reading(request.app.state.store.engine) as connection:
        found = processor_list(connection, q)
    lines = [ProcessorLineOut.model_validate(line) for line in found.lines]
    return _answer(request, ProcessorsOut(items=lines, more=found.more), kept_s=60)


@router.get(
    "/processors/{slug}",
    response_model=ProcessorDetail,
    responses=documented("not_found", "wrong_form"),
)
def one_processor(
    request: Request, slug: str, score_version: Text = "", suite: Text = "", edition: Text = ""
) -> Response:
    """Return how the machines with a processor differ, and its engines, in one series."""
    asked = Filters(score_version=score_version, suite=suite, edition=edition)
    with reading(request.app.state.store.engine) as connection:
        found = processor_page(connection, slug, asked)
    if found is None:
        raise refuse("not_found", "there is no such processor here")
    return _answer(request, ProcessorDetail.model_validate(found), kept_s=60)


@router.get(
    "/compare",
    response_model=ComparisonOut,
    responses=documented("not_found", "withdrawn", "wrong_form"),
)
def comparison(
    request: Request,
    id: Annotated[list[ResultId], Query(min_length=2, max_length=MOST_COMPARED)],  # noqa: A002
) -> Response:
    """Return two to four results side by side, and what sets them apart."""
    store = request.app.state.store
    rows = [shown(store.result(each)) for each in dict.fromkeys(id)]
    if len(rows) < 2:
        raise refuse("wrong_form", "a comparison takes two results or more")
    view = compare([store.payload(row.id) for row in rows])
    return _answer(
        request,
        ComparisonOut(
            results=[_summary(request, row) for row in rows],
            one_series=view.one_series,
            score=ComparedOut.model_validate(view.score),
            peaks=[ComparedOut.model_validate(line) for line in view.peaks],
            delivered=[ComparedOut.model_validate(line) for line in view.delivered],
            apart=[ApartOut.model_validate(line) for line in view.apart],
        ),
        kept_s=10,
    )


def _board(request: Request, filters: Filters, sort: Sort, cursor: str, limit: int) -> Board:
    with reading(request.app.state.store.engine) as connection:
        return board(connection, filters, sort, cursor, limit)


def _item(request: Request, line: Line) -> Item:
    return Item(
        position=line.position,
        result_id=line.result_id,
        url=_url(request, line.result_id),
        tops=line.tops,
        unstable=line.unstable,
        delivered=line.delivered,
        processor=ProcessorOut(slug=line.slug, name=line.processor, role=line.role),
        runtime=line.runtime,
        engine=line.engine,
        format=line.format,
        label=line.label,
        workload=line.workload,
        os=line.os,
        series=SeriesOut.model_validate(line),
        created=line.created,
        received_at=instant(line.received_at),
        trust=line.trust,
        attestation=line.attestation,
        quick=line.quick,
        comparable=line.comparable,
        ranked=line.ranked,
        not_ranked_because=list(line.not_ranked_because),
    )


def _summary(request: Request, row: Any) -> Summary:
    return Summary(
        result_id=row.id,
        url=_url(request, row.id),
        label=row.label,
        tops=row.tops,
        unstable=row.unstable,
        series=SeriesOut.model_validate(row),
        os=row.os,
        created=row.created,
        received_at=instant(row.received_at),
        tool_version=row.tool_version,
        trust=row.trust,
        attestation=row.attestation,
        quick=row.quick,
        comparable=row.comparable,
        ranked=row.ranked,
        not_ranked_because=row.not_ranked_because,
        rules_sha256=row.rules_sha256,
        verified_at=instant(row.verified_at),
        faults=row.faults,
        key_id=row.key_id,
        run_id=row.run_id,
        payload_sha256=row.payload_sha256,
        record_sha256=row.record_sha256,
        leaf_index=row.leaf_index,
    )


_COLUMNS = (
    *("position", "result_id", "url", "tops", "unstable", "delivered", "role", "processor"),
    *("runtime", "engine", "format", "label", "workload", "os", "score_version", "suite"),
    *("edition", "created", "received_at", "trust", "attestation", "quick", "comparable"),
    *("ranked", "not_ranked_because"),
)


def _row(request: Request, line: Line) -> Iterable[Any]:
    told = {
        "url": _url(request, line.result_id),
        "received_at": instant(line.received_at),
        "not_ranked_because": " ".join(line.not_ranked_because),
    }
    return (told[name] if name in told else getattr(line, name) for name in _COLUMNS)


# What begins a formula; some spreadsheets take the wide ones as well.
_FORMULAS = tuple("=+-@＝＋－＠")


def _cell(value: Any) -> Any:
    """Return a value for CSV: nothing in it is a formula, a line end or a control character."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = " ".join(value.split())
    return f"'{text}" if text.startswith(_FORMULAS) else text


def _series(series: Series | None) -> SeriesOut | None:
    return None if series is None else SeriesOut.model_validate(series)


def _url(request: Request, result_id: str) -> str:
    return f"{request.app.state.config.url}/results/{result_id}"


def _answer(request: Request, found: BaseModel, *, kept_s: int) -> Response:
    return _kept(request, found.model_dump_json().encode(), JSON, kept_s, {})


def _kept(
    request: Request, raw: bytes, media: str, kept_s: int, headers: dict[str, str]
) -> Response:
    """Return a body that may be kept for a while, or 304 where the sender has it."""
    tag = f'"{hashlib.sha256(raw).hexdigest()[:32]}"'
    headers = {**headers, "ETag": tag, "Cache-Control": f"public, max-age={kept_s}"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(raw, headers=headers, media_type=media)
