"""The sessions of autoscalers on HTTP, for the console."""

import time
from functools import partial
from typing import Annotated, Final

import anyio.to_thread
import orjson
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from extender.autoscaler.session_views import SeenSessions, SessionViews
from extender.http.replies.shared_text import Shared

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
