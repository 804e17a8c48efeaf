"""A pod that is bound, with two devices that a constraint ties: its claim, its devices and their history."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.service import Served

Open = Callable[..., Console]


@pytest.fixture(scope="module")
def claim(example: Served) -> Any:
    """The claim of training-1."""
    example.bind("demo", "training-1", example.filter("demo", "training-1")[0])
    (found,) = example.table("claims?namespace=demo&pod=training-1&wide=true")
    return found


def test_a_claim_begins_a_line_in_the_history_of_its_device(console: Open, example: Served, claim: Any) -> None:
    page = console(example, f"#/device/{claim['devices'][0]}")
    first = page.one(".holds li").first
    expect(first).to_contain_text(f"demo/{claim['claim']}, for demo/training-1")
    expect(first).to_contain_text(re.compile(r"\d\d:\d\d:\d\d . now"))
    assert page.violations() == []


@pytest.mark.parametrize("view", ["claim", "pod"])
def test_constraints_are_lines_between_the_devices_with_the_value_that_they_share(
    console: Open, example: Served, claim: Any, view: str
) -> None:
    (constraint,) = claim["constraints"]
    (shared,) = constraint["shared"]
    page = console(example, f"#/{view}/demo/{claim['claim'] if view == 'claim' else 'training-1'}")
    expect(page.one(".ties li")).to_contain_text(f"same resource.kubernetes.io/pcieRoot: {shared}")
    assert page.one(".rail.same circle").count() == len(claim["devices"])
    assert page.one(".rails li").count() == len(claim["devices"])
    assert page.violations() == []
