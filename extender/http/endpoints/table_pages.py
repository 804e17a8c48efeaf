"""A table on HTTP: the path, the documentation and the pages of one entry. Text for terminals, JSON on request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, Generic, TypeVar

from anyio.to_thread import run_sync
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allocator.tools import JSON, shown
from extender.http.replies.accept import Format, format_for
from extender.kube.resources import Resource
from extender.observe.overview import Overview
from extender.observe.tables.names import meant
from extender.observe.tables.table import TablePage, TableView, page
from extender.verbs import wire

_MOST: Final = 10_000
_DEFAULT: Final = 500


class Paging(BaseModel):
    """Which rows, and in which format. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=_DEFAULT, ge=1, le=_MOST, description="The largest number of rows.")
    token: str = Field(default="", alias="continue", description="The token at the end of the page before.")
    format: Format | None = Field(default=None, description="Overrides the Accept header.")

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out rows, as far as they are given."""
        return self.model_dump(mode="json", by_alias=True, exclude={"limit", "token", "format"}, exclude_defaults=True)


_Q = TypeVar("_Q", bound=Paging)


@dataclass(frozen=True, slots=True)
class Table(Generic[_Q]):
    """A table. Its path, its place in OpenAPI and its answers are made from this entry.

    Attributes:
        name: the path, and the word for the rows.
        query: the parameters; without any of them, the table has all rows.
        view: the rows. It is called on the event loop, and the rows are made in a thread.
        example: a row.
        kinds: the kinds of objects that the rows come from.
        when_empty: what a table without rows means.
    """

    name: str
    summary: str
    query: type[_Q]
    view: Callable[[Overview, _Q], TableView]
    example: Mapping[str, JSON]
    kinds: tuple[Resource, ...] = ()
    when_empty: str = ""


def add_table(app: FastAPI, overview: Overview, table: Table[_Q]) -> None:
    """Answer at the path of the table."""

    async def get(request: Request, query: _Q) -> Response:
        form = query.format or format_for(request)
        found = await _page(table, overview, query)
        if form is Format.JSON:
            return Response(await run_sync(_as_json, found), media_type="application/json")
        return Response(await run_sync(found.as_text), media_type="text/plain")

    get.__annotations__["query"] = Annotated[table.query, Query()]  # FastAPI reads the parameters from it
    app.add_api_route(
        f"/{table.name}",
        get,
        methods=["GET"],
        name=f"get_{table.name}",
        summary=table.summary,
        tags=["views"],
        response_class=Response,
        responses=_responses(table.example),
    )


async def _page(table: Table[_Q], overview: Overview, query: _Q) -> TablePage:
    """A page, made in a thread: there may be tens of thousands of rows.

    Raises:
        QueryError: a parameter names nothing.
        SearchLimitError: the rows took too long.
    """
    wanted, everything = table.view(overview, query), table.view(overview, table.query())
    doubts = [(kind.plural, doubt) for kind in table.kinds if (doubt := overview.state.doubt_of(kind))]

    def made() -> TablePage:
        found = page(wanted, limit=query.limit, token=query.token)
        if doubts:
            why = "; ".join(f"{plural}: {doubt}" for plural, doubt in doubts)
            return found.noting(f"rows may be missing or old: {why}")
        return found if found.items else found.noting(_why_empty(table, query, everything, overview))

    return await overview.off_loop(made)


def _as_json(found: TablePage) -> bytes:
    return wire.as_line(found.as_json())


def _why_empty(table: Table[_Q], query: _Q, everything: TableView, overview: Overview) -> str:
    """Why there is no row, although the cluster is known."""
    if next(everything.rows, None) is None:
        return table.when_empty or f"there are no {table.name}"
    if query.token:
        return "there are no rows after the page before"
    given = ", ".join(f"{name}={shown(value)}" for name, value in query.filters.items())
    return "; ".join((f"there are {table.name}, but none with {given}", *meant(query.filters, overview.state.snapshot)))


def _responses(example: Mapping[str, JSON]) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"example": {"items": [example]}}, "text/plain": {}}
    return {
        200: {
            "description": (
                'The rows. "continue", in JSON or in the last line of text, is the token of the next page; '
                '"note" says why rows are missing.'
            ),
            "content": content,
        },
        400: {"description": "A parameter is unknown, invalid, or given twice."},
        406: {"description": "Neither text nor JSON is accepted."},
        503: {"description": "It takes too long to find the rows."},
    }


def text_of(value: Enum | None) -> str:
    """The text of a parameter; empty if it is absent."""
    return "" if value is None else str(value.value)
