"""One browser and four services for all tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.console.browser import Console, launch, opened
from tests.console.hostile import hostile_manifest
from tests.console.large_site import large_site
from tests.console.service import Served, over_manifests, over_many_nodes
from tests.kit.places import ROOT

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The example cluster, after kube-scheduler has asked about some pods."""
    with over_manifests(tmp_path_factory.mktemp("example"), ROOT / "config" / "example") as served:
        for name in ("five-quarters", "newest-model", "burn-in"):
            served.filter("demo", name)
        for name in ("inference", "stream-1"):
            served.bind("demo", name, served.filter("demo", name)[0])
        yield served


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with over_manifests(folder, hostile_manifest(folder)) as served:
        yield served


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """5,000 nodes with 40,000 devices, half of them allocated."""
    with over_many_nodes(tmp_path_factory.mktemp("many")) as served:
        yield served


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """2,000 nodes with two models, held in three namespaces, and devices that are broken."""
    folder = tmp_path_factory.mktemp("site")
    with over_manifests(folder, large_site(folder)) as served:
        yield served


@pytest.fixture
def console(browser: Browser) -> Iterator[Callable[..., Console]]:
    """Opens pages. In the end, nothing may have gone wrong in any of them."""
    with ExitStack() as stack:
        pages: list[Console] = []

        def open_page(served: Served, route: str = "", **options: Any) -> Console:
            pages.append(stack.enter_context(opened(browser, served.url, **options)))
            return pages[-1].open(route)

        yield open_page
        assert [problem for each in pages for problem in each.problems] == []
