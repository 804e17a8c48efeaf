"""An extender that decides next to nothing: it accepts all nodes or none, binds as told, and notes what it hears."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

from extender.kube.api import ApiError, ObjectKey
from tests.kit.controlplane.client import Client
from tests.kit.process import free_port


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a scheduler, as it came."""

    verb: str
    request: dict[str, Any]

    @property
    def pod(self) -> str:
        """The name of the pod that it is about."""
        name: str = self.request["PodName"] if self.verb == "bind" else self.request["Pod"]["metadata"]["name"]
        return name


@dataclass(slots=True)
class Recorder:
    """The verbs over one API server.

    Attributes:
        url: what the scheduler's configuration needs.
        favourite: the node that has the highest score; the others have the lowest.
        refusal: why it accepts no node; empty: it accepts all.
        calls: in the order in which they came.
    """

    client: Client
    url: str
    favourite: str = ""
    refusal: str = ""
    calls: list[Call] = field(default_factory=list)

    def verbs_for(self, pod: str) -> list[str]:
        """What was asked about one pod, in order."""
        return [call.verb for call in self.calls if call.pod == pod]

    async def answer(self, verb: str, request: dict[str, Any]) -> Any:
        """The reply to one call."""
        self.calls.append(Call(verb, request))
        match verb:
            case "filter" if self.refusal:
                return {"NodeNames": [], "FailedNodes": dict.fromkeys(request["NodeNames"], self.refusal)}
            case "filter":
                return {"NodeNames": request["NodeNames"]}
            case "prioritize":
                return [{"Host": node, "Score": 10 if node == self.favourite else 0} for node in request["NodeNames"]]
            case "preempt":
                return {"NodeNameToMetaVictims": request["NodeNameToMetaVictims"]}
            case _:
                return await self._bind(request)

    async def _bind(self, request: dict[str, Any]) -> dict[str, str]:
        key = ObjectKey(request["PodNamespace"], request["PodName"])
        try:
            await self.client.bind_pod(key, request["Node"], uid=request["PodUID"])
        except ApiError as error:
            return {"Error": str(error)}
        return {"Error": ""}


@asynccontextmanager
async def recording_extender(client: Client) -> AsyncIterator[Recorder]:
    """Serve the verbs in the running event loop."""
    port = free_port()
    recorder = Recorder(client, f"http://127.0.0.1:{port}")
    app = FastAPI()

    @app.post("/{verb}")
    async def endpoint(verb: str, request: Request) -> Response:
        reply = await recorder.answer(verb, orjson.loads(await request.body()))
        return Response(orjson.dumps(reply), media_type="application/json")

    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, lifespan="off", timeout_keep_alive=120)
    server = uvicorn.Server(config)
    # Without the signal handlers of `serve`: the test run keeps its own.
    serving = asyncio.create_task(server._serve())
    try:
        yield recorder
    finally:
        server.should_exit = True
        await serving
