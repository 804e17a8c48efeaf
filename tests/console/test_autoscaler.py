"""Sessions of autoscalers in the browser: who plans what, drawn, live, and without the ids of the sessions."""

from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.hostile import MARKUP
from tests.console.planning import NEW_NODES, call, over_templates, planned
from tests.console.service import Served
from tests.console.test_hostile import check_harmless

Open = Callable[..., Console]
ROUTE = "#/autoscaler"


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with over_templates(tmp_path_factory.mktemp("planning")) as found:
        yield found


def test_a_session_is_shown_while_it_is_made(console: Open, served: Served) -> None:
    page = console(served, ROUTE)
    expect(page.one(".answer")).to_have_text("0 sessions are open")
    session = planned(served)
    expect(page.one(".answer")).to_have_text("1 session is open")
    expect(page.one(".group-plan")).to_have_count(3)
    facts = dict(zip(page.texts(".facts dt"), page.texts(".facts dd"), strict=True))
    assert facts["started by"] == "test-autoscaler/1.0"
    assert facts["new nodes"] == str(NEW_NODES)
    assert facts["pods booked"] == "2: demo/finetune-1, demo/finetune-2"
    names = page.texts(".new-node :is(h3, h4, h5)")
    assert [name for name in names if "made-up" in name] == [
        f"falcon-made-up-{number} template falcon" for number in (1, 2)
    ]
    assert [name.split()[0] for name in names if "-new-" in name][:1] == ["falcon-new-1"]
    booked = page.one(".new-node", has_text="falcon-made-up-1")
    assert "demo/finetune-1: gpu.example.com/gpu-0, nic.example.com/nic-0" in booked.inner_text()
    assert booked.locator(".mark.allocated").count() == 2
    assert "1 device stranded" in booked.inner_text() or "2 devices stranded" in booked.inner_text()
    call(served, "start", {}, agent="another")
    expect(page.one(".session")).to_have_count(2)
    text = page.page.evaluate("document.documentElement.outerHTML")
    document = httpx.get(f"{served.url}/console/sessions", trust_env=False).text
    assert session not in text + document


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
def test_the_view_is_accessible_and_its_buttons_work_by_keyboard(
    console: Open, served: Served, width: int, scheme: str
) -> None:
    planned(served)
    planned(served, agent=MARKUP)
    page = console(served, ROUTE, width=width, scheme=scheme)
    expect(page.one(".session")).to_have_count(2)
    assert page.violations() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    check_harmless(page)
    assert MARKUP in page.texts(".facts dd")
    page.one("button.only").first.focus()
    page.page.keyboard.press("Enter")
    expect(page.one(".session")).to_have_count(1)
    link = page.route()
    assert link.startswith("#/autoscaler?session=")
    assert page.violations() == []
    page.open(link)
    expect(page.one(".session")).to_have_count(1)
    page.one("button.all").focus()
    page.page.keyboard.press("Enter")
    expect(page.one(".session")).to_have_count(2)


def test_a_session_that_is_not_open_is_told(console: Open, served: Served) -> None:
    page = console(served, f"{ROUTE}?session=%3Cimg%20src%3Dx%3E")
    expect(page.one(".note", has_text="is not open any more")).to_contain_text("Session <img src=x> is not open")
    check_harmless(page)
