"""The walk of a newcomer after `make serve`: each view explains itself, and the first questions have answers."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.service import Served
from tests.kit.places import ROOT
from tests.kit.process import Process, answers, free_port

Open = Callable[..., Console]

EMPTY = {
    "#/quotas": "There are no DeviceQuotas: a DeviceQuota limits",
    "#/gangs": "No pod with devices is in a gang: pods that get devices all or none come here.",
    "#/preemptions": "No pod waits for evictions: a pod for which others are evicted comes here",
    "#/decisions": "What a scheduler is answered about a pod with devices comes here: make demo plays one.",
    "#/autoscaler": "An autoscaler begins one with POST /autoscaler/start, and what it plans comes here: make demo",
}
"""The views in which nothing is to be seen over the example cluster, and what each says would fill it."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """By the command of the README."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ("make", "--no-print-directory", "-C", str(ROOT), "serve", f"PORT={port}")
    process = Process("make serve", command, answers(f"{url}/readyz"), tmp_path_factory.mktemp("serve") / "log")
    process.start(within=120)
    try:
        yield Served(url, {}, (), process)
    finally:
        process.stop()


def test_the_fleet_says_how_many_devices_are_free_and_what_a_mark_means(console: Open, served: Served) -> None:
    page = console(served)
    expect(page.one(".answer")).to_contain_text(re.compile(r"^\d+ of \d+ devices free"))
    assert {"free", "allocated"} <= {text.split()[1] for text in page.texts(".states button")}
    page.one(".cell a").first.hover()
    expect(page.one("#tooltip")).to_be_visible()


def test_each_pod_says_why_it_waits_as_filter_would_say_now(console: Open, served: Served) -> None:
    page = console(served, "#/waiting")
    pending = served.table("pods?state=pending")
    reasons = page.texts(".pod .reason")
    assert (len(reasons), all(reasons)) == (len(pending), True)
    page.one(".pod", has_text="five-quarters").click()
    expect(page.one(".verdict")).to_contain_text("fits nowhere: ")
    expect(page.one(".part h2", has_text="What would make it fit")).to_be_visible()


@pytest.mark.parametrize("route", EMPTY)
def test_an_empty_view_says_what_would_fill_it(console: Open, served: Served, route: str) -> None:
    expect(console(served, route).one(".note", has_text=EMPTY[route])).to_be_visible()


def test_no_view_is_empty_without_a_word(console: Open, served: Served) -> None:
    page = console(served)
    routes = [str(each.get_attribute("href")) for each in page.one("nav a").all()]
    assert len(routes) >= len(EMPTY)
    for route in routes:
        page.open(route)
        page.one(".note, .line, .pod, tbody tr, form").first.wait_for()
        assert page.one("main").inner_text().strip(), route


def test_a_newcomer_asks_what_if_and_learns_what_is_wrong(console: Open, served: Served) -> None:
    page = console(served, "#/problems")
    page.one("td a", has_text="demo/no-such-class").click()
    page.one("a", has_text="What if it asked for something else?").click()
    expect(page.one("h1")).to_be_attached()
    assert page.route().startswith("#/what-if?pod=demo%2Fno-such-class")
