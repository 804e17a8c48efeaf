"""The sessions of autoscalers on HTTP, for the console."""

from typing import Annotated

import orjson
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from extender.whatif.sessions import SessionViews


class Since(BaseModel):
    """What the page has read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str = Field(default="", description='The "position" that the page has read.', max_length=64)


def add_sessions(app: FastAPI, views: SessionViews) -> None:
    """``/console/sessions``."""
    turn = CapacityLimiter(1)

    @app.get(
        "/console/sessions",
        tags=["console"],
        summary="What autoscalers have planned in their sessions; only the position, if nothing has changed.",
        response_class=Response,
    )
    async def get_console_sessions(query: Annotated[Since, Query()]) -> Response:
        position, listed = views.position, views.autoscaler.sessions.listed()
        if query.after == position:
            return Response(orjson.dumps({"position": position}), media_type="application/json")

        def made() -> bytes:
            return orjson.dumps({"position": position, **views.document(listed)})

        return Response(await run_sync(made, limiter=turn), media_type="application/json")
