"""Each view of the console over the example cluster: what it shows, its filters, its links, its keys."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import expect

from allocator.checks import DeviceState
from tests.console.browser import Console
from tests.console.service import Served

Open = Callable[..., Console]

VIEWS = {
    "fleet": "",
    "waiting": "#/waiting",
    "problems": "#/problems",
    "claims": "#/claims",
    "classes": "#/classes",
    "pools": "#/pools",
    "quotas, of which there are none": "#/quotas",
    "gangs, of which there are none": "#/gangs",
    "preemptions, of which there are none": "#/preemptions",
    "usage": "#/usage",
    "decisions": "#/decisions",
    "moves, of which there are none": "#/defragment",
    "a pod that waits": "#/pod/demo/five-quarters",
    "a pod that is bound": "#/pod/demo/inference",
    "a device": "#/device/gpu.example.com/gpu-east-2/gpu-0",
    "a shared device": "#/device/uplink.example.com/edge-east-1/uplink-0",
    "a claim": "#/claim/demo/annotator-gpu-x7k2p",
    "a node": "#/node/gpu-east-2",
}


FINGER = 24
"""The least width and height of what is touched, in CSS pixels (WCAG 2.2, 2.5.8)."""

_HEADINGS = "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((each) => each.localName)"

# Links within a text are as high as its lines (the exception of WCAG), and what is unseen is not touched.
_TARGETS = """[...document.querySelectorAll('a, button, select, input, summary')]
  .filter((each) => !each.closest('p, li, dd, h3, td, .skip, .top p') || each.matches('button, .pod'))
  .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
  .map(([text, {width, height}]) => [text, width, height])"""


def answer(page: Console) -> str:
    return page.texts(".answer")[0]


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
@pytest.mark.parametrize("route", VIEWS.values(), ids=VIEWS.keys())
def test_every_view_is_accessible(console: Open, example: Served, route: str, width: int, scheme: str) -> None:
    page = console(example, route, width=width, scheme=scheme)
    page.one(".live.open").wait_for()
    assert page.violations() == []


@pytest.mark.parametrize("route", VIEWS.values(), ids=VIEWS.keys())
def test_every_view_has_headings_in_order(console: Open, example: Served, route: str) -> None:
    page = console(example, route)
    levels = [int(each[1]) for each in page.page.evaluate(_HEADINGS)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels


@pytest.mark.parametrize("route", VIEWS.values(), ids=VIEWS.keys())
def test_every_view_can_be_used_with_a_finger(console: Open, example: Served, route: str) -> None:
    page = console(example, route, width=360, has_touch=True, is_mobile=True)
    page.one(".live.open").wait_for()
    assert page.violations() == []
    assert [each for each in page.page.evaluate(_TARGETS) if min(each[1:]) < FINGER] == []


@pytest.mark.parametrize("group", ["", "&group=topology.kubernetes.io/zone"], ids=["nodes", "groups"])
@pytest.mark.parametrize("width", [360, 726, 743, 760, 761, 1280, 3840])
def test_rows_of_the_fleet_are_as_high_as_the_list_counts_on(
    console: Open, example: Served, width: int, group: str
) -> None:
    """Else the last rows could not be reached."""
    page = console(example, f"#/fleet?{group}", width=width, height=6000)
    page.one(".line").first.wait_for()
    drawn, counted = page.page.evaluate("['.shown', '.tall'].map(each => document.querySelector(each).offsetHeight)")
    assert drawn == counted


@pytest.mark.parametrize("route", VIEWS.values(), ids=VIEWS.keys())
def test_every_view_is_as_wide_as_its_window(console: Open, example: Served, route: str) -> None:
    page = console(example, route)
    for width, height in ((360, 640), (768, 1024), (3840, 2160)):
        page.page.set_viewport_size({"width": width, "height": height})
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_fleet_shows_each_device_with_the_state_of_the_table(console: Open, example: Served) -> None:
    page = console(example)
    shown = {cell.get_attribute("href"): str(cell.get_attribute("aria-label")) for cell in page.one(".cell a").all()}
    table = example.table("devices")
    assert len(shown) == len(table)
    for row in table:
        label = shown[f"#/device/{row['driver']}/{row['pool']}/{row['device']}"]
        assert label.split(",")[0] == f"{row['device']}: {row['state']}"


def test_totals_are_those_of_the_table(console: Open, example: Served) -> None:
    page = console(example)
    devices = example.table("devices")
    kinds = {kind: [each for each in devices if each["kind"] == kind] for kind in ("physical", "partition")}
    free, parts = (sum(each["state"] == "free" for each in kinds[kind]) for kind in ("physical", "partition"))
    assert answer(page) == f"{free} of {len(kinds['physical'])} devices free, or up to {parts} partitions"
    gpus = Counter((each["kind"], each["state"]) for each in devices if each["driver"] == "gpu.example.com")
    all_gpus = sum(number for (kind, _), number in gpus.items() if kind == "physical")
    told = f"{gpus['physical', 'free']} of {all_gpus}, or up to {gpus['partition', 'free']} partitions"
    assert f"gpu.example.com {told}" in page.texts(".drivers li")


def test_states_count_partitions_apart_as_the_table_of_numbers_does(console: Open, example: Served) -> None:
    page = console(example)
    counts: Counter[tuple[str, str]] = Counter()
    for row in example.table("devices?count=true"):
        counts.update({(row["state"], "devices"): row["devices"], (row["state"], "partitions"): row["partitions"]})
    told = [text for text in page.texts(".states button") if not text.startswith("0 ") or "+" in text]
    assert counts["free", "partitions"], "the example has partitions"
    assert told == [
        f"{counts[state.value, 'devices']} {state.value}"
        + (f" + {parts} partition{'s' if parts > 1 else ''}" if (parts := counts[state.value, "partitions"]) else "")
        for state in DeviceState
        if counts[state.value, "devices"] or counts[state.value, "partitions"]
    ]


@pytest.mark.parametrize(
    ("filters", "query"),
    [
        ("class=gpu.example.com", "class=gpu.example.com"),
        ("driver=nic.example.com", "driver=nic.example.com"),
        ("state=tainted", "state=tainted"),
        ("class=gpu-partition.example.com&state=free", "class=gpu-partition.example.com&state=free"),
        ("text=gpu-west-1", "node=gpu-west-1"),
        ("node=gpu-west-1", "node=gpu-west-1"),
        ("node=gpu-west", "node=gpu-west"),
    ],
)
def test_a_link_with_filters_shows_what_the_table_shows(
    console: Open, example: Served, filters: str, query: str
) -> None:
    page = console(example, f"#/fleet?{filters}")
    wanted = {
        f"#/device/{each['driver']}/{each['pool']}/{each['device']}" for each in example.table(f"devices?{query}")
    }
    expect(page.one(".cell a")).to_have_count(len(wanted))
    assert {str(cell.get_attribute("href")) for cell in page.one(".cell a").all()} == wanted


def test_filters_are_kept_in_the_url_and_answer_how_many_are_free(console: Open, example: Served) -> None:
    page = console(example)
    page.one("select[name=class]").select_option("gpu.example.com")
    page.one("input[name=attribute]").fill("model=falcon-80")
    free = example.table("devices?class=gpu.example.com&state=free&wide=true")
    falcons = [each for each in free if each["attributes"]["model"] == "falcon-80"]
    expect(page.one(".answer")).to_contain_text(re.compile(rf"^{len(falcons)} of 4 devices free"))
    page.page.wait_for_function("location.hash.includes('attribute=model%3Dfalcon-80')")
    page.one("button", has_text="tainted").click()
    assert page.route() == "#/fleet?class=gpu.example.com&attribute=model%3Dfalcon-80&state=tainted"
    page.one("button.clear").click()
    assert page.route() == "#/fleet"


def test_a_class_that_does_not_exist_is_named(console: Open, example: Served) -> None:
    page = console(example, "#/fleet?class=gpus.example.com")
    expect(page.one(".problem")).to_contain_text('there is no device class "gpus.example.com"; did you mean')
    assert page.one(".cell").count() == 0
    page.problems.clear()  # Chromium logs each answer with status 400


def test_the_keyboard_goes_from_device_to_device_and_into_one(console: Open, example: Served) -> None:
    page = console(example, "#/fleet?driver=gpu.example.com")
    keys = page.page.keyboard
    page.one('.cell a[tabindex="0"]').focus()
    for key, device in [
        ("ArrowRight", "gpu-east-1/gpu-0-half-0"),
        ("ArrowDown", "gpu-east-2/gpu-0-half-0"),
        ("End", "gpu-east-2/gpu-1-quarter-3"),
        ("Home", "gpu-east-2/gpu-0"),
        ("Control+End", "software/emulation-with-tracing"),
        ("Control+Home", "gpu-east-1/gpu-0"),
    ]:
        keys.press(key)
        expect(page.one(".cell a:focus")).to_have_attribute("href", f"#/device/gpu.example.com/{device}")
    keys.press("Enter")
    expect(page.one("h1")).to_have_text("gpu.example.com/gpu-east-1/gpu-0")
    page.page.go_back()
    expect(page.one(".cell a").first).to_be_visible()
    assert page.route() == "#/fleet?driver=gpu.example.com"


def test_the_list_keeps_a_stop_of_the_keyboard_on_the_screen(console: Open, example: Served) -> None:
    page = console(example, height=420)
    lines, stop = page.one(".lines"), page.one('.cell a[tabindex="0"]')
    stop.focus()
    lines.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.one('.line[aria-rowindex="1"]')).to_have_count(0)
    expect(stop).to_have_count(1)
    expect(stop).to_be_focused()
    at = int(str(stop.get_attribute("data-line")))
    page.page.keyboard.press("ArrowUp")
    expect(stop).to_be_focused()
    expect(stop).to_have_attribute("data-line", str(at - 1))


def test_groups_of_nodes_have_totals_and_can_be_folded(console: Open, example: Served) -> None:
    page = console(example, "#/fleet?driver=gpu.example.com")
    page.one("select[name=group]").select_option(label="zone")
    assert page.route() == "#/fleet?driver=gpu.example.com&group=topology.kubernetes.io%2Fzone"
    rows = [each for each in example.table("devices?driver=gpu.example.com") if each["node"].startswith("gpu-")]
    zones = page.one(".line.sum")
    expect(zones.filter(has_text="west")).to_be_visible()  # until then, the lines are those of the groups before
    told = dict(zip(page.texts(".sum .node"), page.texts(".sum .left"), strict=True))
    for zone in ("east", "west"):
        of_zone = [
            each["state"] for each in rows if each["node"].startswith(f"gpu-{zone}") and each["kind"] == "physical"
        ]
        assert told[zone] == f"{of_zone.count('free')}/{len(of_zone)} free"
    before = page.one(".cell").count()
    zones.filter(has_text="west").locator("button").click()
    assert page.route().endswith("&fold=west")
    expect(page.one(".cell")).to_have_count(before - sum(each["node"].startswith("gpu-west") for each in rows))
    page.one("button.fold").click()
    expect(page.one(".cell")).to_have_count(before)
    page.one("button.fold").click()
    expect(page.one(".cell")).to_have_count(0)
    assert zones.count() >= 2


def test_a_group_that_nodes_do_not_have_is_named(console: Open, example: Served) -> None:
    page = console(example, "#/fleet?group=rack")
    expect(page.one(".problem")).to_contain_text("Devices are not grouped by rack; there is node.kubernetes.io/")


def test_a_node_leads_to_its_devices_alone(console: Open, example: Served) -> None:
    page = console(example, VIEWS["a device"])
    page.one("dd a", has_text="gpu-east-2").first.click()
    page.one("a", has_text="in the fleet").click()
    assert page.route() == "#/fleet?node=gpu-east-2"
    expect(page.one(".line .node").first).to_have_text("gpu-east-2")
    page.one("button.chosen").click()
    assert page.route() == "#/fleet"


def test_the_first_stop_of_the_keyboard_skips_to_the_content(console: Open, example: Served) -> None:
    page = console(example)
    page.page.keyboard.press("Tab")
    expect(page.one(".skip")).to_be_focused()
    page.page.keyboard.press("Enter")
    expect(page.one("main")).to_be_focused()


def test_a_device_says_what_is_in_the_way_and_links_there(console: Open, example: Served) -> None:
    page = console(example, VIEWS["a device"])
    (row,) = [
        each for each in example.table("devices?pool=gpu-east-2&driver=gpu.example.com") if each["device"] == "gpu-0"
    ]
    facts = dict(zip(page.texts(".facts dt"), page.texts(".facts dd"), strict=True))
    assert (facts["state"], facts["why"], facts["blocked by"]) == (
        row["state"],
        row["why"],
        ", ".join(row["blockedBy"]),
    )
    page.one("dd a", has_text="demo/annotator").click()
    expect(page.one("h1")).to_have_text("demo/annotator-gpu-x7k2p")
    page.one("dd a", has_text="demo/annotator").click()
    expect(page.one("h1")).to_have_text("demo/annotator")
    assert page.one(".neighbors .own").count() == 1


def test_an_attribute_of_a_device_leads_to_all_devices_that_have_it(console: Open, example: Served) -> None:
    page = console(example, VIEWS["a device"])
    page.one("dd a", has_text="falcon-80").click()
    expect(page.one(".answer")).to_contain_text(re.compile("devices free.* · model=falcon-80$"))


def test_waiting_shows_the_reasons_of_the_table(console: Open, example: Served) -> None:
    page = console(example, "#/waiting")
    pending = example.table("pods?state=pending")
    assert answer(page) == f"{len(pending)} pods wait for devices"
    reasons = dict(zip(page.texts(".pod .name"), page.texts(".pod .reason"), strict=True))
    assert reasons == {f"{each['namespace']}/{each['pod']}": each["reason"] for each in pending}


def test_waiting_is_filtered_by_namespace_and_text(console: Open, example: Served) -> None:
    page = console(example, "#/waiting?text=5x")
    assert page.one(".pod").count() == sum("5x" in each["reason"] for each in example.table("pods?state=pending"))
    page.one("input[name=text]").fill("")
    page.one("select[name=namespace]").select_option("ops")
    expect(page.one(".pod")).to_have_count(1)
    assert page.route() == "#/waiting?namespace=ops"


def test_a_pod_that_waits_is_explained_in_the_words_of_explain(console: Open, example: Served) -> None:
    page = console(example, "#/waiting")
    page.one(".pod", has_text="five-quarters").click()
    expect(page.one(".verdict")).to_contain_text("fits nowhere: ")
    titles = page.texts(".part h2")
    assert titles[:4] == [
        "Claims",
        "What would make it fit",
        "What each request leaves of the devices",
        "What does not go together",
    ]
    assert page.texts(".funnel > li:first-child") == ["50 devices considered"]
    assert "Ask for 4 devices instead of 5 in request gpus" in page.texts(".card h3")


def test_what_to_write_can_be_copied(console: Open, example: Served) -> None:
    page = console(example, "#/pod/demo/five-quarters")
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.one(".copy").first.click()
    expect(page.one(".copy").first).to_have_text("Copied")
    copied = page.page.evaluate("navigator.clipboard.readText()")
    assert copied == "in ResourceClaimTemplate demo/five-quarters, request gpus: write count: 4"


@pytest.mark.parametrize(
    ("route", "table", "first"),
    [
        ("#/problems", "problems", lambda row: f"{row['kind']} {row['object']}"),
        ("#/claims", "claims", lambda row: f"{row['namespace']}/{row['claim']}"),
        ("#/classes", "resources?by=class", lambda row: row["class"]),
        ("#/pools", "pools", lambda row: row["pool"]),
    ],
)
def test_a_view_of_a_table_has_a_line_for_each_row(
    console: Open, example: Served, route: str, table: str, first: Callable[[Mapping[str, Any]], str]
) -> None:
    page, rows = console(example, route), example.table(table)
    assert rows
    assert page.texts("table:last-of-type tbody td:first-child") == [first(each) for each in rows]
    assert answer(page).split()[0] == str(len(rows))


def test_a_view_of_a_table_is_filtered_by_namespace_and_by_any_text(console: Open, example: Served) -> None:
    page = console(example, "#/claims?text=gpu-east-2")
    wanted = [each for each in example.table("claims") if any("gpu-east-2" in device for device in each["devices"])]
    assert len(page.texts("tbody tr")) == len(wanted)
    page.one("input[name=text]").fill("no such text")
    expect(page.one(".note")).to_contain_text("No claim matches; without filters there are")
    page.one("input[name=text]").fill("")
    page.one("select[name=namespace]").select_option("ops")
    expect(page.one("tbody tr")).to_have_count(sum(each["namespace"] == "ops" for each in example.table("claims")))


def test_an_empty_view_of_a_table_says_what_would_fill_it(console: Open, example: Served) -> None:
    for route, told in (
        ("#/quotas", "There are no DeviceQuotas"),
        ("#/gangs", "No pod with devices is in a gang"),
        ("#/preemptions", "No pod waits for evictions"),
    ):
        expect(console(example, route).one(".note")).to_contain_text(told)


def test_a_problem_leads_to_its_pod(console: Open, example: Served) -> None:
    page = console(example, "#/problems")
    page.one("td a", has_text="demo/no-such-class").click()
    expect(page.one("h1")).to_have_text("demo/no-such-class")


def test_a_node_shows_its_devices_their_holders_and_what_would_fit(console: Open, example: Served) -> None:
    page = console(example, VIEWS["a node"])
    rows = example.table("devices?node=gpu-east-2")
    assert [text.split(" ")[0] for text in page.texts(".rows tbody td:first-child")] == [
        each["device"] for each in rows
    ]
    held = [each for each in rows if each["claims"]]
    assert [text for text in page.texts('td[data-label="held by"]') if text] == [
        ", ".join(each["claims"]) for each in held
    ]
    hardware = [each for each in rows if each["kind"] == "physical"]
    assert answer(page).startswith(
        f"{sum(each['state'] == 'free' for each in hardware)} of {len(hardware)} devices free"
    )
    classes = {each["class"]: each for each in example.table("resources?by=class&node=gpu-east-2") if each["devices"]}
    told = {f"{name}: {each['free']} of {each['devices']}" for name, each in classes.items()}
    assert set(page.texts(".chips li")) == told
    page.one("td a", has_text="annotator").first.click()
    expect(page.one("h1")).to_have_text("demo/annotator-gpu-x7k2p")


def test_the_search_finds_by_the_keyboard_alone(console: Open, example: Served) -> None:
    page = console(example)
    keys = page.page.keyboard
    keys.press("/")
    expect(page.one("#search")).to_be_focused()
    keys.type("annotator")
    expect(page.one("#found li")).to_have_text(["pod demo/annotator bound", "claim demo/annotator-gpu-x7k2p reserved"])
    assert page.violations() == []
    keys.press("ArrowDown")
    expect(page.one('#found [aria-selected="true"]')).to_contain_text("claim")
    keys.press("Enter")
    expect(page.one("h1")).to_have_text("demo/annotator-gpu-x7k2p")
    expect(page.one("#search")).to_have_value("")
    keys.press("/")
    keys.type("a/b")  # a slash in the field is a letter
    expect(page.one(".search .none")).to_contain_text('Nothing has "a/b" in its name')
    keys.press("Escape")
    expect(page.one(".search .none")).to_have_count(0)


@pytest.mark.parametrize(
    ("text", "kind", "leads"),
    [
        ("gpu-east-1", "node", "#/node/gpu-east-1"),
        ("gpu-partition", "class", "#/fleet?class=gpu-partition.example.com"),
        ("five-quarters", "pod", "#/pod/demo/five-quarters"),
        ("gpu-east-2/gpu-1", "device", "#/device/gpu.example.com/gpu-east-2/gpu-1"),
    ],
)
def test_what_the_search_finds_has_its_page(console: Open, example: Served, text: str, kind: str, leads: str) -> None:
    page = console(example)
    page.one("#search").fill(text)
    page.one("#found li", has=page.one(".quiet", has_text=re.compile(f"^{kind}$"))).first.click()
    page.page.wait_for_function(f"location.hash === {leads!r}")
    assert page.route() == leads


@pytest.mark.parametrize(
    ("route", "text"),
    [
        ("#/node/nothing", "there is no node nothing"),
        ("#/pod/demo/nothing", "pod demo/nothing does not exist"),
        ("#/claim/demo/nothing", "claim demo/nothing"),
        ("#/device/gpu.example.com/gpu-east-1/gpu-99", "there is no device gpu-99 in pool gpu.example.com/gpu-east-1"),
    ],
)
def test_an_object_that_does_not_exist_is_named(console: Open, example: Served, route: str, text: str) -> None:
    page = console(example)
    page.page.goto(f"{example.url}/{route}")
    expect(page.one("[role=alert]")).to_contain_text(text)
    page.problems.clear()  # Chromium logs each answer with status 404


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ("#/nothing", ""),
        ("#/pod/demo", "The address of a pod is #/pod/NAMESPACE/NAME."),
        ("#/%", ""),
        ("#//", ""),
        ("#/fleet/x", ""),
        ("#/__proto__", ""),
    ],
)
def test_a_link_that_leads_nowhere_says_so_and_where_links_lead(
    console: Open, example: Served, route: str, told: str
) -> None:
    page = console(example, route)
    expect(page.one("h1")).to_have_text(f"There is no page {route}")
    expect(page.one("section")).to_contain_text(told)
    assert page.violations() == []
    page.one("section a", has_text="Waiting").click()
    expect(page.one("section.waiting")).to_be_visible()


def test_decisions_are_those_of_the_table_and_lead_to_their_pods(console: Open, example: Served) -> None:
    page = console(example, "#/decisions?verb=bind")
    assert page.texts("tbody td:nth-child(3)") == [
        f"demo/{each['pod']}" for each in example.table("decisions?verb=bind")
    ]
    page.one("tbody a").last.click()
    expect(page.one(".verdict")).to_contain_text("is bound to node")
