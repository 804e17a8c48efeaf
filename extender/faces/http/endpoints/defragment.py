"""Which few pods to move, so that pending pods get devices, on HTTP. Nothing is written."""

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from extender.answers.defragmentation.advice import Advice
from extender.answers.defragmentation.defragment import MOVES, AskedMoves
from extender.faces.http.callers import caller_of
from extender.faces.http.replies import Format, format_for, while_connected
from extender.framework import wire
from extender.kube.api import ObjectKey


class Wanted(BaseModel):
    """For which pods room is looked for. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pod: str = Field(
        default="",
        max_length=512,
        description="NAMESPACE/NAME of a pending pod: for it, and those that ask for the same. Without it, for all.",
        examples=["demo/training"],
    )
    moves: int = Field(default=MOVES, ge=1, le=16, description="The most pods that one proposal moves.", examples=[5])


def add_defragment(app: FastAPI, asked: AskedMoves) -> None:
    """``/defragment``."""

    @app.get(
        "/defragment",
        tags=["explain"],
        summary="Which few pods to move, so that pending pods get devices that are free now in pieces?",
        responses={
            200: {
                "description": "The proposals: a table, or JSON where that is accepted.",
                "content": {"text/plain": {}, "application/json": {}},
            },
            400: {"description": "There is no such pod, it does not wait, or a parameter is invalid."},
            406: {"description": "Neither text nor JSON is accepted."},
            429: {"description": "The caller, or all callers together, ask for too much."},
            503: {"description": "The cluster is not known well enough, or the search takes too long."},
        },
        response_class=Response,
    )
    async def get_defragment(request: Request, query: Annotated[Wanted, Query()]) -> Response:
        form = format_for(request)
        namespace, _, name = query.pod.rpartition("/")
        only = ObjectKey(namespace or "default", name) if name else None
        advice = await while_connected(request, asked.ask(only, query.moves, caller_of(request.scope)))
        if advice is None:
            return Response()
        written = await run_sync(_as_json if form is Format.JSON else _as_text, advice)
        return Response(written, media_type="application/json" if form is Format.JSON else "text/plain")


def _as_json(advice: Advice) -> bytes:
    return wire.as_line(advice.as_json())


def _as_text(advice: Advice) -> str:
    lines = [str(advice), *(f"not moved: {name}: {each.reason}" for each in advice.spared for name in each.names)]
    return "\n".join(lines) + "\n"
