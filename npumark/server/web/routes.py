"""The pages: board, result, processors, comparison, methodology; errors in HTML too."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from npumark.pack.manifest import load_manifest
from npumark.policy import load_policy
from npumark.report.catalog import catalog_of
from npumark.server.answers import misfit
from npumark.server.api.board import Asked, Text
from npumark.server.board import Filters, board
from npumark.server.board_lines import Sort
from npumark.server.comparison import MOST_COMPARED
from npumark.server.comparison import compare as compared
from npumark.server.database import reading
from npumark.server.processor_lists import processor_list, processor_page
from npumark.server.refusal import Refused, refuse
from npumark.server.web.pages import (
    body_of,
    error_page,
    page_cache,
    render,
    respond,
    static_files,
)
from npumark.server.web.result_page import result_of, result_page

_YEAR_S = 365 * 86_400
_PROCESSOR_S = 60


class PageRoute(APIRoute):
    """A route whose refusals are pages as well."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def page(request: Request) -> Response:
            try:
                return await answer(request)
            except Refused as refused:
                return error_page(request, refused)
            except RequestValidationError as fault:
                return error_page(request, misfit("wrong_form", fault))

        return page


router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/")
def board_page(
    request: Request,
    filters: Asked,
    sort: Sort = "tops",
    cursor: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The board: a page of figures, filtered, searched and sorted."""
    state = request.app.state
    with reading(state.store.engine) as connection:
        found = board(connection, filters, sort, cursor, state.config.limits.page)
    chosen = asdict(filters)
    chosen["all"] = "1" if chosen.pop("everything") else ""
    chosen["sort"] = "" if sort == "tops" else sort
    return render(request, "board.html", board=found, chosen=chosen, sort=sort, kept_s=10)


@router.get("/results/{result_id}")
def one_result(request: Request, result_id: str) -> Response:
    """A result: everything that its record says."""
    found = result_of(request.app.state.store, result_id)
    return respond(request, result_page(request, found))


@router.get("/processors")
def all_processors(request: Request, q: Text = "") -> Response:
    """The processors that results came from."""
    with reading(request.app.state.store.engine) as connection:
        found = processor_list(connection, q)
    return render(request, "processors.html", found=found, q=q.strip(), kept_s=60)


@router.get("/processors/{slug}")
def one_processor(
    request: Request,
    slug: str,
    score_version: Text = "",
    suite: Text = "",
    edition: Text = "",
) -> Response:
    """A processor: how its machines differ, and its engines."""
    filters = Filters(score_version=score_version, suite=suite, edition=edition)
    # Some thousands of figures go into it, so that it is made once a minute.
    key = (slug, filters, int(request.app.state.now() // _PROCESSOR_S))
    page = page_cache(request).get(key)
    if page is None:
        with reading(request.app.state.store.engine) as connection:
            found = processor_page(connection, slug, filters)
        if found is None:
            raise refuse("not_found", "there is no such processor here")
        page = body_of(request, "processor.html", found=found)
        page_cache(request).put(key, page)
    return respond(request, page, kept_s=_PROCESSOR_S)


@router.get("/compare")
def compare(request: Request, id: Annotated[list[str], Query()] = []) -> Response:  # noqa: A002, B006
    """Two to four results side by side; fewer ask for more."""
    ids = [each for each in dict.fromkeys(id) if each]
    if len(ids) > MOST_COMPARED:
        raise refuse("wrong_form", f"at most {MOST_COMPARED} results can be compared at once")
    store = request.app.state.store
    found = [result_of(store, each) for each in ids]
    rows = [each.row for each in found]
    if len(found) < 2:
        return render(request, "compare.html", view=None, rows=rows)
    cache, key = page_cache(request), ("compare", *(each.key for each in found))
    page = cache.get(key)
    if page is None:
        view = compared([each.payload() for each in found])
        page = body_of(request, "compare.html", view=view, rows=rows)
        cache.put(key, page)
    return respond(request, page)


@router.get("/methodology")
def methodology(request: Request) -> Response:
    """What each number means, with the thresholds of the policy that judges them."""
    cache, key = page_cache(request), "methodology"
    page = cache.get(key)
    if page is None:
        manifest = load_manifest()
        catalog = catalog_of(manifest)
        scored = [w.title for w in manifest.workloads.values() if w.tier == "scored"]
        peaks = [w.id for w in manifest.workloads.values() if w.tier == "peak"]
        large = [w.id for w in manifest.workloads.values() if w.tier == "large"]
        page = body_of(
            request,
            "methodology.html",
            policy=load_policy(),
            suite=manifest.suite,
            networks=scored,
            peaks=peaks,
            large=large,
            catalog=catalog,
        )
        cache.put(key, page)
    return respond(request, page, kept_s=600)


@router.get("/static/{name}")
def static(name: str) -> Response:
    """A file of the pages; its digest is in the address that they give it, so it never changes."""
    found = static_files().get(name)
    if found is None:
        raise refuse("not_found", "there is no such file")
    media, raw, tag = found
    kept = {"Cache-Control": f"public, max-age={_YEAR_S}, immutable", "ETag": f'"{tag}"'}
    return Response(raw, headers=kept, media_type=media)


@router.get("/favicon.ico")
def favicon() -> Response:
    """Where browsers look for an icon by themselves."""
    return RedirectResponse("/static/icon.svg", 308)
