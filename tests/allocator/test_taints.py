"""Device taints, tolerations, and rules that taint."""

from dataclasses import replace
from typing import Any

import pytest

from allocator import DeviceId, DeviceTaint, TaintRule, Toleration, Unsatisfiable
from allocator.checks import TaintRules, tolerates
from allocator.checks.taints import blocking_taint
from tests.allocator.worlds import DRIVER, World, claim, device, pool, want

SICK = DeviceTaint("health", "NoSchedule", "sick")

EFFECTS = [
    # effect, does it block
    ("NoSchedule", True),
    ("NoExecute", True),
    ("None", False),
    ("PreferNoSchedule", False),
    ("", False),
    ("SomethingNew", False),
]


@pytest.mark.parametrize(("effect", "blocks"), EFFECTS)
def test_only_no_schedule_and_no_execute_block(effect: str, blocks: bool) -> None:
    world = World(pool(device("gpu-0", taints=(replace(SICK, effect=effect),))))
    assert world.devices(claim(want())) == ("untolerated device taint for request gpu" if blocks else [["gpu-0"]])


TOLERATIONS = [
    # toleration, does it tolerate health=sick:NoSchedule
    (Toleration("health", "Equal", "sick", "NoSchedule"), True),
    (Toleration("health", "Equal", "sick"), True),
    (Toleration("health", "", "sick"), True),
    (Toleration("health", "Equal", "sick", "NoExecute"), False),
    (Toleration("health", "Equal", "tired"), False),
    (Toleration("health", "Equal"), False),
    (Toleration("other", "Equal", "sick"), False),
    (Toleration("health", "Exists"), True),
    (Toleration("health", "Exists", "", "NoSchedule"), True),
    (Toleration("health", "Exists", "", "NoExecute"), False),
    (Toleration("other", "Exists"), False),
    (Toleration("", "Equal", "sick"), True),
    (Toleration("", "Equal", "tired"), False),
    (Toleration("", "Exists"), True),
    (Toleration("", "Exists", "", "NoExecute"), False),
    (Toleration("", "Exists", "ignored"), True),
    (Toleration("health", "Unknown", "sick"), False),
    (Toleration("health", "Exists", toleration_seconds=5), True),
]


@pytest.mark.parametrize(("toleration", "expected"), TOLERATIONS)
def test_a_toleration_matches_by_key_value_and_effect(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, SICK) is expected


def test_every_blocking_taint_needs_a_toleration() -> None:
    worn = DeviceTaint("wear", "NoExecute")
    world = World(pool(device("gpu-0", taints=(SICK, worn))))
    health, wear = Toleration("health", "Exists"), Toleration("wear", "Exists")
    assert world.devices(claim(want("gpu", tolerations=(health,)))) == "untolerated device taint for request gpu"
    assert world.devices(claim(want("gpu", tolerations=(wear, health)))) == [["gpu-0"]]


def test_tolerations_are_repeated_in_the_result() -> None:
    tolerations = (Toleration("health", "Exists"), Toleration("other", "Equal", "x"))
    answer = World(pool(device("gpu-0", taints=(SICK,)))).allocated(claim(want("gpu", tolerations=tolerations)))
    assert answer.results[0].results[0].tolerations == tolerations


def test_the_reason_names_taint_and_device() -> None:
    answer = World(pool(device("gpu-0", taints=(SICK,)))).allocate(claim(want()))
    assert isinstance(answer, Unsatisfiable)
    (reason,) = answer.reasons
    assert (reason.cause.name, reason.detail) == ("taint", "health=sick:NoSchedule")
    assert reason.device == DeviceId(DRIVER, "node-1", "gpu-0")


RULES = [
    # rule, the devices that it taints among gpu-0, gpu-1 of pool node-1 and nic-0 of pool net
    ({}, {"gpu-0", "gpu-1", "nic-0"}),
    ({"driver": DRIVER}, {"gpu-0", "gpu-1"}),
    ({"driver": "nic.example.com"}, {"nic-0"}),
    ({"pool": "net"}, {"nic-0"}),
    ({"device": "gpu-1"}, {"gpu-1"}),
    ({"driver": DRIVER, "pool": "node-1", "device": "gpu-0"}, {"gpu-0"}),
    ({"driver": DRIVER, "pool": "net"}, set()),
    ({"driver": "other.example.com"}, set()),
    ({"selects_none": True}, set()),
]


@pytest.mark.parametrize(("selector", "tainted"), RULES)
def test_rules_taint_what_they_select(selector: dict[str, Any], tainted: set[str]) -> None:
    devices = [device("gpu-0"), device("gpu-1"), device("nic-0", driver="nic.example.com", pool="net")]
    rules = TaintRules.of([TaintRule("rule", SICK, **selector)])
    assert {d.id.device for d in devices if blocking_taint(d, (), rules)} == tainted


def test_a_rule_keeps_requests_off_like_a_taint_in_a_slice() -> None:
    rules = TaintRules.of([TaintRule("rule", SICK, device="gpu-0")])
    world = World(pool(device("gpu-0"), device("gpu-1")), rules=rules)
    assert world.devices(claim(want())) == [["gpu-1"]]
    assert world.devices(claim(want("gpu", tolerations=(Toleration("health", "Exists"),)))) == [["gpu-0"]]


def test_taints_of_the_slice_come_before_rules_and_rules_by_name() -> None:
    rules = TaintRules.of(
        [TaintRule("b", DeviceTaint("b", "NoSchedule")), TaintRule("a", DeviceTaint("a", "NoSchedule"))]
    )
    plain, sick = device("gpu-0"), device("gpu-1", taints=(SICK,))
    assert blocking_taint(plain, (), rules) == DeviceTaint("a", "NoSchedule")
    assert blocking_taint(sick, (), rules) == SICK
