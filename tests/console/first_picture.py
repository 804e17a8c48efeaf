"""Measures how long the first picture of the console takes: ``python -m tests.console.first_picture``.

From the request for the page until a row of devices is drawn, in a new browser context each time, so nothing is cached.
The first page of a service is told apart: the service works out the states of all devices for it.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from tests.console.browser import launch, opened
from tests.console.service import over_manifests, over_many_nodes
from tests.kit.places import ROOT

_PAGES: Final = 11


def main() -> None:
    """Print the figures, and how fast the machine was before and after."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = launch(playwright)
        calibrate()
        with over_manifests(Path(folder), ROOT / "config" / "example") as served:
            _measure("example", browser, served.url)
        with over_many_nodes(Path(folder)) as served:
            _measure("40,000 devices", browser, served.url)
        calibrate()


def _measure(name: str, browser: Browser, url: str) -> None:
    first, *rest = (_first_picture(browser, url) for _ in range(_PAGES))
    print(f"{name}: first {first:.0f} ms; then median {statistics.median(rest):.0f} ms, most {max(rest):.0f} ms")


def _first_picture(browser: Browser, url: str) -> float:
    with opened(browser, url) as console:
        console.page.goto(f"{url}/")
        console.one(".line").first.wait_for()
        return float(console.page.evaluate("performance.now()"))


def calibrate() -> None:
    """A sum in Python, the same on each machine."""
    began = time.perf_counter()
    sum(number & 1 for number in range(10_000_000))
    print(f"calibration: {time.perf_counter() - began:.2f} s, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
