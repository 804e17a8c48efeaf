"""What tests of the tables over HTTP share: a small cluster, and requests."""

from typing import Any

import orjson
from httpx import AsyncClient

from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, taint_rule

SHOWN = (
    GPU,
    *(each for name in ("a", "b", "c") for each in (node(name), local_slice(name, devices=2))),
    claim("wanted"),
    claim("held", allocated=["a/gpu-0"], at="a", users=["somebody"]),
    claim("kept", allocated=["a/gpu-1"], at="a"),
    taint_rule("broken", driver=DRIVER, pool="c", device="gpu-1"),
    pod("p", "wanted"),
    pod("plain"),
)

ALL_DEVICES = [
    "a/gpu-0 allocated",
    "a/gpu-1 allocated",
    "b/gpu-0 free",
    "b/gpu-1 free",
    "c/gpu-0 free",
    "c/gpu-1 tainted",
]


async def items(client: AsyncClient, path: str) -> list[Any]:
    response = await client.get(path, headers={"accept": "application/json"})
    assert response.status_code == 200
    return list(response.json()["items"])


async def device_list(client: AsyncClient, query: str) -> list[str]:
    return [f"{each['pool']}/{each['device']} {each['state']}" for each in await items(client, f"/devices?{query}")]


async def ask(client: AsyncClient, verb: str, body: Object) -> Any:
    return (await client.post(f"/{verb}", content=orjson.dumps(body))).json()
