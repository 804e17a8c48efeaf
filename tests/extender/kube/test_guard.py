"""What callers off the node can reach, and what they are told if they may not."""

from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient
from prometheus_client import CollectorRegistry

from extender.faces.http.app import Listener
from extender.faces.http.callers import CallerMetrics, Guard, Refusals
from extender.faces.http.endpoints.tables import TABLES
from extender.kube.access import Clocks, Gate, Reviews
from tests.extender.faces.http.scenes import TWO_NODES, VERBS
from tests.extender.kube.access_scenes import ApiServer
from tests.kit.clusters import Cluster

OBJECTS = TWO_NODES
BOB = {"Authorization": "Bearer bobs"}


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def client(cluster: Cluster, server: ApiServer, registry: CollectorRegistry) -> AsyncClient:
    """A caller at the port for callers off the node, by another name than ours."""
    gate = Gate(Reviews(server), Clocks(lambda: 0.0, lambda: 0.0))
    guard = Guard(cluster.app(listener=Listener.API), gate, Refusals(CallerMetrics(registry).refused))
    return AsyncClient(transport=ASGITransport(guard), base_url="https://dra-extender-api.kube-system")


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


async def test_a_caller_without_credentials_is_told_what_to_give(client: AsyncClient) -> None:
    reply = await client.get("/devices")
    message = 'give a client certificate, or a header "Authorization: Bearer <token>"'
    assert (reply.status_code, reply.json()) == (401, status(401, "Unauthorized", message))
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.headers["content-type"] == "application/json"


async def test_a_caller_without_the_right_is_told_which_one_it_lacks(client: AsyncClient) -> None:
    reply = await client.post("/autoscaler/start", headers=BOB)
    message = 'user "bob" may not post path "/autoscaler/start"'
    assert (reply.status_code, reply.json()) == (403, status(403, "Forbidden", message))


async def test_while_the_api_server_does_not_answer_a_caller_may_try_again(
    client: AsyncClient, server: ApiServer
) -> None:
    server.down = True
    reply = await client.get("/devices", headers=BOB)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")


async def test_refused_callers_are_counted_by_reason(
    client: AsyncClient, server: ApiServer, registry: CollectorRegistry
) -> None:
    server.rights.clear()
    await client.get("/devices")
    await client.get("/devices", headers={"Authorization": "Basic bobs"})
    await client.get("/devices", headers={"Authorization": "Bearer nobodys"})
    await client.get("/devices", headers=BOB)
    for number in range(200):
        await client.get(f"/explain/a/{number}", headers=BOB)
    server.down = True
    await client.get("/devices", headers={"Authorization": "Bearer another"})
    found = {
        reason: registry.get_sample_value("dra_extender_callers_refused_total", {"reason": reason})
        for reason in ("handshake", "no_credential", "token", "certificate", "right", "too_often", "no_review")
    }
    rights = 100.0
    assert found == {
        "handshake": 0.0,
        "no_credential": 2.0,
        "token": 1.0,
        "certificate": 0.0,
        "right": rights,
        "too_often": 201.0 - rights,
        "no_review": 1.0,
    }


async def test_a_caller_with_the_right_gets_its_answer(client: AsyncClient, server: ApiServer) -> None:
    server.rights.add(("bob", "post", "/autoscaler/start"))
    assert (await client.get("/devices", headers=BOB)).text.startswith("DRIVER")
    session = (await client.post("/autoscaler/start", headers=BOB, content=b"{}")).json()["Session"]
    assert len(session) > 20


async def test_the_body_of_a_refused_request_is_not_read(client: AsyncClient) -> None:
    async def endless() -> Any:
        yield b"x"
        raise AssertionError("it was read")

    reply = await client.post("/autoscaler/start", content=endless())
    assert reply.status_code == 401


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/healthz", "/readyz", *(f"/{each}" for each in VERBS)])
async def test_what_is_for_others_is_not_there(client: AsyncClient, server: ApiServer, path: str) -> None:
    server.rights |= {("bob", verb, path) for verb in ("get", "post")}
    for method in ("GET", "POST"):
        assert (await client.request(method, path, headers=BOB)).status_code == 404


async def test_verbs_of_autoscalers_explanations_and_tables_are_there(client: AsyncClient, server: ApiServer) -> None:
    server.rights |= {("bob", "get", "/"), ("bob", "get", "/openapi.json")}
    endpoints = (await client.get("/", headers=BOB)).json()["endpoints"]
    assert {f"GET /{table.name}" for table in TABLES} < set(endpoints)
    assert {"POST /autoscaler/estimate", "POST /explain", "GET /explain/{namespace}/{pod}"} < set(endpoints)
    assert (await client.get("/openapi.json", headers=BOB)).status_code == 200


async def test_requests_of_web_pages_are_refused_here_too(client: AsyncClient) -> None:
    """A browser would show the certificate of its user for any page."""
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
        assert (await client.get("/devices", headers={**BOB, **headers})).status_code == 403
    origin = {"origin": "https://dra-extender-api.kube-system", "sec-fetch-site": "same-origin"}
    assert (await client.get("/devices", headers={**BOB, **origin})).status_code == 200
