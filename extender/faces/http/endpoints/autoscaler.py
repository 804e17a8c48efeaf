"""Autoscalers on HTTP: the paths of their verbs, and what their sessions have planned, for the console."""

import time
from functools import partial
from typing import Annotated, Final

import anyio.to_thread
import orjson
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.sessions import FORWARDED, SESSION, PassedCall
from extender.autoscaler.verbs import AUTOSCALER_VERBS, START
from extender.config.settings import AUTOSCALER_PREFIX
from extender.faces.console.sessions import SeenSessions, SessionViews
from extender.faces.http.callers import USER, caller_of
from extender.faces.http.replies import Shared
from extender.faces.http.verb_endpoints import Application, Elsewhere, Endpoints, nowhere_else

_LONGEST_CALLER: Final = 100
"""Characters of the name of a caller that are kept with a session."""


def add_autoscaler_routes(app: Application, autoscaler: Autoscaler, endpoints: Endpoints) -> None:
    """All of them, under a prefix of their own."""

    def by(request: Request) -> InSession:
        return InSession(autoscaler, request.headers.get(SESSION), _caller(request), caller_of(request.scope))

    for verb in AUTOSCALER_VERBS:
        path, name = f"{AUTOSCALER_PREFIX}/{verb.name}", f"autoscaler/{verb.name}"
        elsewhere = nowhere_else if verb is START else _passing_on(verb.name, autoscaler)
        app.add_verb(endpoints.route(path, name, verb, by, "autoscaler", elsewhere))


def _caller(request: Request) -> str:
    name = str(request.scope.get(USER) or request.headers.get("user-agent", ""))
    return name[:_LONGEST_CALLER]


def _passing_on(verb: str, autoscaler: Autoscaler) -> Elsewhere:
    """Passes calls on whose session another replica has."""

    async def pass_on(request: Request, body: bytes) -> bytes | None:
        session, peers = request.headers.get(SESSION), autoscaler.peers
        if peers is None or session is None or FORWARDED in request.headers or not peers.owner(session):
            return None
        return await peers.answer(PassedCall(verb, session, body))

    return pass_on


_PAUSE: Final = 4
"""The pause after a rendering, in times of its duration: so rendering takes at most a fifth of the time."""


class Since(BaseModel):
    """What the page has read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str = Field(default="", description='The "position" that the page has read.', max_length=64)


def add_autoscaler_sessions(app: FastAPI, views: SessionViews) -> None:
    """``/console/sessions``."""

    async def rendered() -> bytes:
        return await anyio.to_thread.run_sync(partial(_rendered, views, views.seen()))

    all_of_them = Shared(rendered, time.monotonic, _PAUSE)

    @app.get(
        "/console/sessions",
        tags=["console"],
        summary="What autoscalers have planned in their sessions; only the position, if nothing has changed.",
        response_class=Response,
    )
    async def get_console_sessions(query: Annotated[Since, Query()]) -> Response:
        position = views.seen().position
        is_known = query.after == position
        found = orjson.dumps({"position": position}) if is_known else await all_of_them.latest()
        return Response(found, media_type="application/json")


def _rendered(views: SessionViews, seen: SeenSessions) -> bytes:
    return orjson.dumps(views.document(seen))
