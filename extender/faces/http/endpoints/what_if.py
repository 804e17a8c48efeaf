"""Questions "what if" on HTTP: in a body for programs, in the address for the console. Nothing is written."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final

import orjson
import yaml
from anyio.to_thread import run_sync
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allocator.tools import JSON
from extender.answers.whatif.answer import WhatIfAnswer, as_json
from extender.answers.whatif.answering import WhatIf
from extender.answers.whatif.edits import EDITS
from extender.answers.whatif.question import Question, read_question
from extender.faces.http.bodies import FREE_BYTES, Bodies, Body, from_yaml, is_yaml
from extender.faces.http.callers import caller_of
from extender.faces.http.replies import Format, error_reply, format_for, while_connected
from extender.framework import wire
from extender.framework.wire import root_of
from extender.kube.api import ObjectKey

LONGEST_QUESTION: Final = 8192
"""Characters of a question in an address. Each may take three bytes there, and a request's head has 32 KiB."""

_EXAMPLE: Final[JSON] = {each.field: [each.example] for each in EDITS}
_BODY: Final[Mapping[str, object]] = {
    "application/json": {"example": _EXAMPLE},
    "application/yaml": {"example": yaml.safe_dump(_EXAMPLE, sort_keys=False)},
}
_ANSWERS: Final[dict[int | str, dict[str, object]]] = {
    200: {
        "description": "The answer: text, or JSON where that is accepted.",
        "content": {"text/plain": {}, "application/json": {}},
    },
    400: {"description": "A question that can't be read, or that names what does not exist: each with its field."},
    406: {"description": "Neither text nor JSON is accepted."},
    429: {"description": "The caller, or all callers together, ask for too much."},
    503: {"description": "The cluster is not known well enough, or the answer takes too long."},
}


class QuestionInAddress(BaseModel):
    """A question in the address. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(
        default="{}",
        max_length=LONGEST_QUESTION,
        description="The question as JSON or YAML.",
        examples=['{"drain": ["gpu-west-2"]}'],
    )


class OfPod(BaseModel):
    """A pod whose requests are to be edited."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pod: str = Field(default="", description="NAMESPACE/NAME of a pending pod.", examples=["demo/eagle"])


def add_what_if(app: FastAPI, what_if: WhatIf, bodies: Bodies) -> None:
    """``/what-if``, and what the console offers for it."""
    _add_form(app, what_if)

    @app.get(
        "/what-if",
        tags=["explain"],
        summary="Which pods would run where if requests were edited, and nodes added or drained?",
        responses=_ANSWERS,
        response_class=Response,
    )
    async def what_if_in_address(request: Request, query: Annotated[QuestionInAddress, Query()]) -> Response:
        return await _answered(request, what_if, bodies, query.question.encode())

    @app.post(
        "/what-if",
        tags=["explain"],
        summary="The same for a question in the body, which may be longer.",
        responses=_ANSWERS,
        response_class=Response,
        openapi_extra={"requestBody": {"required": True, "content": _BODY}},
    )
    async def what_if_in_body(request: Request) -> Response:
        with Body(bodies, FREE_BYTES, caller=caller_of(request.scope)) as body:
            return await _answered(request, what_if, bodies, await body.read(request.receive))


def _add_form(app: FastAPI, what_if: WhatIf) -> None:
    @app.get(
        "/console/what-if",
        tags=["console"],
        summary="What a question may name: node templates, and the requests of a pending pod.",
        response_class=Response,
        responses={404: {"description": "There is no such pod, or it does not wait."}},
    )
    async def get_console_what_if(query: Annotated[OfPod, Query()]) -> Response:
        namespace, _, name = query.pod.rpartition("/")
        found = what_if.requests(ObjectKey(namespace or "default", name)) if query.pod else ()
        names = what_if.names()
        if isinstance(found, str):
            return error_reply(HTTPStatus.NOT_FOUND, found)
        return Response(orjson.dumps({**names, "requests": found}), media_type="application/json")


async def _answered(request: Request, what_if: WhatIf, bodies: Bodies, body: bytes) -> Response:
    form = format_for(request)
    caller = caller_of(request.scope)
    question = await bodies.decoded(caller, _question, body, request.headers.get("content-type", ""))
    answer = await while_connected(request, what_if.ask(question, caller))
    if answer is None:
        return Response()
    written = await run_sync(_as_json if form is Format.JSON else str, answer)
    return Response(written, media_type="application/json" if form is Format.JSON else "text/plain")


def _question(body: bytes, content_type: str) -> Question:
    """Off the loop: the expressions of a long question take a second to compile."""
    return read_question(_decoded(body, content_type))


def _decoded(body: bytes, content_type: str) -> Mapping[str, JSON]:
    """An empty question is one, too: what happens if nothing changes."""
    if not body or body.isspace():
        return {}
    return root_of(from_yaml(body, content_type) if is_yaml(body, content_type) else body)


def _as_json(answer: WhatIfAnswer) -> bytes:
    return wire.as_line(as_json(answer))
