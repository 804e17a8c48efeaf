"""The demo in a real browser: within its first minute, each view has something to show."""

import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.service import Served
from tests.kit.process import Process, answers, free_port

Open = Callable[..., Console]

SPEED = 2
A_MINUTE = 60_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "extender", "demo", "--port", str(port), "--speed", str(SPEED))
    process = Process("dra-extender", command, answers(f"{url}/readyz"), tmp_path_factory.mktemp("demo") / "log")
    process.start(within=60)
    try:
        yield Served(url, {}, (), process)
    finally:
        process.stop()


def test_a_newcomer_sees_why_pods_wait_what_was_decided_and_what_is_planned(console: Open, demo: Served) -> None:
    waiting, decisions = console(demo, "#/waiting"), console(demo, "#/decisions")
    fleet, autoscaler, usage = console(demo), console(demo, "#/autoscaler"), console(demo, "#/usage")
    expect(autoscaler.one(".group-plan").first).to_contain_text("falcon", timeout=A_MINUTE)
    expect(autoscaler.one(".session").first).to_contain_text("the demo's autoscaler")
    expect(decisions.one("tbody tr", has_text="bound to").first).to_be_visible()
    expect(fleet.one(".cell .allocated").first).to_be_visible()
    expect(usage.one("table[aria-label='Devices and device-hours'] tbody tr").first).to_be_visible(timeout=A_MINUTE)
    expect(waiting.one(".pod .reason").first).to_contain_text("device", timeout=A_MINUTE)


def test_an_urgent_pod_evicts_another_one_before_the_eyes_of_the_reader(console: Open, demo: Served) -> None:
    page = console(demo, "#/decisions?text=urgent")
    expect(page.one("tbody tr", has_text="bound to").first).to_be_visible(timeout=2 * A_MINUTE)


def test_an_empty_view_says_what_would_fill_it(console: Open, example: Served) -> None:
    filtered = console(example, "#/waiting?text=no-such-words")
    expect(filtered.one(".note", has_text="No waiting pod matches; without filters there are")).to_be_visible()
    unheard = console(example, "#/decisions?text=no-such-words")
    expect(unheard.one(".note", has_text="No decision matches; without filters there are")).to_be_visible()
    expect(console(example, "#/autoscaler").one(".note", has_text="make demo plays one")).to_be_visible()
