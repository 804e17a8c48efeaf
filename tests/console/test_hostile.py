"""Texts of others with markup and control characters: no view runs them, and every view shows them."""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import pytest

from tests.console.browser import Console
from tests.console.hostile import MARKUP, SHOWN, UNSEEN
from tests.console.service import Served
from tests.kit.clusters import DRIVER

Open = Callable[..., Console]

_FREE_TEXT: Final = {"markup": MARKUP, "unseen": SHOWN}


_EVERYTHING: Final = """() => document.body.innerText + [...document.querySelectorAll('*')]
  .flatMap((each) => [...each.attributes].map(({value}) => value)).join('')"""


def check_harmless(page: Console) -> None:
    """Nothing has run, there is no element that we did not make, and no character that a reader cannot see."""
    assert page.page.evaluate("typeof pwned") == "undefined"
    assert page.one("img, script:not([src])").count() == 0
    text = page.page.evaluate(_EVERYTHING)
    assert [character for character in text if character in "\u202e\x1b"] == []


@pytest.mark.parametrize("text", [MARKUP, UNSEEN], ids=_FREE_TEXT.keys())
@pytest.mark.parametrize("device", ["gpu-0", "gpu-1"])
def test_attributes_of_devices(console: Open, hostile: Served, device: str, text: str) -> None:
    page = console(hostile, f"#/device/{DRIVER}/a/{device}")
    check_harmless(page)
    assert (MARKUP if device == "gpu-0" else SHOWN) in page.texts(".facts dd")
    page = console(hostile, f"#/fleet?attribute={quote(f'model={text}')}")
    check_harmless(page)


@pytest.mark.parametrize("pod", _FREE_TEXT)
def test_selectors_and_values_in_explanations(console: Open, hostile: Served, pod: str) -> None:
    hostile.filter("ns", pod)
    page = console(hostile, f"#/pod/ns/{pod}")
    check_harmless(page)
    assert _FREE_TEXT[pod] in page.one("main").inner_text()


def bind_under_another_name(hostile: Served) -> None:
    """A call of bind with a name and a node that no object can have: the decision log keeps both."""
    (row,) = [each for each in hostile.table("pods") if each["pod"] == "markup"]
    body = {"PodName": MARKUP + UNSEEN, "PodNamespace": "ns", "PodUID": row["uid"], "Node": MARKUP + UNSEEN}
    assert hostile.call("bind", body)["Error"]


@pytest.mark.parametrize("route", ["#/waiting", "#/decisions", "#/claim/ns/markup", ""])
def test_other_views(console: Open, hostile: Served, route: str) -> None:
    bind_under_another_name(hostile)
    check_harmless(console(hostile, route))


def test_a_name_of_a_request_is_shown_with_its_control_characters(console: Open, hostile: Served) -> None:
    bind_under_another_name(hostile)
    page = console(hostile, "#/decisions")
    assert f"ns/{MARKUP}{SHOWN}" in page.texts("tbody td")


@pytest.mark.parametrize(
    "view",
    [
        "fleet?text=",
        "fleet?class=",
        "fleet?driver=",
        "fleet?state=",
        "waiting?text=",
        "waiting?namespace=",
        "decisions?verb=",
        "decisions?text=",
    ],
)
def test_filters_of_a_link(console: Open, hostile: Served, view: str) -> None:
    page = console(hostile, f"#/{view}{quote(MARKUP + UNSEEN)}")
    check_harmless(page)
    page.problems[:] = [each for each in page.problems if "status of 400" not in each]  # the class is refused


@pytest.mark.parametrize("route", ["pod/{0}/{0}", "claim/{0}/{0}", "device/{0}/{0}/{0}", "{0}"])
def test_names_of_a_link(console: Open, hostile: Served, route: str) -> None:
    page = console(hostile)
    page.page.goto(f"{hostile.url}/#/{route.format(quote(MARKUP + UNSEEN))}")
    page.one("[role=alert], section.unknown").first.wait_for()
    check_harmless(page)
    page.problems[:] = [each for each in page.problems if "status of 404" not in each and "status of 400" not in each]
