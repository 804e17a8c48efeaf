"""Questions what-if over 5,000 nodes, asked by hand: ``python -m tests.console.questions`` measures the answers.

The time of an answer is from the key that ends the input until the answer is drawn.
"""

import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from playwright.sync_api import expect, sync_playwright

from tests.console.browser import Console, launch, opened
from tests.console.first_picture import calibrate
from tests.console.service import over_many_nodes

FORM: Final = "#/what-if?pod=default%2Fwaiting-0"
"""The form with the pod that waits for more devices than a node has."""

_PATIENCE: Final = 60_000
"""Milliseconds: an answer has 10 s of work, and a busy machine adds to that."""


def edit(page: Console) -> float:
    """The pod that waits asks for one device. All of these return seconds."""
    return _answer(page, "count", "1", ".card.fate h3", "default/waiting-0 gets a place edited")


def add(page: Console) -> float:
    """There is one more node."""
    return _answer(page, "like", "node-04999", ".new-node h3", "new-node-04999-1")


def drain(page: Console) -> float:
    """A full node is drained."""
    return _answer(page, "drain", "node-00003", ".verdict", "8 pods would move")


def drain_100(page: Console) -> float:
    """The link of a question in which 100 full nodes are drained; some of their 800 pods may have no turn in time."""
    nodes = ",".join(f'"node-{number:05}"' for number in range(100))
    began = time.perf_counter()
    page.page.evaluate("question => { location.hash = '#/what-if?question=' + question; }", f'{{"drain":[{nodes}]}}')
    expect(page.one(".verdict")).to_contain_text(re.compile(r"\d{3} pods would move"), timeout=_PATIENCE)
    return time.perf_counter() - began


QUESTIONS: Final[Mapping[str, Callable[[Console], float]]] = {
    "a request is edited": edit,
    "and a node added": add,
    "and a full node drained": drain,
    "100 full nodes drained, 800 pods": drain_100,
}
"""In this order: the first three add up to one question."""


def _answer(page: Console, name: str, text: str, where: str, shown: str) -> float:
    page.one(f"input[name={name}]").first.fill(text)
    began = time.perf_counter()
    page.page.keyboard.press("Enter")
    expect(page.one(where).first).to_contain_text(shown, timeout=_PATIENCE)
    return time.perf_counter() - began


def main() -> None:
    """Print the figures of a new page after the first one, and how fast the machine was before and after."""
    calibrate()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = launch(playwright)
        with over_many_nodes(Path(folder)) as served:
            for _ in range(3):
                with opened(browser, served.url) as page:
                    page.open(FORM)
                    for name, ask in QUESTIONS.items():
                        print(f"{name}: {ask(page):.2f} s ({page.one('.verdict').inner_text()})", flush=True)
    calibrate()


if __name__ == "__main__":
    main()
