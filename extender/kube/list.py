"""Lists of all objects of a kind, read in pages."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec
import orjson

from extender.kube.api import Listing, RawObject
from extender.kube.connection.transport import HttpReply, HttpRequest, succeeded
from extender.kube.discovery import Served
from extender.kube.encoding import Relevance, dumps, loads, loads_aside
from extender.kube.errors import ApiError, OutcomeUnknownError
from extender.kube.raw import revision
from extender.kube.resources import Resource
from extender.tools.offload import Offload, at_once

_T = TypeVar("_T")

_TRIES: Final = 3
"""Tries to read a list whose pages expire while they are read."""

_NO_LIST: Final = "the answer is not a list of objects with a revision"


RoomFor: TypeAlias = Callable[[bytes], AbstractAsyncContextManager[None]]
"""Waits for room for an object, by its JSON; the room is given back when the context is left."""

_NOTHING: Final = nullcontext()


def no_room(_text: bytes) -> AbstractAsyncContextManager[None]:
    """A `RoomFor` where nothing is counted."""
    return _NOTHING


class _Metadata(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "token": "continue"}):
    resource_version: str
    token: str | None = None


class _List(msgspec.Struct, frozen=True):
    """A list of the API whose items are not decoded."""

    metadata: _Metadata
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some objects of a list.

    Attributes:
        items: JSON of the objects.
        kind: ``apiVersion`` and ``kind`` of all objects.
        revision: of the whole list: all pages have the revision of the first.
        token: asks for the next page; empty on the last page.
    """

    request: HttpRequest
    items: tuple[msgspec.Raw, ...]
    kind: Mapping[str, str]
    revision: int
    token: str

    async def objects(
        self, may_matter: Relevance | None, off_loop: Offload, room: RoomFor = no_room
    ) -> AsyncGenerator[RawObject, None]:
        """The objects that may matter, each decoded when it is asked for.

        Args:
            may_matter: by the JSON of an object; None: all of them do.
            off_loop: where objects are decoded that take long.
            room: for the memory of one object, which is given back when the next one is asked for.

        Raises:
            OutcomeUnknownError: an item is no object.
        """
        for item in self.items:
            text = bytes(item)
            if may_matter is None or may_matter(text):
                async with room(text):
                    # An API server leaves apiVersion and kind out of the items of a list.
                    yield {**self.kind, **await self._decoded(text, off_loop)}

    async def _decoded(self, item: bytes, off_loop: Offload) -> RawObject:
        try:
            obj = await loads_aside(item, off_loop)
        except orjson.JSONDecodeError as error:
            raise OutcomeUnknownError(str(self.request), f"{_NO_LIST}: {error}") from error
        if not isinstance(obj, dict):
            raise OutcomeUnknownError(str(self.request), _NO_LIST)
        return obj


class PageReader(Protocol):
    """Reads pages; `extender.kube.remote.RemoteApi` implements it."""

    @property
    def served(self) -> Served:
        """Where the objects are."""
        ...

    async def read_page(
        self, path: str, query: Mapping[str, str], decode: Callable[[HttpRequest, HttpReply], _T]
    ) -> _T:
        """A page of a list, decoded; raises ApiError or OutcomeUnknownError."""
        ...


async def pages(reader: PageReader, resource: Resource) -> AsyncGenerator[ListPage, None]:
    """The pages of a list, at least one; each page is requested when the caller has handled the one before.

    Raises:
        ApiError: a refusal; Gone if the list has expired while it was read.
        OutcomeUnknownError: no answer.
    """
    path = reader.served.path(resource)
    kind = {"apiVersion": reader.served.api_version(resource), "kind": resource.kind}
    query: dict[str, str] = {}
    while True:
        page = await reader.read_page(path, query, lambda request, reply: _page(request, reply, kind))
        yield page
        if not page.token:
            return
        query["continue"] = page.token


async def list_all(reader: PageReader, resource: Resource) -> Listing:
    """All objects at once; an expired list is read again.

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
            items += [obj async for obj in page.objects(None, at_once)]
            at = page.revision
    return Listing(tuple(items), at)


def _page(request: HttpRequest, reply: HttpReply, kind: Mapping[str, str]) -> ListPage:
    body = succeeded(request, reply)
    try:
        page = _taken_apart(body)
    except (msgspec.DecodeError, orjson.JSONDecodeError) as error:
        raise OutcomeUnknownError(str(request), f"{_NO_LIST}: {error}") from error
    at = revision(page.metadata.resource_version)
    if not at:
        raise OutcomeUnknownError(str(request), _NO_LIST)
    return ListPage(request, tuple(page.items or ()), kind, at, page.metadata.token or "")


def _taken_apart(body: bytes) -> _List:
    """The list in a body; raises msgspec.DecodeError or orjson.JSONDecodeError if it is none."""
    try:
        return msgspec.json.decode(body, type=_List)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        # Some items can be decoded by `loads` only.
        whole = loads(body)
        items = whole.get("items") if isinstance(whole, dict) else None
        if isinstance(items, list):
            whole["items"] = [msgspec.Raw(dumps(item)) for item in items]
        return msgspec.convert(whole, type=_List)
