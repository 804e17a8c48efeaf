"""Nothing is told by color alone, and the page can be read enlarged."""

from collections.abc import Callable
from itertools import combinations

import pytest

from allocator.checks import DeviceState
from tests.console.browser import Console
from tests.console.service import Served
from tests.console.test_views import VIEWS

Open = Callable[..., Console]

_COLORS = ("free", "taken", "blocked", "tainted", "clash", "edge", "good", "bad", "link", "quiet")

_ONE_COLOR = """(names) => names.forEach((name) => document.documentElement.style.setProperty(`--${name}`, '#444'))"""


def test_each_state_has_a_mark_of_its_own_in_one_color(console: Open, example: Served) -> None:
    page = console(example)
    page.page.evaluate(_ONE_COLOR, list(_COLORS))
    pictures = {
        state.value: page.one(f".states li:nth-child({rank + 1}) .mark").screenshot()
        for rank, state in enumerate(DeviceState)
    }
    assert [pair for pair in combinations(pictures, 2) if pictures[pair[0]] == pictures[pair[1]]] == []


def test_each_mark_stands_beside_its_word(console: Open, example: Served) -> None:
    page = console(example)
    assert [text.split()[1] for text in page.texts(".states button")] == [state.value for state in DeviceState]
    labels = [str(each.get_attribute("aria-label")) for each in page.one(".cell a").all()]
    assert {label.split(": ")[1].split(", ")[0] for label in labels} <= {state.value for state in DeviceState}


@pytest.mark.parametrize("route", VIEWS.values(), ids=VIEWS.keys())
def test_every_view_can_be_read_at_twice_its_size(console: Open, example: Served, route: str) -> None:
    """A window of 1280 by 800 pixels, enlarged to 200 %, and one of 400 pixels."""
    for width, height in ((640, 400), (400, 800)):
        page = console(example, route, width=width, height=height, device_scale_factor=2)
        page.one(".live.open").wait_for()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.violations() == []
