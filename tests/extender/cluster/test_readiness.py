"""Binding conditions: which devices are ready, what the others wait for, and when waiting is over."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allocator import DeviceId
from extender.cluster.binding_conditions import AwaitedCondition, Failed, unmet
from extender.cluster.objects.claims import ClaimObject, parse_claim_object
from tests.kit.binders import BINDING_TIMEOUT
from tests.kit.clusters import DRIVER, claim

ALLOCATED = datetime(2026, 1, 1, tzinfo=UTC)
READY, LINKED, BROKEN = "example.com/ready", "example.com/linked", "example.com/broken"

Said = dict[str, str]
"""Condition to its status."""


def allocated(devices: dict[str, Said | None], *, since: str | None = "2026-01-01T00:00:00Z") -> ClaimObject:
    """A claim whose devices must be ready and linked, with what their driver says of them (None: nothing yet)."""
    obj = claim("c", allocated=[f"n/{name}" for name in devices])
    allocation = obj["status"]["allocation"]
    for result in allocation["devices"]["results"]:
        result |= {"bindingConditions": [READY, LINKED], "bindingFailureConditions": [BROKEN]}
    if since is not None:
        allocation["allocationTimestamp"] = since
    said = {name: conditions for name, conditions in devices.items() if conditions is not None}
    obj["status"]["devices"] = [_reported(name, conditions) for name, conditions in said.items()]
    return parse_claim_object(obj)


def _reported(name: str, said: Said) -> dict[str, Any]:
    conditions = [{"type": kind, "status": status, "message": "no link"} for kind, status in said.items()]
    return {"driver": DRIVER, "pool": "n", "device": name, "conditions": conditions}


def waiting(condition: str, device: str) -> AwaitedCondition:
    return AwaitedCondition(condition, DeviceId(DRIVER, "n", device), ALLOCATED)


def failed(device: str) -> Failed:
    return Failed(BROKEN, DeviceId(DRIVER, "n", device), "no link")


ALL_TRUE = {READY: "True", LINKED: "True"}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ({"a": ALL_TRUE}, None),
        ({"a": {**ALL_TRUE, BROKEN: "False"}}, None),
        ({"a": None}, waiting(READY, "a")),
        ({"a": {}}, waiting(READY, "a")),
        ({"a": {READY: "True"}}, waiting(LINKED, "a")),
        ({"a": {READY: "Unknown", LINKED: "True"}}, waiting(READY, "a")),
        ({"a": ALL_TRUE, "b": None}, waiting(READY, "b")),
        ({"a": {**ALL_TRUE, BROKEN: "True"}}, failed("a")),
        ({"a": None, "b": {BROKEN: "True"}}, failed("b")),
    ],
    ids=[
        "all true",
        "no failure",
        "nothing said",
        "no condition said",
        "the second is not true",
        "unknown is not true",
        "the second device",
        "a failure",
        "a failure comes before what waits",
    ],
)
def test_what_a_claim_waits_for(devices: dict[str, Said | None], expected: AwaitedCondition | Failed | None) -> None:
    assert unmet(allocated(devices)) == expected


def test_a_claim_without_conditions_waits_for_nothing() -> None:
    assert unmet(parse_claim_object(claim("c", allocated=["n/a"]))) is None
    assert unmet(parse_claim_object(claim("c"))) is None


def test_another_share_of_the_device_is_another_device() -> None:
    obj = claim("c", allocated=["n/a"])
    (result,) = obj["status"]["allocation"]["devices"]["results"]
    result |= {"bindingConditions": [READY], "shareID": "mine"}
    ready = {"driver": DRIVER, "pool": "n", "device": "a", "conditions": [{"type": READY, "status": "True"}]}
    obj["status"]["devices"] = [{**ready, "shareID": "other"}]
    assert isinstance(unmet(parse_claim_object(obj)), AwaitedCondition)
    obj["status"]["devices"] = [{**ready, "shareID": "mine"}]
    assert unmet(parse_claim_object(obj)) is None


@pytest.mark.parametrize(
    ("after", "over"), [(timedelta(0), False), (BINDING_TIMEOUT, False), (BINDING_TIMEOUT * 1.01, True)]
)
def test_waiting_ends_after_the_binding_timeout(after: timedelta, over: bool) -> None:
    found = unmet(allocated({"a": None}))
    assert isinstance(found, AwaitedCondition)
    assert bool(found.lapse(ALLOCATED + after, BINDING_TIMEOUT)) is over


def test_not_if_the_allocation_does_not_say_since_when_it_is_there() -> None:
    found = unmet(allocated({"a": None}, since=None))
    assert isinstance(found, AwaitedCondition)
    assert found.since is None
    assert not found.lapse(ALLOCATED + timedelta(days=1), BINDING_TIMEOUT)


def test_an_unmet_condition_names_condition_and_device() -> None:
    assert str(waiting(READY, "a")) == f"waiting for {READY} of {DRIVER}/n/a"
    assert str(failed("a")) == f"{BROKEN} of {DRIVER}/n/a: no link"
