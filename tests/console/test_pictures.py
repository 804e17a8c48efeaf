"""The pictures of the docs. `make test-console PICTURES=docs/images` takes them again."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import Console
from tests.console.planning import over_templates, planned
from tests.console.service import Served
from tests.console.test_what_if import route as what_if_route

_FALCON = {
    "pod": "demo/eagle",
    "request": "gpu",
    "selectors": ['device.attributes["gpu.example.com"].model == "falcon-80"'],
}
_WHAT_IF = what_if_route({"edits": [_FALCON], "nodes": [{"like": "gpu-east-1", "count": 2}], "drain": ["gpu-west-2"]})

PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "console-fleet.png": ("", {"width": 1200, "height": 620}),
    "console-what-if.png": (_WHAT_IF, {"width": 1200, "height": 1500}),
    "console-pod.png": ("#/pod/demo/five-quarters", {"width": 1200, "height": 1180, "scheme": "dark"}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_docs_can_be_taken(
    console: Callable[..., Console], example: Served, name: str, tmp_path: Path
) -> None:
    route, options = PICTURES[name]
    page = console(example, route, **options)
    page.one(".live.open").wait_for()
    page.one(".new-node, .line, .verdict").first.wait_for()
    assert take(page, name, tmp_path) > 10_000


def test_the_picture_of_sessions_can_be_taken(console: Callable[..., Console], tmp_path: Path) -> None:
    with over_templates(tmp_path) as served:
        planned(served)
        page = console(served, "#/autoscaler", width=1200, height=1300)
        page.one(".live.open").wait_for()
        page.one(".group-plan").first.wait_for()
        assert take(page, "console-autoscaler.png", tmp_path) > 10_000


def take(page: Console, name: str, folder: Path) -> int:
    """Take a picture of a page; its bytes."""
    path = Path(os.environ.get("PICTURES") or folder) / name
    page.page.screenshot(path=path)
    return path.stat().st_size
