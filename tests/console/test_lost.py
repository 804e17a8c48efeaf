"""What a page shows while the service is away, is slow, or refuses: nothing that is no longer so."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Route, expect

from tests.console.browser import Console
from tests.console.service import Served, over_manifests
from tests.kit.places import ROOT

Open = Callable[..., Console]

AS_OF = re.compile(r"^as of \d\d:\d\d:\d\d, not connected$")


@pytest.fixture(scope="module")
def fleeting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of its own, which a test may stop."""
    with over_manifests(tmp_path_factory.mktemp("fleeting"), ROOT / "config" / "example") as served:
        yield served


class Held:
    """Requests that the service has answered, and whose answers have not reached the page."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def hold(self, route: Route) -> None:
        reply = route.fetch()
        self._waiting.append(lambda: route.fulfill(response=reply))

    def let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer()

    def __len__(self) -> int:
        return len(self._waiting)


def wait_until(page: Console, holds: Callable[[], bool]) -> None:
    """Let the page run until something holds; the test's own limit ends it."""
    while not holds():
        page.page.wait_for_timeout(20)


def without_refusals(page: Console) -> None:
    """Chromium logs each answer with an error status."""
    page.problems[:] = [each for each in page.problems if not each.startswith("Failed to load resource")]


def test_a_service_that_is_gone_is_not_live_and_one_that_comes_back_is(console: Open, fleeting: Served) -> None:
    page = console(fleeting)
    page.one(".live.open").wait_for()
    fleeting.process.stop()
    expect(page.one(".live")).to_have_text(AS_OF, timeout=6000)
    expect(page.one("main.past")).to_be_visible()
    page.page.wait_for_timeout(3000)
    expect(page.one(".live")).to_have_text(AS_OF)
    fleeting.process.start(within=60)
    expect(page.one(".live")).to_have_text("live")
    expect(page.one("main.past")).to_have_count(0)
    (node, *_) = fleeting.filter("demo", "notebook")
    before = page.one(".cell .allocated").count()
    fleeting.bind("demo", "notebook", node)
    expect(page.one(".cell .allocated")).to_have_count(before + 1)
    without_refusals(page)


def test_what_changes_while_the_waiting_pods_are_read_is_shown(console: Open, fleeting: Served) -> None:
    page = console(fleeting)
    page.one(".live.open").wait_for()
    held = Held()
    page.page.route("**/pods?*", held.hold)
    page.one("nav a", has_text="Waiting").click()
    wait_until(page, lambda: len(held) == 1)
    fleeting.filter("demo", "no-such-class")
    page.page.wait_for_timeout(1500)  # the message comes before the answer that does not know of it
    held.let_go()
    row = page.one(".pod", has_text="no-such-class")
    expect(row).to_contain_text("device class tensor.example.com does not exist")


def test_changes_that_come_all_the_time_do_not_keep_a_pod_from_its_page(console: Open, fleeting: Served) -> None:
    page = console(fleeting)
    page.one(".live.open").wait_for()
    held = Held()
    page.page.route("**/explain/**", held.hold)
    page.page.goto(f"{fleeting.url}/#/pod/demo/five-quarters")
    for _ in range(6):
        fleeting.filter("demo", "five-quarters")
        page.page.wait_for_timeout(500)
    held.let_go()
    expect(page.one(".verdict")).to_contain_text("fits nowhere")
    page.page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize(
    ("request_path", "route", "shown"),
    [
        ("**/console/fleet", "", ".line"),
        ("**/pods?*", "#/waiting", ".pod"),
        ("**/decisions?*", "#/decisions", ".log"),
        ("**/devices?*", "#/device/gpu.example.com/gpu-east-2/gpu-0", ".facts"),
        ("**/console/matches?*", "#/fleet?class=gpu.example.com", ".line"),
    ],
)
def test_an_error_at_first_is_shown_and_the_read_is_tried_again(
    console: Open, fleeting: Served, request_path: str, route: str, shown: str
) -> None:
    page = console(fleeting, "#/pod/demo/notebook")
    page.page.goto("about:blank")
    page.page.route(request_path, lambda each: each.fulfill(status=503, json={"error": "it is too early"}), times=1)
    page.page.goto(f"{fleeting.url}/{route}")
    expect(page.one(".problem").first).to_contain_text("it is too early")
    expect(page.one(shown).first).to_be_visible()
    expect(page.one(".problem")).to_have_count(0)
    without_refusals(page)


def test_the_devices_are_asked_for_once_and_before_the_page_has_come(console: Open, fleeting: Served) -> None:
    page = console(fleeting, "#/pod/demo/notebook")
    page.page.goto("about:blank")
    held, asked = Held(), list[str]()
    page.page.on("request", lambda each: asked.append(each.url.removeprefix(fleeting.url)))
    page.page.route("**/main.js", held.hold)
    page.page.goto(f"{fleeting.url}/", wait_until="commit")
    wait_until(page, lambda: len(held) == 1 and "/console/fleet" in asked)
    held.let_go()
    expect(page.one(".line").first).to_be_visible()
    assert asked.count("/console/fleet") == 1


def test_no_number_of_the_filter_before_stands_beside_a_new_filter(console: Open, fleeting: Served) -> None:
    page = console(fleeting, "#/fleet?class=gpu.example.com")
    expect(page.one(".answer")).to_contain_text("devices free · gpu.example.com")
    held = Held()
    page.page.route("**/console/matches?*", held.hold)
    page.one("select[name=class]").select_option("nic.example.com")
    expect(page.one(".answer")).to_have_text("… of … devices free · nic.example.com")
    expect(page.one(".lines")).to_have_attribute("aria-busy", "true")
    wait_until(page, lambda: len(held) == 1)
    held.let_go()
    expect(page.one(".lines")).to_have_attribute("aria-busy", "false")
    nics = fleeting.table("devices?class=nic.example.com")
    free = [each for each in nics if each["state"] == "free"]
    expect(page.one(".answer")).to_have_text(f"{len(free)} of {len(nics)} devices free · nic.example.com")


def test_a_page_that_is_refused_a_stream_says_why_and_shows_what_it_has_read(console: Open, fleeting: Served) -> None:
    page = console(fleeting, "#/pod/demo/notebook")
    full = "64 pages are open already; close one"
    page.page.route("**/console/changes?*", lambda each: each.fulfill(status=503, json={"error": full}))
    page.open()
    expect(page.one(".line").first).to_be_visible()
    expect(page.one(".problem")).to_have_text(f"This page does not follow changes: {full}")
    expect(page.one(".live")).to_have_text(AS_OF)
    without_refusals(page)
