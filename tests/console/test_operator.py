"""The walk of an operator at 2,000 nodes: how much is free, where, who has the rest, and what is broken."""

import re
from collections import Counter
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.console import large_site
from tests.console.browser import Console
from tests.console.large_site import BROKEN, EMPTY, HALF, INCOMPLETE, LARGE, LARGE_SIZE, NAMESPACES, NODES, PER_NODE
from tests.console.service import Served

Open = Callable[..., Console]

ALL = NODES * PER_NODE + LARGE_SIZE
HELD = Counter(dict.fromkeys(NAMESPACES, 0))
for number in range(NODES):
    HELD[large_site.owner(number)] += large_site.held(number)
FREE = ALL - HELD.total() - PER_NODE // 2 - PER_NODE
"""Neither tainted ones nor those of the pool that lacks a slice; half of the tainted ones are held."""

_OVERLAPS = """() => [...document.querySelectorAll('.line')].flatMap((line) => {
  const parts = [...line.children].map((each) => each.getBoundingClientRect());
  const isOver = (each, before) => each.left < before.right - 1 && each.top < before.bottom - 1;
  return parts.slice(1).filter((each, index) => isOver(each, parts[index]));
}).length"""

_CUT = """() => [...document.querySelectorAll('.line .left')]
  .filter((each) => each.scrollWidth > each.clientWidth).length"""


def totals(page: Console) -> dict[str, str]:
    """The line of each group: its name, and how many of how many are free."""
    names = [text.strip() for text in page.texts(".sum .node")]
    return dict(zip(names, page.texts(".sum .left"), strict=True))


def test_the_first_look_says_how_many_devices_are_free(console: Open, site: Served) -> None:
    assert console(site).texts(".answer") == [f"{FREE:,} of {ALL:,} devices free"]


def test_models_and_namespaces_are_summed_up(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?group=model&fold=*")
    expect(page.one(".line.sum")).to_have_count(3)
    assert totals(page).keys() == {"a100", "emulated", "h100"}
    assert totals(page)["emulated"] == f"{LARGE_SIZE:,}/{LARGE_SIZE:,} free"
    page.one("select[name=group]").select_option("namespace")
    expect(page.one(".line.sum")).to_have_count(len(NAMESPACES) + 1)
    assert totals(page) == {
        **{name: f"0/{count:,} free" for name, count in sorted(HELD.items())},
        "held by nobody": f"{FREE:,}/{ALL - HELD.total():,} free",
    }


def test_groups_unfold_to_their_devices_alone(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?group=namespace&fold=*")
    page.one(".sum button", has_text="speech").click()
    expect(page.one('.line[aria-rowindex="3"] .node')).to_be_visible()
    assert all(label and "allocated" in label for label in labels(page))


def labels(page: Console) -> list[str | None]:
    return [each.get_attribute("aria-label") for each in page.one(".cell a").all()]


@pytest.mark.parametrize(("sort", "first"), [("free", LARGE), ("full", "node-0000"), ("broken", INCOMPLETE)])
def test_nodes_are_sorted(console: Open, site: Served, sort: str, first: str) -> None:
    page = console(site)
    page.one("select[name=sort]").select_option(sort)
    expect(page.one(".line .node").first).to_have_text(first)
    assert page.route() == f"#/fleet?sort={sort}"


def test_the_order_goes_on_below_the_first_node(console: Open, site: Served) -> None:
    assert console(site, "#/fleet?sort=free").texts(".line .node")[:2] == [LARGE, EMPTY]
    assert BROKEN in console(site, "#/fleet?sort=broken").texts(".line .node")[:2]


def test_a_dense_fleet_shows_hundreds_of_nodes_at_once(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?text=node-", height=1000)
    plain = page.one(".cell").count()
    page.one("button", has_text="Dense").click()
    expect(page.one(".lines.dense")).to_be_visible()
    assert page.one(".cell").count() > 2000
    assert page.one(".cell").count() > 4 * plain
    expect(page.one(".line .node").first).to_have_text(re.compile(r"^node-0000 . node-00\d\d$"))
    assert page.violations() == []


def test_rows_of_a_dense_fleet_are_as_high_as_the_list_counts_on(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?dense=yes&text=node-00", height=3000)
    page.one(".line").first.wait_for()
    drawn, counted = page.page.evaluate("['.shown', '.tall'].map(each => document.querySelector(each).offsetHeight)")
    assert drawn == counted


def test_the_keyboard_crosses_nodes_in_a_dense_fleet(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?dense=yes&text=node-00")
    page.one('.cell a[tabindex="0"]').focus()
    for key, device in [("Home", "node-0000/gpu-0"), *[("ArrowRight", f"node-0000/gpu-{n}") for n in range(1, 8)]]:
        page.page.keyboard.press(key)
        expect(page.one(".cell a:focus")).to_have_attribute("href", f"#/device/gpu.example.com/{device}")
    page.page.keyboard.press("ArrowRight")
    expect(page.one(".cell a:focus")).to_have_attribute("href", "#/device/gpu.example.com/node-0001/gpu-0")


@pytest.mark.parametrize("group", ["", "group=model", "group=namespace&fold=*", "dense=yes"])
@pytest.mark.parametrize("width", [400, 1280])
def test_thousands_of_devices_do_not_overlap(console: Open, site: Served, group: str, width: int) -> None:
    page = console(site, f"#/fleet?{group}", width=width)
    page.one(".line").first.wait_for()
    assert page.page.evaluate(_OVERLAPS) == 0
    assert page.page.evaluate(_CUT) == 0


def test_a_tooltip_has_model_holder_and_pod_for_mouse_and_keyboard(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?text=node-0004")
    device = page.one('.cell a[href$="/node-0004/gpu-1"]')
    device.hover()
    tooltip = page.one("#tooltip")
    for words in ("h100", "allocated", "node-0004", "held by claim speech/worker-4, for pod worker-4"):
        expect(tooltip).to_contain_text(words)
    assert device.get_attribute("aria-describedby") == "tooltip"
    assert page.violations() == []
    tooltip.hover()  # the mouse may go there
    page.page.wait_for_timeout(500)
    expect(tooltip).to_be_visible()
    page.one(".answer").hover()
    expect(tooltip).to_be_hidden()
    device.focus()
    expect(tooltip).to_contain_text("gpu-1")
    expect(tooltip).to_contain_text("for pod worker-4")
    page.page.keyboard.press("ArrowRight")
    expect(tooltip).to_contain_text("gpu-2")
    page.page.keyboard.press("Escape")
    expect(tooltip).to_be_hidden()


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ("attribute=model%3Dh200", "no device has model h200 (model: a100, h100, emulated)"),
        ("attribute=h100", "no device has an attribute h100; did you mean model=h100?"),
        ("driver=gpus.example.com", "There is no driver gpus.example.com; there is gpu.example.com."),
        ("node=node-9999", "Node node-9999 has no devices, or there is no such node."),
        ("text=nowhere", 'No node, pool, driver or device has "nowhere" in its name.'),
        ("state=clash", "No device matches all filters. Without state clash there are 17,000 devices."),
        ("state=free&node=node-0000", "Without state free there are 8 devices. Without node node-0000 there are"),
        ("attribute=model%3Dh100&node=node-1500", "Without attribute model=h100 there are 8 devices."),
        ("modle=h100", "The fleet has no filter modle; there is driver, class, attribute, node, text, state."),
        ("sort=age", "Nodes are not sorted by age; there is free, full, broken."),
    ],
)
def test_filters_that_match_nothing_say_why_and_what_there_is(
    console: Open, site: Served, filters: str, told: str
) -> None:
    expect(console(site, f"#/fleet?{filters}").one(".note", has_text=told)).to_be_visible()


def test_the_example_in_the_field_for_attributes_works(console: Open, site: Served) -> None:
    page = console(site)
    field = page.one("input[name=attribute]")
    example = str(field.get_attribute("placeholder"))
    assert example.startswith("model=")
    field.fill(example)
    expect(page.one(".answer")).to_contain_text(re.compile(rf"^[1-9][\d,]* of [\d,]+ devices free · {example}$"))


def test_one_search_leads_from_a_pod_to_its_node_and_what_would_fit_there(console: Open, site: Served) -> None:
    page = console(site)
    page.page.keyboard.press("/")
    page.page.keyboard.type("worker-4")
    expect(page.one("#found li").first).to_contain_text("speech/worker-4")
    page.page.keyboard.press("Enter")
    expect(page.one("h1")).to_have_text("speech/worker-4")
    page.one("dd a", has_text="node-0004").first.click()
    expect(page.one(".answer")).to_contain_text("4 of 8 devices free")
    expect(page.one(".chips li")).to_have_text("gpu.example.com: 4 of 8")


def test_pools_and_drivers_have_their_health_generation_and_age(console: Open, site: Served) -> None:
    page = console(site, "#/pools?text=slices")
    expect(page.one("table[aria-label=Drivers]")).to_contain_text("1 of 1 pool cannot be used")
    row = page.one("table.rows").last.locator("tbody tr")
    expect(row).to_have_count(1)
    told = {cell.get_attribute("data-label"): cell.inner_text().strip() for cell in row.locator("td").all()}
    assert (told["pool"], told["generation"], told["slices"]) == (INCOMPLETE, "1", "1/2")
    assert told["problem"] == "1 of 2 slices are there"
    assert re.fullmatch(r"\d+s|\d+m(\d+s)?", told["age"])


def test_half_of_the_nodes_have_each_model(console: Open, site: Served) -> None:
    page = console(site, "#/fleet?attribute=model%3Da100")
    expect(page.one(".answer")).to_contain_text(f"of {HALF * PER_NODE:,} devices free")
