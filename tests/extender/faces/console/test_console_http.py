"""The console over HTTP: browsers get the page, everybody else gets what they got before."""

import re
from typing import Final

import pytest
from httpx import AsyncClient

from extender.faces.http.app import Listener
from extender.faces.http.endpoints.console import page_files
from tests.kit.clusters import Cluster, client_of
from tests.kit.places import ROOT

CHROMIUM: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
PAGE: Final = ROOT / "extender" / "faces" / "console" / "page"


def client(listener: Listener = Listener.SERVER) -> AsyncClient:
    return client_of(Cluster.of().app(listener=listener))


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (CHROMIUM, "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
        ("text/html;q=0.5, application/json;q=0.4", "text/html; charset=utf-8"),
        ("text/html;q=0.4, application/json;q=0.5", "application/json"),
        ("text/html;q=0", "application/json"),
        ("text/*", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("", "application/json"),
    ],
)
async def test_the_index_is_a_page_for_those_who_name_html(accept: str, kind: str) -> None:
    async with client() as asked:
        reply = await asked.get("/", headers={"accept": accept})
    assert (reply.status_code, reply.headers["content-type"], reply.headers["vary"]) == (200, kind, "Accept")


@pytest.mark.parametrize(
    ("listener", "status"), [(Listener.SERVER, 200), (Listener.API, 200), (Listener.OPERATIONS, 404)]
)
async def test_the_console_is_where_the_tables_are(listener: Listener, status: int) -> None:
    async with client(listener) as asked:
        found = {
            path: (await asked.get(path, headers={"accept": CHROMIUM})).status_code
            for path in ("/", "/devices", "/console/fleet", "/console/files/main.js")
        }
    assert set(found.values()) == {status}


@pytest.mark.parametrize("name", sorted(page_files()))
async def test_a_file_of_the_page_runs_nothing_that_is_not_from_here(name: str) -> None:
    async with client() as asked:
        reply = await asked.get(f"/console/files/{name}")
        policy = reply.headers["content-security-policy"]
        again = await asked.get(f"/console/files/{name}", headers={"if-none-match": reply.headers["etag"]})
    assert (reply.status_code, again.status_code, again.content) == (200, 304, b"")
    assert "unsafe" not in policy
    assert {"default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'"} <= set(policy.split("; "))
    assert (reply.headers["x-content-type-options"], "set-cookie" in reply.headers) == ("nosniff", False)


async def test_an_unknown_file_is_not_looked_for_in_folders() -> None:
    async with client() as asked:
        for name in ("nothing.js", "..%2Ffeed.py", "%2e%2e/feed.py", "lit-html.LICENSE.txt"):
            assert (await asked.get(f"/console/files/{name}")).status_code == 404


async def test_head_of_the_stream_has_no_stream() -> None:
    async with client() as asked:
        reply = await asked.head("/console/changes")
    assert (reply.status_code, reply.headers["content-type"], reply.content) == (
        200,
        "text/event-stream; charset=utf-8",
        b"",
    )


@pytest.mark.parametrize("value", ["x", "-1", "1.5"])
async def test_a_position_is_a_number(value: str) -> None:
    async with client() as asked:
        assert (await asked.get(f"/console/changes?after={value}")).status_code == 400


def test_the_page_loads_only_its_own_files() -> None:
    named = {
        name
        for path in PAGE.iterdir()
        if path.suffix in (".js", ".html") and path.name != "lit-html.js"
        for name in re.findall(r'(?:from "\./|"console/files/)([\w.-]+)"', path.read_text())
    }
    assert named | {"index.html"} == set(page_files())


def test_text_of_others_goes_through_one_template_function() -> None:
    """Only text.js imports the template of lit-html; its own cleans each text. Nothing writes markup."""
    sources = {path.name: path.read_text() for path in PAGE.glob("*.js") if path.name != "lit-html.js"}
    assert [
        name for name, source in sources.items() if re.search(r'\bhtml\b[^}]*} from "\./lit-html\.js"', source)
    ] == ["text.js"]
    assert [
        name
        for name, source in sources.items()
        if re.search(r"innerHTML|outerHTML|insertAdjacentHTML|unsafe|eval\(|document\.write", source)
    ] == []


def test_a_module_of_the_page_has_fewer_than_400_lines() -> None:
    assert [path.name for path in PAGE.iterdir() if len(path.read_text().splitlines()) >= 400] == []
