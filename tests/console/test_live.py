"""What changes while the page is open: it is shown without a reload."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.service import Served

Open = Callable[..., Console]

_REQUESTS = "() => performance.getEntriesByType('resource').map(each => each.name)"
_HAS_CELLS = "count => document.querySelectorAll('.cell .allocated').length === count"


_HIDDEN = """(hidden) => {
  Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_bind_is_shown_by_its_message_alone(console: Open, example: Served) -> None:
    page = console(example, "#/fleet?driver=gpu.example.com")
    page.one(".live.open").wait_for()
    (node, *_) = example.filter("demo", "notebook")
    before, read = page.one(".cell .allocated").count(), page.page.evaluate(_REQUESTS)
    example.bind("demo", "notebook", node)
    page.page.wait_for_function(_HAS_CELLS, arg=before + 1)
    assert page.page.evaluate(_REQUESTS) == read, "the page has read nothing again"


def test_a_pod_leaves_the_waiting_list_and_its_decision_comes(console: Open, example: Served) -> None:
    waiting, decisions = console(example, "#/waiting"), console(example, "#/decisions")
    expect(waiting.one(".pod", has_text="render-1")).to_have_count(1)
    for page in (waiting, decisions):
        page.one(".live.open").wait_for()
    example.bind("demo", "render-1", example.filter("demo", "render-1")[0])
    expect(waiting.one(".pod", has_text="render-1")).to_have_count(0)
    expect(decisions.one("tbody tr").first).to_contain_text("bound to")
    expect(decisions.one("tbody tr").first).to_contain_text("render-1")


def test_a_pod_says_why_it_waits_although_no_scheduler_asks(console: Open, example: Served) -> None:
    page = console(example, "#/waiting?text=no-such-class")
    expect(page.one(".pod .reason")).to_have_text("device class tensor.example.com does not exist")


def test_decisions_can_be_paused_and_go_on_where_they_stopped(console: Open, example: Served) -> None:
    page = console(example, "#/decisions")
    page.one(".live.open").wait_for()
    page.one("button.pause").click()
    assert page.route() == "#/decisions?paused=yes"
    before = page.one("tbody tr").count()
    example.filter("demo", "burn-in")
    expect(page.one("button.pause")).to_have_text("Continue (1 new)")
    assert page.one("tbody tr").count() == before
    page.one("button.pause").click()
    expect(page.one("tbody tr")).to_have_count(before + 1)


def test_a_device_page_follows_its_device(console: Open, example: Served) -> None:
    page = console(example, "#/device/gpu.example.com/gpu-west-2/gpu-2")
    page.one(".live.open").wait_for()
    expect(page.one(".facts dd").first).to_have_text("tainted")
    example.bind("demo", "gpu-doctor", *example.filter("demo", "gpu-doctor"))
    expect(page.one(".facts dd").first).to_have_text("allocated")


def test_a_hidden_page_has_no_stream(console: Open, example: Served) -> None:
    page = console(example)
    page.one(".live.open").wait_for()
    page.page.evaluate(_HIDDEN, True)
    example.filter("demo", "burn-in")
    with page.page.expect_request("**/console/changes*"):
        page.page.evaluate(_HIDDEN, False)
    expect(page.one(".live.open")).to_be_visible()
