"""The console over 5,000 nodes with 40,000 devices."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.questions import FORM, add, drain, edit
from tests.console.service import Served

Open = Callable[..., Console]

ANSWER = 10.0
"""Seconds until the answer to a question about a node is drawn, on a busy machine."""

MOST_BYTES = 1_000_000
"""What the first picture reads of the devices. How long it takes is measured by `tests.console.first_picture`."""

MOST_ELEMENTS = 4000
"""Of the document, however many devices there are."""

FRAME = 50.0
"""Milliseconds that half of the frames take at most while the list scrolls: 20 pictures a second on a busy machine."""

_SIZES = """() => performance.getEntriesByType('resource').filter(each => each.name.includes('/console/fleet'))
  .map(each => each.decodedBodySize)"""

_SCROLL = """async () => {
  const box = document.querySelector('.lines'), frames = [];
  let last = performance.now();
  for (let step = 0; step < 90; step += 1) {
    box.scrollTop += 1500;
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return frames.sort((a, b) => a - b)[45];
}"""


def test_the_first_picture_needs_one_short_document_of_all_devices(console: Open, many: Served) -> None:
    page = console(many)
    page.one(".line").first.wait_for()
    (size,) = page.page.evaluate(_SIZES)
    assert 0 < size < MOST_BYTES
    assert page.texts(".answer") == ["20,000 of 40,000 devices free"]


def test_only_what_is_on_the_screen_is_in_the_document(console: Open, many: Served) -> None:
    page = console(many)
    assert page.one(".lines").get_attribute("aria-rowcount") == "5000"
    page.one(".lines").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(page.one('.line[aria-rowindex="5000"]')).to_be_visible()
    assert page.page.evaluate("document.getElementsByTagName('*').length") < MOST_ELEMENTS


def test_the_list_scrolls_smoothly(console: Open, many: Served) -> None:
    page = console(many)
    page.one(".line").first.wait_for()
    assert page.page.evaluate(_SCROLL) < FRAME


def test_filters_reach_all_devices(console: Open, many: Served) -> None:
    page = console(many)
    page.one("input[name=text]").fill("node-04999")
    expect(page.one(".line")).to_have_count(1)
    page.one("input[name=text]").fill("")
    page.one("button", has_text="allocated").click()
    expect(page.one(".lines")).to_have_attribute("aria-rowcount", "2500")


def test_what_if_answers_a_person_who_edits_adds_and_drains(console: Open, many: Served) -> None:
    page = console(many, FORM)
    seconds = [ask(page) for ask in (edit, add, drain)]
    assert max(seconds) < ANSWER
    assert page.texts(".card.fate h3").count("default/waiting-0 gets a place edited") == 1
    assert sum("moves" in text for text in page.texts(".card.fate h3")) == 8
