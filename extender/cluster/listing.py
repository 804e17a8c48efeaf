"""All objects of a kind, read in pages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

from extender.cluster.api import ApiError, OutcomeUnknownError, RawObject, Resource
from extender.cluster.collector import uncollected
from extender.cluster.discovery import Served
from extender.cluster.state import revision_of
from extender.cluster.transport import Reply, Request, decoded

_T = TypeVar("_T")

_TRIES: Final = 3
"""Of a list whose pages expire while they are read."""


@dataclass(frozen=True, slots=True)
class _Page(Generic[_T]):
    """What is kept of a page; the token asks for the next one, empty if there is none."""

    kept: list[_T]
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


async def list_each(
    reader: PageReader, resource: Resource, keep: Callable[[RawObject], _T | None]
) -> tuple[list[_T], int]:
    """Read a list, and turn each object into what is to be kept of it as soon as its page is there.

    Args:
        reader: reads the pages.
        resource: the kind.
        keep: what to keep of an object; None drops it.

    Returns:
        What was kept, and the revision of the list.

    Raises:
        ApiError: a refusal; Gone if the pages expired again and again while they were read.
        OutcomeUnknownError: no answer.
    """
    for _ in range(_TRIES - 1):
        try:
            return await _list_once(reader, resource, keep)
        except ApiError as error:
            if error.status != HTTPStatus.GONE:
                raise
    return await _list_once(reader, resource, keep)


async def _list_once(
    reader: PageReader, resource: Resource, keep: Callable[[RawObject], _T | None]
) -> tuple[list[_T], int]:
    path = reader.served.path(resource)
    # An API server leaves both out of the items of a list.
    of_kind = {"apiVersion": reader.served.api_version(resource), "kind": resource.kind}

    def decode(request: Request, reply: Reply) -> _Page[_T]:
        with uncollected():
            return _packed(request, reply, lambda item: keep({**of_kind, **item}))

    query: dict[str, str] = {}
    kept: list[_T] = []
    while True:
        page = await reader.read_page(path, query, decode)
        kept += page.kept
        # Every page, the last included, is as of the revision of the first.
        if not page.token:
            return kept, page.revision
        query["continue"] = page.token


def _packed(request: Request, reply: Reply, keep: Callable[[RawObject], _T | None]) -> _Page[_T]:
    """What is kept of a page, which itself is gone when this returns."""
    page = decoded(request, reply)
    wanted = [keep(item) for item in _items(request, page)]
    token = page["metadata"].get("continue") or ""
    return _Page([item for item in wanted if item is not None], revision_of(page), token)


def _items(request: Request, page: RawObject) -> list[RawObject]:
    items = [] if page.get("items") is None else page["items"]
    if not revision_of(page) or not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise OutcomeUnknownError(str(request), "the answer is not a list of objects with a revision")
    return items
