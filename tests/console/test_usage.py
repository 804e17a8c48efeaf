"""Usage, in the browser: who held what in the last day, how long pods waited, and what was free but in pieces."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from playwright.sync_api import Route, expect

from extender.answers.usage.usage import By, Usage
from extender.answers.usage.usage_table import UNKNOWN_PIECES, Window, minutes_of, usage_view, waits_view
from extender.kube.api import Event, EventType
from extender.kube.resources import CLAIMS, PODS
from extender.tools.table import Rows
from tests.console.browser import Console
from tests.console.service import Served, over_manifests
from tests.console.test_pictures import take
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, pod, state_of

Open = Callable[..., Console]

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = [f"team-{number}" for number in range(8)]
WORLD = [GPU, node("a"), local_slice("a", devices=16, attributes={"model": {"string": "h100"}})]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service over a device that a claim holds."""
    folder = tmp_path_factory.mktemp("held")
    (folder / "objects.yaml").write_text(yaml.safe_dump_all([*WORLD, claim("one", allocated=["a/gpu-0"], at="a")]))
    with over_manifests(folder, folder / "objects.yaml") as found:
        yield found


def of_namespace(obj: Object, namespace: str) -> Object:
    metadata = {**obj["metadata"], "namespace": namespace, "uid": f"uid-{namespace}-{obj['metadata']['name']}"}
    return {**obj, "metadata": metadata}


def of_a_day() -> Usage:
    """Eight teams take a device each, one every two hours, and keep it; in the end, two devices are in pieces."""
    state, now = state_of(WORLD), STARTED
    usage = Usage(state, lambda: now)
    usage.look(state.snapshot)
    usage.found_in_pieces({})
    for number, team in enumerate(NAMES):
        created = now.isoformat().replace("+00:00", "Z")
        waiting = of_namespace(pod("p", "c", created=created), team)
        state.apply(Event(EventType.ADDED, PODS, waiting))
        usage.look(state.snapshot)
        now += timedelta(seconds=60 * (number + 1))
        state.apply(
            Event(EventType.ADDED, CLAIMS, of_namespace(claim("c", allocated=[f"a/gpu-{number}"], at="a"), team))
        )
        placed = of_namespace(pod("p", "c", on="a", created=created), team)
        placed["metadata"]["resourceVersion"] = "2"
        state.apply(Event(EventType.MODIFIED, PODS, placed))
        usage.look(state.snapshot)
        now += timedelta(hours=2)
    usage.found_in_pieces({DRIVER: 2})
    now += timedelta(hours=5)
    usage.look(state.snapshot)
    return usage


@pytest.fixture(scope="module")
def day() -> Callable[[Route], None]:
    """Answers about a day, by the code of the service."""
    usage = of_a_day()

    def answer(route: Route) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()}
        step = query.get("step", "")
        window = Window(minutes_of(query["window"]), minutes_of(step) if step else 0)
        wanted = {"driver": query.get("driver", "")}
        view = (
            waits_view(usage, window) if "waits" in query else usage_view(usage, By(query["by"]), window, wanted=wanted)
        )
        route.fulfill(json={"items": list(Rows.of(view))})

    return answer


@pytest.fixture
def opened(console: Open, served: Served, day: Callable[[Route], None]) -> Open:
    """Opens the view of the day."""

    def found(route: str = "#/usage", **options: Any) -> Console:
        page = console(served, **options)
        page.page.route("**/usage?*", day)
        page.page.evaluate("route => { location.hash = route }", route)
        page.one(".chart, .note").first.wait_for()
        return page

    return found


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (400, "dark"), (1280, "light"), (1280, "dark")])
def test_the_view_is_accessible(opened: Open, width: int, scheme: str) -> None:
    page = opened(width=width, scheme=scheme)
    page.one(".chart").wait_for()
    assert page.violations() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_service_that_has_just_begun_shows_what_it_knows(console: Open, served: Served) -> None:
    page = console(served, "#/usage")
    expect(page.one(".answer")).to_contain_text(f"6% of 16 devices of {DRIVER} were held: 1 on average")
    expect(page.one("main .note").first).to_contain_text("when this replica began to watch")
    expect(page.one(".chart .reading")).to_contain_text("ns 1, of 16 devices")


def test_the_table_beside_has_the_names_with_the_most_hours_first(opened: Open) -> None:
    page = opened()
    rows = page.texts("table[aria-label='Devices and device-hours'] tbody tr")
    assert [row.split()[0] for row in rows] == NAMES
    assert rows[0].split()[1:4] == ["1", "6%", "1"]


def test_names_with_less_share_the_last_part_of_the_columns(opened: Open) -> None:
    page = opened()
    assert page.texts(".legend li") == [*NAMES[:5], "all others", "all there are"]
    fills = page.page.evaluate(
        "[...document.querySelectorAll('.chart .columns rect[fill]')].map((each) => each.getAttribute('fill'))"
    )
    assert {f"url(#pattern-{number})" for number in range(6)} == set(fills)


def test_columns_are_read_with_the_keyboard(opened: Open) -> None:
    page = opened()
    columns = page.one(".columns")
    expect(page.one(".reading")).to_contain_text("of 16 devices; 2 free in pieces")
    columns.focus()
    page.page.keyboard.press("Home")
    expect(columns).to_have_attribute("aria-valuenow", "0")
    expect(page.one(".reading")).not_to_contain_text("pieces")
    page.page.keyboard.press("ArrowRight")
    expect(columns).to_have_attribute("aria-valuenow", "1")
    expect(columns).to_have_attribute("aria-valuetext", page.one(".reading").inner_text())
    page.page.keyboard.press("End")
    expect(page.one(".reading")).to_contain_text("all others 3")


def test_the_mouse_reads_a_column_too(opened: Open) -> None:
    page = opened()
    page.one(".columns").hover(position={"x": 2, "y": 20})
    expect(page.one(".columns")).to_have_attribute("aria-valuenow", "0")


def test_what_is_chosen_stands_in_the_address_and_in_the_file(opened: Open) -> None:
    page = opened()
    page.one("select[name=by]").select_option("model")
    page.one("select[name=window]").select_option("1h")
    expect(page.one(".legend li").first).to_have_text("h100")
    assert page.route() == "#/usage?by=model&window=1h"
    href = "usage?by=model&window=1h&step=1m&format=csv&limit=10000"
    expect(page.one("a.csv")).to_have_attribute("href", href)


def test_how_long_pods_waited(opened: Open) -> None:
    page = opened()
    (first, *_) = page.texts("table[aria-label='How long pods waited'] tbody tr")
    assert first.split()[:3] == ["team-0", "0", "1"]


def test_a_replica_that_no_scheduler_asks_says_that_it_does_not_know_what_is_in_pieces(
    console: Open, tmp_path: Path
) -> None:
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all([*WORLD, claim("c"), pod("p", "c")]))
    with over_manifests(tmp_path, tmp_path / "objects.yaml") as waiting:
        page = console(waiting, "#/usage")
        expect(page.one("main .note").first).to_contain_text(UNKNOWN_PIECES)
        expect(page.one(".chart .reading")).to_contain_text("not known what is free in pieces")


def test_the_picture_of_the_docs_can_be_taken(opened: Open, tmp_path: Path) -> None:
    page = opened(width=1200, height=1010)
    page.one(".live.open").wait_for()
    page.one(".chart").wait_for()
    assert take(page, "console-usage.png", tmp_path) > 10_000


def test_the_file_is_csv(console: Open, served: Served) -> None:
    page = console(served, "#/usage")
    with page.page.expect_download() as downloading:
        page.one("a.csv").click()
    download = downloading.value
    assert download.suggested_filename == "usage.csv"
    assert download.path().read_text().startswith("time,namespace,driver,devices,of,share,peak,hours")
