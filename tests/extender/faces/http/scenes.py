"""What the tests of the verbs over HTTP share: a cluster of two nodes, and a call of a verb."""

from typing import Any

import orjson
from httpx import AsyncClient

from extender.faces.http.endpoints.scheduler_verbs import VERBS as REGISTERED
from tests.kit.clusters import GPU, claim, local_slice, node, pod

VERBS = [each.name for each in REGISTERED]
TWO_NODES = (
    GPU,
    *(each for name in ("a", "b") for each in (node(name), local_slice(name))),
    claim("c"),
    claim("taken", allocated=["b/gpu-0"], at="b", users=["somebody"]),
    pod("p", "c"),
    pod("plain"),
)


async def post(client: AsyncClient, verb: str, body: object) -> Any:
    response = await client.post(f"/{verb}", content=body if isinstance(body, bytes) else orjson.dumps(body))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()
