"""Calls of the autoscaler's verbs over HTTP, in few words."""

from typing import Any

import orjson
from fastapi import FastAPI
from httpx import AsyncClient

from extender.autoscaler.autoscaler import Autoscaler
from extender.config.settings import Settings
from extender.faces.http.app import create_app
from tests.extender.autoscaler.scenes import autoscaler_over, node_template
from tests.kit.clusters import Cluster, Object

NEW = node_template("g", 1)
NO_ROOM = "no free device for request gpu"


def app_of(cluster: Cluster, autoscaler: Autoscaler | None = None, settings: Settings | None = None) -> FastAPI:
    chosen = autoscaler or autoscaler_over(cluster.state, NEW)
    return create_app(cluster.extender(settings), chosen, settings or Settings())


async def post(client: AsyncClient, verb: str, body: object, session: str | None = None) -> Any:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = {} if session is None else {"session": session}
    response = await client.post(f"/autoscaler/{verb}", content=content, headers=headers)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.content.endswith(b"\n")
    return response.json()


async def start(client: AsyncClient) -> str:
    return str((await post(client, "start", b""))["Session"])


def nodes(raw: Object, *sent: Object) -> Object:
    return {"Pod": raw, "Nodes": {"items": list(sent)}, "NodeNames": None}


async def passing(client: AsyncClient, raw: Object, *sent: Object, session: str | None = None) -> list[str]:
    reply = await post(client, "filter", nodes(raw, *sent), session)
    return [each["metadata"]["name"] for each in reply["Nodes"]["items"]]


async def book(client: AsyncClient, raw: Object, node: Object, session: str | None) -> Any:
    return await post(client, "NodeSelected", {"Pod": raw, "Node": node}, session)


def for_pods(*items: object) -> Object:
    return {"Pods": {"items": list(items)}, "NodeGroups": []}


def for_groups(*groups: object, **more: object) -> Object:
    return {"Pods": {}, "NodeGroups": list(groups), **more}
