"""Requests over HTTP with mistakes: each answer names the mistake, in the form that its reader takes."""

import pytest
from httpx import AsyncClient

from extender.config.sources import load
from tests.extender.faces.http.scenes import TWO_NODES, VERBS, post
from tests.kit.clusters import Cluster, Object, asking, client_of, node, pod

OBJECTS = TWO_NODES
BROKEN: dict[str, tuple[bytes, str]] = {
    "no body": (b"", "the body is empty"),
    "broken JSON": (b'{"Pod": {', "the body is not JSON"),
    "not text": (b"\xff\xfe\x00", "the body is not JSON"),
    "deep nesting": (b"[" * 60_000, "the body is not JSON"),
    "another type": (b"[1, 2]", "expected an object, not [1,2]"),
    "nothing in it": (b"{}", "missing"),
    "fields in the wrong case": (b'{"pod": {}, "nodeNames": [], "podName": "x"}', "unknown field; did you mean "),
    "a string for the pod": (b'{"Pod": "p", "NodeNames": [], "PodName": 7}', "expected"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("body", "message"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_request_is_an_error_that_names_the_field(
    client: AsyncClient, verb: str, body: bytes, message: str
) -> None:
    reply = await post(client, verb, body)
    assert list(reply) == ["Error"]
    assert message in reply["Error"]
    assert "Traceback" not in reply["Error"]


async def test_a_pod_whose_fields_have_wrong_types_is_named_by_field(client: AsyncClient) -> None:
    wrong = pod("p", "c")
    wrong["spec"]["resourceClaims"] = [{"name": 5}]
    reply = await post(client, "filter", asking(wrong, "a"))
    assert "Pod: spec.resourceClaims[0].name" in reply["Error"]


async def test_a_node_whose_fields_have_wrong_types_is_named_by_field(client: AsyncClient) -> None:
    wrong = node("a", labels={"x": 5})  # type: ignore[dict-item]  # on purpose
    reply = await post(client, "filter", {"Pod": pod("p", "c"), "Nodes": {"items": [wrong]}, "NodeNames": None})
    assert "Node a: metadata.labels" in reply["Error"]


@pytest.mark.parametrize("asked", [pod("plain"), pod("p", "c")], ids=["plain", "devices"])
@pytest.mark.parametrize("names", [None, []], ids=["null", "empty"])
async def test_no_nodes_in_no_nodes_out(client: AsyncClient, asked: Object, names: list[str] | None) -> None:
    body = {"Pod": asked, "Nodes": None, "NodeNames": names}
    assert await post(client, "filter", body) == {
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "NodeNames": [],
    }
    assert await post(client, "prioritize", body) == []


@pytest.mark.parametrize("verb", VERBS)
async def test_a_body_over_the_limit_is_an_error(cluster: Cluster, verb: str) -> None:
    settings = load("server: {bodyLimitBytes: 1024}")
    async with client_of(cluster.app(settings)) as client:
        assert await post(client, verb, b" " * 1025) == {"Error": "the body is longer than the limit of 1024 bytes"}
        assert "not JSON" in (await post(client, verb, b" " * 1024))["Error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/explain/ns", 404, "no such path: /explain/ns; did you mean /explain/{namespace}/{pod}?"),
        ("POST", "/explian", 404, "no such path: /explian; did you mean /explain?"),
        ("POST", "/nonsense", 404, "no such path: /nonsense; GET / lists what there is"),
        ("POST", "/filter/", 404, "no such path: /filter/; did you mean /filter?"),
        ("GET", "/filter/", 404, "no such path: /filter/; did you mean /filter?"),
        ("GET", "/pod", 404, "no such path: /pod; did you mean /pods?"),
        ("GET", "/claim?pod=x", 404, "no such path: /claim; did you mean /claims?"),
        ("GET", "/filter", 405, "/filter does not take GET; use POST"),
        ("PUT", "/bind", 405, "/bind does not take PUT; use POST"),
        ("POST", "/livez", 405, "/livez does not take POST; use GET or HEAD"),
    ],
)
async def test_what_is_not_there_is_a_json_error(
    client: AsyncClient, method: str, path: str, status: int, message: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.json()) == (status, {"error": message})


async def gettable(client: AsyncClient) -> list[str]:
    """Each path that takes GET, with a pod of the cluster; without the stream of changes, which has no end."""
    paths = (await client.get("/openapi.json")).json()["paths"]
    found = [path for path, operations in paths.items() if "get" in operations and path != "/console/changes"]
    return ["/openapi.json", *(path.replace("{namespace}", "ns").replace("{pod}", "p") for path in found)]


async def test_head_is_answered_as_get_on_every_path(client: AsyncClient) -> None:
    for path in await gettable(client):
        head, got = await client.head(path), await client.get(path)
        assert (head.status_code, head.headers["content-type"]) == (got.status_code, got.headers["content-type"]), path
        assert (head.content, head.headers["content-length"].isdigit()) == (b"", True), path


@pytest.mark.parametrize(("path", "status"), [("/nonsense", 404), ("/claims?limit=x", 400), ("/explain/ns/x", 404)])
async def test_head_has_the_status_of_errors(client: AsyncClient, path: str, status: int) -> None:
    assert (await client.head(path)).status_code == status


@pytest.mark.parametrize(("method", "path", "allow"), [("HEAD", "/filter", "POST"), ("DELETE", "/pods", "GET, HEAD")])
async def test_methods_that_a_path_takes_are_named(client: AsyncClient, method: str, path: str, allow: str) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/claims?limit=1&limit=2", "limit: given 2 times; give it once"),
        ("/claims?limit=1&limit=1&limit=", "limit: given 3 times; give it once"),
        (
            "/devices?state=free&node=a&state=shared&node=b",
            "state: given 2 times; give it once; node: given 2 times; give it once",
        ),
        ("/pods?continue=a&continue=b", "continue: given 2 times; give it once"),
        ("/readyz?verbose&verbose", "verbose: given 2 times; give it once"),
        ("/claims?x=1&x=2", 'unknown parameter "x"'),
    ],
)
async def test_parameter_that_is_given_twice_is_refused_by_its_name(client: AsyncClient, path: str, error: str) -> None:
    response = await client.get(path)
    assert response.status_code == 400
    assert response.json()["error"].startswith(error)


async def test_parameter_that_takes_several_values_may_be_given_twice(client: AsyncClient) -> None:
    assert (await client.get("/explain/ns/p?node=a&node=b")).status_code == 200
