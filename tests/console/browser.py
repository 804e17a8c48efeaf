"""A browser that looks at the console, and notes everything that goes wrong in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from playwright.sync_api import Browser, Locator, Page, Playwright

_ARGUMENTS: Final = ("--no-sandbox", "--disable-dev-shm-usage")
"""A test as root has no sandbox, and a container has little shared memory."""

_AXE: Final = files("axe_playwright_python").joinpath("axe.min.js")


def launch(playwright: Playwright) -> Browser:
    """Chromium of the machine, or the program that CHROMIUM names."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise FileNotFoundError("there is no program chromium: install it, or name it by CHROMIUM")
    return playwright.chromium.launch(executable_path=program, args=[*_ARGUMENTS])


@dataclass(slots=True)
class Console:
    """A page of the console.

    Attributes:
        problems: errors of the page, violations of its policy, and requests to other servers.
    """

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)

    def open(self, route: str = "") -> "Console":
        """Go to a view by its URL, and wait until it is there."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{route}")
        self.page.locator("main section").first.wait_for()
        return self

    def one(self, selector: str, **options: Any) -> Locator:
        """Elements by a CSS selector."""
        return self.page.locator(selector, **options)

    def texts(self, selector: str) -> list[str]:
        """The texts of elements, with single spaces."""
        return [" ".join(text.split()) for text in self.page.locator(selector).all_inner_texts()]

    def route(self) -> str:
        """The part of the URL that says which state the page is in."""
        return str(self.page.evaluate("location.hash"))

    def violations(self) -> list[str]:
        """What axe finds wrong with the page: rule and element."""
        self.page.evaluate(_AXE.read_text())
        found = self.page.evaluate("axe.run({rules: {'target-size': {enabled: true}}})")
        return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]


@contextmanager
def opened(
    browser: Browser, url: str, width: int = 1280, height: int = 800, scheme: Any = "light", **options: Any
) -> Iterator[Console]:
    """A page in a context of its own; ``options`` are those of `Browser.new_context`."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", **options
    )
    context.set_default_timeout(15_000)
    console = Console(context.new_page(), url)
    page, told = console.page, console.problems
    page.on("pageerror", lambda error: told.append(f"error: {error}"))
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if asked.url.startswith((url, "about:")) else told.append(asked.url))
    try:
        yield console
    finally:
        context.close()
