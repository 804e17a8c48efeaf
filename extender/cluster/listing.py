"""All objects of a kind, read in pages."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeVar

from extender.cluster.api import ApiError, Listing, OutcomeUnknownError, RawObject, Resource
from extender.cluster.discovery import Served
from extender.cluster.state import revision_of
from extender.cluster.transport import Reply, Request, decoded

_T = TypeVar("_T")

_TRIES: Final = 3
"""Of a list whose pages expire while they are read."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of a list, and the revision of the whole; the token asks for the next page, empty if it is the last.

    Every page, the last included, is as of the revision of the first.
    """

    items: list[RawObject]
    revision: int
    token: str


class PageReader(Protocol):
    """Who reads the pages."""

    @property
    def served(self) -> Served:
        """Where the objects are."""
        ...

    async def read_page(self, path: str, query: Mapping[str, str], decode: Callable[[Request, Reply], _T]) -> _T:
        """A page of a list, decoded; raises ApiError or OutcomeUnknownError."""
        ...


async def pages(reader: PageReader, resource: Resource) -> AsyncGenerator[Page, None]:
    """The pages of a list, of which there is one at least; each is asked for when the one before has been dealt with.

    Raises:
        ApiError: a refusal; Gone if the list has expired while it was read, so that it must begin anew.
        OutcomeUnknownError: no answer.
    """
    path = reader.served.path(resource)
    # An API server leaves both out of the items of a list.
    of_kind = {"apiVersion": reader.served.api_version(resource), "kind": resource.kind}
    query: dict[str, str] = {}
    while True:
        page = await reader.read_page(path, query, lambda request, reply: _page(request, reply, of_kind))
        yield page
        if not page.token:
            return
        query["continue"] = page.token


async def list_all(reader: PageReader, resource: Resource) -> Listing:
    """All objects at once; a list that expires is begun anew.

    Raises:
        ApiError: a refusal; Gone if the list expired again and again while it was read.
        OutcomeUnknownError: no answer.
    """
    for _ in range(_TRIES - 1):
        try:
            return await _list_once(reader, resource)
        except ApiError as error:
            if error.status != HTTPStatus.GONE:
                raise
    return await _list_once(reader, resource)


async def _list_once(reader: PageReader, resource: Resource) -> Listing:
    items: list[RawObject] = []
    at = 0
    async with aclosing(pages(reader, resource)) as read:
        async for page in read:
            items += page.items
            at = page.revision
    return Listing(tuple(items), at)


def _page(request: Request, reply: Reply, of_kind: Mapping[str, str]) -> Page:
    page = decoded(request, reply)
    items = [] if page.get("items") is None else page["items"]
    if not revision_of(page) or not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise OutcomeUnknownError(str(request), "the answer is not a list of objects with a revision")
    return Page([{**of_kind, **item} for item in items], revision_of(page), page["metadata"].get("continue") or "")
