"""The table of our words for upstream's reasons."""

import re
from typing import Final

import pytest

from tests.kit.places import ROOT
from tests.kit.suites.words import CANNOT_ALLOCATE, INVALID_POOLS, WORDS

GROUPS: Final = re.compile(r"\$(\d)")


def upstream(text: str) -> str:
    """As the file in overlay/ does it."""
    for word in WORDS:
        if re.search(word.ours, text):
            return re.sub(word.ours, GROUPS.sub(r"\\\1", word.upstream), text)
    return text


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("resource pool is not usable for request gpu", "invalid resource pools were encountered"),
        ("the resource pools of the node cannot be used for the claims", "invalid resource pools were encountered"),
        ("too little cpu for the pod and its devices", "Insufficient cpu"),
        (
            "neither a device plugin nor a device class offers extended resource example.com/gpu",
            "Insufficient example.com/gpu",
        ),
        (
            "claim x takes cpu of its node: only one pod can use it",
            "ResourceClaim x has a mapped device and cannot be shared across pods",
        ),
        ("claim x is allocated for other nodes", "resourceclaim not available on the node"),
        (
            "waiting for devices for 2 pods of group g together",
            "resourceclaim not available on the node (pod group is unschedulable, minCount (2) cannot be satisfied)",
        ),
        ("claim x does not exist", "claim x does not exist"),
    ],
)
def test_our_words_become_those_of_the_plugin(ours: str, theirs: str) -> None:
    assert upstream(ours) == theirs


def test_the_plugin_has_two_reasons_for_all_that_speaks_against_the_devices_of_a_request() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    table = page.partition("#### Reasons of a request on a node")[2].partition("####")[0]
    reasons = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert len(reasons) > 10
    assert {upstream(each) for each in reasons} == {CANNOT_ALLOCATE, INVALID_POOLS}
