"""Who asks: programs, by whatever name they were told; no pages of other web sites."""

from collections.abc import AsyncIterator

import orjson
import pytest
from httpx import AsyncClient

from extender.config.sources import load
from extender.faces.http.callers import Callers
from tests.kit.clusters import Cluster, binding, client_of, node, pod

OURS = [
    "127.0.0.1:8888",
    "127.0.0.1",
    "10.0.3.7:8889",
    "[::1]:8888",
    "[::1]",
    "[fe80::1%25eth0]:8888",
    "localhost",
    "LocalHost:8888",
    "localhost.",
    "extender.kube-system.svc",
    "EXTENDER.kube-system.svc.:8888",
    "node-7",
]
OTHERS = [
    "evil.example",
    "evil.example:8888",
    "127.0.0.1.evil.example",
    "localhost.evil.example:8888",
    "evil.example:127.0.0.1",
    "kube-system.svc",
    "[evil.example]",
    "[::1].evil.example",
    "[::1].evil.example:8888",
    "[::1]evil.example",
    "[::1",
    "::1]",
    "[[::1]]",
    "[::1]:8888:evil.example",
    "[::1]:evil.example",
    "::1",
    "127.0.0.1:8888.evil.example",
    "127.0.0.1:",
    "127.0.0.1:888888",
    "127.0.0.1@evil.example",
    "evil.example@127.0.0.1",
    "user:password@localhost",
    "localhost/evil.example",
    "localhost#evil.example",
    "localhost evil.example",
    "localhost,evil.example",
    "localhost..",
    ".localhost",
    " localhost",
    "localhost\t",
    "127.0.0.1.",
    "127.1",
    "0x7f.0.0.1",
    "256.0.0.1",
    "127.0.0.01",
    "[127.0.0.1]",
    "2130706433",
    "",
    "\xff",
]
CALLERS = Callers(("node-7", "extender.kube-system.svc"))


@pytest.mark.parametrize("host", OURS)
def test_addresses_and_names_that_are_known_are_answered(host: str) -> None:
    assert CALLERS.refusal("POST", [(b"accept", b"*/*"), (b"host", host.encode())]) == ""


@pytest.mark.parametrize("host", OTHERS)
def test_other_names_are_refused(host: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        assert "server.allowedHosts" in CALLERS.refusal(method, [(b"host", host.encode("latin-1"))])


def test_one_of_two_hosts_that_is_not_known_suffices() -> None:
    assert CALLERS.refusal("GET", [(b"host", b"localhost"), (b"host", b"evil.example")])


def test_programs_of_old_send_no_host() -> None:
    assert CALLERS.refusal("GET", [(b"accept", b"*/*")]) == ""


HERE = (b"host", b"127.0.0.1:8888")
FROM_ELSEWHERE = [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"navigate")]
BY_A_PERSON = (b"sec-fetch-user", b"?1")
PAGES = {
    "form of another site": ("POST", [(b"origin", b"https://evil.example"), (b"sec-fetch-site", b"cross-site")]),
    "form of another site, old browser": ("POST", [(b"origin", b"https://evil.example")]),
    "sandboxed page": ("POST", [(b"origin", b"null")]),
    "page that claims to be ours": ("POST", [(b"origin", b"http://127.0.0.1:8888")]),
    "same site, another port": ("POST", [(b"sec-fetch-site", b"same-site")]),
    "frame on another site": ("GET", [*FROM_ELSEWHERE, (b"sec-fetch-dest", b"iframe"), BY_A_PERSON]),
    "redirect by a script of another site": ("GET", [*FROM_ELSEWHERE, (b"sec-fetch-dest", b"document")]),
    "form that a person sends": ("POST", [*FROM_ELSEWHERE, (b"sec-fetch-dest", b"document"), BY_A_PERSON]),
    "image on another site": ("GET", [(b"sec-fetch-site", b"cross-site")]),
    "script on another site": ("GET", [(b"origin", b"http://127.0.0.1:9999")]),
    "script on another site that asks first": ("OPTIONS", [(b"origin", b"https://evil.example")]),
}
PEOPLE = {
    "address that was typed": [(b"sec-fetch-site", b"none")],
    "link on another site": [*FROM_ELSEWHERE, (b"sec-fetch-dest", b"document"), BY_A_PERSON],
    "link on our own page": [(b"sec-fetch-site", b"same-origin")],
    "script on our own page": [(b"origin", b"http://127.0.0.1:8888"), (b"sec-fetch-site", b"same-origin")],
}


@pytest.mark.parametrize(("method", "headers"), PAGES.values(), ids=PAGES)
def test_requests_of_web_pages_are_refused(method: str, headers: list[tuple[bytes, bytes]]) -> None:
    for order in ([HERE, *headers], [*headers, HERE]):
        assert "refused" in CALLERS.refusal(method, order)


@pytest.mark.parametrize("headers", PEOPLE.values(), ids=PEOPLE)
def test_people_may_look(headers: list[tuple[bytes, bytes]]) -> None:
    assert CALLERS.refusal("GET", [HERE, *headers]) == ""


# --- on HTTP -------------------------------------------------------------------------------------------------


OBJECTS = (node("a"), pod("plain"))


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with client_of(cluster.app(load("server: {allowedHosts: [known]}"))) as found:
        yield found


EVIL = {"host": "evil.example:8888"}
BIND = orjson.dumps(binding("plain", "a"))


@pytest.mark.parametrize("headers", [EVIL, {"origin": "https://evil.example", "content-type": "text/plain"}])
async def test_a_page_binds_no_pod(client: AsyncClient, cluster: Cluster, headers: dict[str, str]) -> None:
    response = await client.post("/bind", content=BIND, headers=headers)
    assert response.status_code == 200  # of any other status kube-scheduler would not show why
    assert "evil.example" in response.json()["Error"]
    assert await cluster.node_of("plain") == ""
    response = await client.post("/bind", content=BIND, headers={"host": "known:8888"})
    assert response.json() == {}


@pytest.mark.parametrize("path", ["/", "/devices", "/explain/ns/plain", "/openapi.json", "/livez", "/nowhere"])
async def test_a_page_learns_nothing(client: AsyncClient, path: str) -> None:
    response = await client.get(path, headers=EVIL)
    assert (response.status_code, list(response.json())) == (403, ["error"])
    assert (await client.get(path, headers={"host": "known"})).status_code != 403


async def test_what_curl_sends_is_answered_whatever_its_content_type(client: AsyncClient) -> None:
    for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
        assert (await client.post("/bind", content=BIND, headers={"content-type": kind})).json() == {}
