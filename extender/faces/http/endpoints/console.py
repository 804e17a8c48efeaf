"""The console on HTTP: the page and its files, its documents, the devices that match a question, and its changes."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Annotated, Final

import orjson
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from allocator import ClassMembers, DeviceId
from allocator.checks import taint_text
from allocator.tools import printable
from extender.answers.observe.console_search import LONGEST, AttributeFilter, example_filter, find_objects, matches
from extender.answers.observe.fleet import GROUP_LABELS, STATES, Fleet
from extender.answers.observe.overview import Overview
from extender.answers.observe.tables.devices import class_of
from extender.faces.assembly import Extender
from extender.faces.console.feed import Feed
from extender.faces.http.callers import caller_of
from extender.faces.http.replies import error_reply
from extender.faces.http.verb_endpoints import BODILESS

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
"""The Content-Security-Policy. No inline code runs, and no text becomes markup but the templates of lit-html."""


VARY: Final = {"Vary": "Accept"}
"""For caches: the page and other answers have one path."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as a browser gets it.

    Attributes:
        tag: for ``ETag`` and ``If-None-Match``; it changes with the content.
    """

    content: bytes
    media_type: str
    tag: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of each answer: the browser asks again whether the file has changed."""
        return {
            "ETag": self.tag,
            "Cache-Control": "no-cache",
            **VARY,
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }


def page_files() -> Mapping[str, PageFile]:
    """All files by name, without folders."""
    folder = files("extender.faces.console").joinpath("page")
    return {each.name: _file(each) for each in folder.iterdir() if PurePosixPath(each.name).suffix in _TYPES}


def _file(path: Traversable) -> PageFile:
    content = path.read_bytes()
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    return PageFile(content, _TYPES[PurePosixPath(path.name).suffix], f'"{digest}"')


_MOST_CLASSES: Final = 1000
"""Names of classes among which the page offers a choice. A class that is not offered can be typed."""

_MOST_NUMBERS: Final = 2**52
"""Numbers of messages begin below this: a browser counts exactly up to twice as much."""

_STREAM: Final = "text/event-stream"
_UNSTORED: Final = {"Cache-Control": "no-store"}


class Matching(BaseModel):
    """Which devices. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device_class: str = Field(default="", alias="class", description="Of this device class.", examples=["gpu"])
    attribute: str = Field(default="", description="With this attribute: NAME or NAME=VALUE.", examples=["model=h100"])


class DeviceParameters(BaseModel):
    """Which device."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    driver: str = Field(description="Its driver.", examples=["gpu.example.com"])
    pool: str = Field(description="Its pool.", examples=["node-0"])
    device: str = Field(description="Its name within the pool.", examples=["gpu-0"])


class Wanted(BaseModel):
    """What is looked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(max_length=LONGEST, description="A part of a name.", examples=["train"])


class NodeParameters(BaseModel):
    """Which node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str = Field(description="Its name.", examples=["node-0"])


class Following(BaseModel):
    """The point from which a page follows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: int = Field(default=0, ge=0, description='The "position" of the fleet that the page has read.')


def add_console(app: FastAPI, extender: Extender, group_label: str) -> None:
    """The page's files, the fleet, matching devices, and the stream of changes.

    Args:
        app: gets the endpoints.
        extender: what they show.
        group_label: the label that names a node's group for autoscalers; empty if there is none.
    """
    overview = extender.overview
    fleet = Fleet(overview.devices, (*filter(None, [group_label]), *GROUP_LABELS))
    _add_files(app, page_files())
    feed = Feed(overview, fleet, lambda: extender.service.is_stopping, secrets.randbelow(_MOST_NUMBERS))
    _add_fleet(app, overview, fleet, feed)
    _add_matches(app, overview)
    _add_history(app, overview)
    _add_search(app, overview)
    _add_node(app, overview)
    _add_changes(app, feed)


def page_reply(request: Request, file: PageFile) -> Response:
    """A file of the page; 304 if the browser has it."""
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={**file.headers})
    return Response(file.content, media_type=file.media_type, headers={**file.headers})


def _add_files(app: FastAPI, files: Mapping[str, PageFile]) -> None:
    @app.get(
        "/console/files/{name}",
        tags=["console"],
        summary="A file of the console: a module, a stylesheet, an icon.",
        response_class=Response,
        responses={404: {"description": "There is no such file."}},
    )
    async def get_console_file(request: Request, name: str) -> Response:
        found = files.get(name)
        if found is None:
            return error_reply(HTTPStatus.NOT_FOUND, "the console has no such file")
        return page_reply(request, found)


def _add_fleet(app: FastAPI, overview: Overview, fleet: Fleet, feed: Feed) -> None:
    @app.get(
        "/console/fleet",
        tags=["console"],
        summary="The states of all devices, in one short document.",
        response_class=Response,
    )
    async def get_console_fleet(request: Request) -> Response:
        position, doubt, snapshot = feed.position(), overview.state.not_ready, overview.state.snapshot

        def made() -> bytes:
            head = {
                "position": position,
                "doubt": doubt,
                "states": [each.value for each in STATES],
                "classes": sorted(snapshot.classes)[:_MOST_CLASSES],
                "nodes": len(snapshot.nodes),
                "example": example_filter(snapshot),
            }
            return orjson.dumps(head | fleet.document(snapshot, pause=overview.verb_priority.turn()))

        return Response(await overview.offload(caller_of(request.scope))(made), media_type="application/json")


def _add_matches(app: FastAPI, overview: Overview) -> None:
    @app.get(
        "/console/matches",
        tags=["console"],
        summary="The devices of a class, or with an attribute.",
        response_class=Response,
        responses={
            400: {"description": "There is no such class, or a parameter is invalid."},
            503: {"description": "The selectors of the class take too long."},
        },
    )
    async def get_console_matches(request: Request, query: Annotated[Matching, Query()]) -> Response:
        snapshot = overview.state.snapshot
        attribute = AttributeFilter(query.attribute) if query.attribute else None
        members = None
        if query.device_class:
            members = ClassMembers(class_of(query.device_class, snapshot), overview.selectors())
        off_loop = overview.offload(caller_of(request.scope), selects=members is not None)
        found = await off_loop(lambda: orjson.dumps(matches(snapshot, members, attribute)))
        return Response(found, media_type="application/json")


def _add_history(app: FastAPI, overview: Overview) -> None:
    @app.get(
        "/console/history",
        tags=["console"],
        summary="Who has held a device in the last hour, as far as this replica saw it.",
        response_class=Response,
    )
    async def get_console_history(query: Annotated[DeviceParameters, Query()]) -> Response:
        device = DeviceId(query.driver, query.pool, query.device)
        found = overview.history.of(device, overview.state.snapshot)
        document = {
            "completeAfter": overview.history.complete_after(),
            "holds": [
                {"claim": str(each.claim), "users": each.users, "since": each.since, "until": each.until}
                for each in found
            ],
        }
        return Response(orjson.dumps(document), media_type="application/json")


def _add_search(app: FastAPI, overview: Overview) -> None:
    @app.get(
        "/console/search",
        tags=["console"],
        summary="Pods, gangs, claims, nodes, classes and devices by a part of their name.",
        response_class=Response,
        responses={400: {"description": "The text is too long."}},
    )
    async def get_console_search(request: Request, query: Annotated[Wanted, Query()]) -> Response:
        snapshot = overview.state.snapshot

        def made() -> bytes:
            found = find_objects(query.text, snapshot, overview.verb_priority.turn())
            return orjson.dumps({"items": [each._asdict() for each in found]})

        return Response(await overview.offload(caller_of(request.scope))(made), media_type="application/json")


def _add_node(app: FastAPI, overview: Overview) -> None:
    @app.get(
        "/console/node",
        tags=["console"],
        summary="A node: its labels, the taints that keep pods off, and what device plugins offer there.",
        response_class=Response,
        responses={404: {"description": "There is no such node."}},
    )
    async def get_console_node(query: Annotated[NodeParameters, Query()]) -> Response:
        found = overview.state.snapshot.nodes.get(query.node)
        if found is None:
            return error_reply(HTTPStatus.NOT_FOUND, f"there is no node {printable(query.node)}")
        document = {
            "node": found.name,
            "created": found.created,
            "labels": dict(found.node.labels),
            "taints": [taint_text(each) for each in found.taints],
            "plugins": {name: str(amount) for name, amount in found.allocatable.items()},
        }
        return Response(orjson.dumps(document), media_type="application/json")


def _add_changes(app: FastAPI, feed: Feed) -> None:
    @app.get(
        "/console/changes",
        tags=["console"],
        summary="What changes, as Server-Sent Events.",
        response_class=Response,
        responses={200: {"content": {_STREAM: {}}}, 503: {"description": "Too many pages are open."}},
    )
    async def get_console_changes(request: Request, query: Annotated[Following, Query()]) -> Response:
        if BODILESS in request.scope:
            return Response(media_type=_STREAM, headers=_UNSTORED)
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 20 else query.after
        return StreamingResponse(feed.open(after), media_type=_STREAM, headers=_UNSTORED)
