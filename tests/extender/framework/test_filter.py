"""Filter: which nodes pass, which don't, in which list, and for which reason."""

from dataclasses import replace
from typing import Any

import pytest

from allocator import Limits, SelectorError
from extender.framework.filter import Bounds, FilterResult, filter_nodes
from extender.framework.held_devices import held_for_nominated
from tests.kit.clusters import (
    GPU,
    Object,
    claim,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
    taint_rule,
)

TWO_NODES = (GPU, node("a"), node("b"), local_slice("a"), local_slice("b"))


def filtered(asked: Object, *objects: Object, names: tuple[str, ...] = ("a", "b"), **options: Any) -> FilterResult:
    return filter_nodes(parsed(asked), names, snapshot_of(*objects), solver(), **options)


def test_a_pod_without_devices_passes_with_the_very_list_that_was_sent() -> None:
    names = ("nobody", "knows", "these")
    assert filtered(pod(), names=names).passed is names


def test_a_pod_with_resources_of_a_device_plugin_passes_where_the_plugin_is() -> None:
    nodes = (node("a", allocatable={"example.com/foo": "1"}), node("b"))
    found = filtered(pod(resources={"example.com/foo": "1", "cpu": "1"}), *nodes)
    assert found.passed == ("a",)
    assert found.unresolvable.in_words() == {
        "b": "neither a device plugin nor a device class offers extended resource example.com/foo"
    }


def test_nodes_with_free_devices_pass_in_the_order_asked() -> None:
    result = filtered(pod("p", "c"), *TWO_NODES, claim("c"), names=("b", "a"))
    assert list(result.passed) == ["b", "a"]
    assert not result.failed
    assert not result.unresolvable
    assert list(result.merits) == ["b", "a"]


def test_a_node_that_is_not_known_is_rejected_alone() -> None:
    result = filtered(pod("p", "c"), *TWO_NODES, claim("c"), names=("a", "new"))
    assert (list(result.passed), result.unresolvable.in_words()) == (["a"], {"new": "node not yet known"})


def test_a_device_in_use_rejects_its_node_as_unresolvable() -> None:
    taken = claim("other", allocated=["a/gpu-0"], at="a", users=["somebody"])
    result = filtered(pod("p", "c"), *TWO_NODES, claim("c"), taken)
    assert list(result.passed) == ["b"]
    assert result.unresolvable.in_words() == {"a": "no free device for request gpu"}
    assert not result.failed


def test_an_allocated_claim_passes_only_its_nodes() -> None:
    result = filtered(pod("p", "c"), *TWO_NODES, claim("c", allocated=["a/gpu-0"], at="a", users=["somebody"]))
    assert list(result.passed) == ["a"]
    assert result.unresolvable.in_words() == {"b": "claim c is allocated for other nodes"}


def test_an_allocated_claim_passes_only_nodes_that_can_skip_the_calls_to_its_driver() -> None:
    here, shared = node("a"), claim("c", allocated=["net/gpu-0"], users=["somebody"])
    here["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    shared["status"]["allocation"]["devices"]["results"][0]["skipNodeOperations"] = ["All"]
    result = filtered(pod("p", "c"), GPU, here, node("b"), network_slice("net"), shared)
    assert list(result.passed) == ["a"]
    assert result.unresolvable.in_words() == {"b": "claim c is allocated for other nodes"}


def test_claims_of_a_pod_are_decided_together() -> None:
    result = filtered(pod("p", "c", "d"), *TWO_NODES, local_slice("b", 2), claim("c"), claim("d"))
    assert list(result.passed) == ["b"]


EVERYWHERE: list[tuple[str, Object, list[Object], str]] = [
    ("a claim that does not exist", pod("p", "c"), [], "claim c does not exist"),
    (
        "a claim that is being deleted",
        pod("p", "c"),
        [claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]})],
        "claim c is being deleted",
    ),
    (
        "a class that does not exist",
        pod("p", "c"),
        [claim("c", request(device_class="tpu"))],
        "device class tpu does not exist",
    ),
    (
        "a selector that fails",
        pod("p", "c"),
        [claim("c", request(selectors=["device.attributes['gpu.example.com'].boom"]))],
        "claim ns/c, request gpu: selector 0: no such key: boom",
    ),
]


@pytest.mark.parametrize(
    ("asked", "objects", "reason"), [case[1:] for case in EVERYWHERE], ids=[c[0] for c in EVERYWHERE]
)
def test_what_is_wrong_with_the_pod_rejects_every_node_alike(asked: Object, objects: list[Object], reason: str) -> None:
    result = filtered(asked, *TWO_NODES, *objects)
    assert not result.passed
    assert not result.failed
    assert result.unresolvable.in_words() == {"a": reason, "b": reason}


def test_reasons_do_not_depend_on_the_order_of_nodes_nor_name_devices() -> None:
    world = (*TWO_NODES, claim("c", request(selectors=["device.attributes['gpu.example.com'].boom"])))
    there = filtered(pod("p", "c"), *world)
    back = filtered(pod("p", "c"), *world, names=("b", "a"))
    assert there.unresolvable.in_words() == back.unresolvable.in_words()
    assert "gpu-0" not in str(there.unresolvable)


def test_of_an_expression_that_does_not_compile_the_first_line_is_told() -> None:
    error = SelectorError("ns/c", "gpu", "class gpu selector 1", None, "syntax error, line 1\n  devise\n  ^")
    assert error.reason.in_words() == "claim ns/c, request gpu: class gpu selector 1: syntax error, line 1"


def test_a_node_whose_pools_contradict_the_claim_is_rejected_alone_and_without_the_pools_name() -> None:
    everything = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}
    incomplete = local_slice("b")
    incomplete["spec"]["pool"]["resourceSliceCount"] = 2
    result = filtered(pod("p", "c"), GPU, node("a"), node("b"), local_slice("a"), incomplete, claim("c", everything))
    assert list(result.passed) == ["a"]
    assert result.unresolvable.in_words() == {"b": "the resource pools of the node cannot be used for request gpu"}


def test_a_search_that_was_stopped_is_not_called_a_no() -> None:
    world = snapshot_of(*TWO_NODES, claim("c", request(count=1)))
    result = filter_nodes(parsed(pod("p", "c")), ["a"], world, solver(limits=Limits(steps=0)))
    assert result.unresolvable.in_words() == {"a": "search stopped by the limit on steps"}


def test_a_taint_rule_keeps_pods_off() -> None:
    result = filtered(pod("p", "c"), *TWO_NODES, claim("c"), taint_rule("r", pool="a"))
    assert (list(result.passed), result.unresolvable.in_words()) == (
        ["b"],
        {"a": "untolerated device taint for request gpu"},
    )


# --- whole nodes --------------------------------------------------------------------------------------------


def test_nodes_that_were_sent_are_judged_by_what_was_sent() -> None:
    everywhere = network_slice("net")
    everywhere["spec"] |= {
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1"]}]}]
        }
    }
    del everywhere["spec"]["allNodes"]
    sent = {"fictional": node("fictional", labels={"zone": "1"}), "a": node("a", labels={"zone": "2"})}
    result = filtered(pod("p", "c"), GPU, node("a"), everywhere, claim("c"), names=tuple(sent), sent=sent)
    assert list(result.passed) == ["fictional"]


# --- time ---------------------------------------------------------------------------------------------------


def test_when_time_is_up_the_nodes_found_so_far_are_the_answer() -> None:
    ticks = iter(range(100))
    ticking = replace(solver(), clock=lambda: float(next(ticks)))
    world = snapshot_of(*TWO_NODES, local_slice("b", 2), claim("c"))
    result = filter_nodes(parsed(pod("p", "c")), ["a", "b"], world, ticking, bounds=Bounds(until=4.0))
    assert (list(result.passed), result.unresolvable.in_words()) == (["a"], {"b": "not looked at in time"})


def test_when_time_is_up_before_any_node_was_found_there_is_no_answer() -> None:
    world = snapshot_of(*TWO_NODES, claim("c"))
    with pytest.raises(TimeoutError):
        filter_nodes(parsed(pod("p", "c")), ["a", "b"], world, solver(), bounds=Bounds(until=-1.0))


# --- nominations --------------------------------------------------------------------------------------------

LOW = claim("low", allocated=["a/gpu-0"], at="a", users=["victim"])
ELSEWHERE = claim("else", allocated=["b/gpu-0"], at="b", users=["somebody"])
SOMEBODY = pod("somebody", "else", on="b", priority=9)
MINE = pod("p", "c", nominated="a", priority=5)


@pytest.mark.parametrize(
    "victims", [[pod("victim", "low", on="a", deleting=True)], []], ids=["terminating", "gone, its claim is not yet"]
)
def test_the_nominated_node_is_only_failed_while_its_victims_hold_devices(victims: list[Object]) -> None:
    result = filtered(MINE, *TWO_NODES, claim("c"), LOW, ELSEWHERE, SOMEBODY, *victims)
    assert result.failed.in_words() == {"a": "waiting for devices of terminating pods"}
    assert result.unresolvable.in_words() == {"b": "no free device for request gpu"}


def test_the_nominated_node_is_unresolvable_if_waiting_does_not_help() -> None:
    result = filtered(MINE, *TWO_NODES, claim("c"), LOW, pod("victim", "low", on="a"))
    assert (list(result.passed), result.failed.in_words()) == (["b"], {})
    assert result.unresolvable.in_words() == {"a": "no free device for request gpu"}


NOMINATED = (claim("n"), pod("n", "n", nominated="a", priority=5, created="2026-01-02T00:00:00Z"))


@pytest.mark.parametrize(
    ("asked", "passed"),
    [
        (pod("p", "c", priority=4), ["b"]),
        (pod("p", "c", priority=5), ["b"]),
        (pod("p", "c", priority=6), ["a", "b"]),
        (pod("p", "c", priority=5, nominated="a", created="2026-01-01T00:00:00Z"), ["a"]),
        (pod("p", "c", priority=5, nominated="a", created="2026-01-03T00:00:00Z"), ["b"]),
    ],
    ids=["lower", "equal", "higher", "equal, nominated too and older", "equal, nominated too and younger"],
)
def test_what_a_nominated_pod_needs_is_taken_for_those_that_come_after_it(asked: Object, passed: list[str]) -> None:
    assert list(filtered(asked, *TWO_NODES, claim("c"), *NOMINATED).passed) == passed


def test_a_node_that_room_was_made_on_is_the_only_answer() -> None:
    result = filtered(MINE, *TWO_NODES, claim("c"), names=("b", "a"))
    assert (list(result.passed), list(result.merits)) == (["a"], ["a"])


class Hours:
    """A clock on which every look takes a while, and who looked when a call had to be done."""

    def __init__(self) -> None:
        self.now = 0.0

    def look(self) -> float:
        self.now += 0.1
        return self.now


RING = [request(f"r{n}", selectors=[f"{n} == {n}"]) for n in range(5)]
"""Many requests, whose search looks at the clock for each device."""


def test_hard_nominated_pods_take_half_of_a_call_at_most_and_the_rest_is_the_pods_own() -> None:
    clock = Hours()
    nominated = [
        each
        for n in range(5)
        for each in (claim(f"hard-{n}", *RING), pod(f"hard-{n}", f"hard-{n}", nominated="a", priority=9))
    ]
    world = (GPU, node("a"), node("b"), local_slice("a", 30), local_slice("b"), claim("c"), *nominated)
    by = replace(solver(), clock=clock.look, until=8.0)
    held = held_for_nominated(parsed(pod("p", "c")), snapshot_of(*world), by)
    assert clock.now == pytest.approx(4, abs=1)
    assert held.usage == snapshot_of(*world).usage, "of none it is known what it needs"
    clock.now = 0.0
    assert "b" in filter_nodes(parsed(pod("p", "c")), ["a", "b"], snapshot_of(*world), by).passed
    assert clock.now < 8


def test_nominated_pods_whose_claims_are_allocated_or_shared_take_no_time_of_a_call() -> None:
    """A scheduler nominates each pod that it binds."""
    served = claim("served", allocated=["a/gpu-0"], at="a", users=["served"])
    nominated = [pod(f"shared-{n}", "c", nominated="a", priority=9) for n in range(50)]
    nominated.append(pod("served", "served", nominated="a", priority=9))
    world = snapshot_of(GPU, node("a"), local_slice("a", 30), claim("c", *RING), served, *nominated)
    by = replace(solver(), clock=Hours().look, until=8.0)
    asked = parsed(pod("p", "c"))
    assert held_for_nominated(asked, world, by) is world


def test_selectors_are_compiled_no_longer_than_the_call_has_time_and_the_next_call_goes_on() -> None:
    many = [request(f"r{n}", selectors=[f"{n} < {n + 1}"]) for n in range(30)]
    world = snapshot_of(GPU, node("a"), local_slice("a", 30), claim("c", *many))
    by = replace(solver(), clock=Hours().look, until=2.0)
    with pytest.raises(TimeoutError):
        filter_nodes(parsed(pod("p", "c")), ["a"], world, by)
    assert by.selectors.are_quick(["0 < 1"])
    assert not by.selectors.are_quick(["29 < 30"])
    later = replace(by, clock=solver().clock, until=solver().clock() + 60)
    assert list(filter_nodes(parsed(pod("p", "c")), ["a"], world, later).passed) == ["a"]


@pytest.mark.parametrize("gone", [{"deleting": True}, {"phase": "Failed"}], ids=["on its way out", "finished"])
def test_a_nominated_pod_that_will_not_run_holds_nothing(gone: dict[str, Any]) -> None:
    nominated = pod("n", "n", nominated="a", priority=5, deleting="deleting" in gone)
    nominated["status"] |= {"phase": gone.get("phase", "Pending")}
    assert list(filtered(pod("p", "c"), *TWO_NODES, claim("c"), claim("n"), nominated).passed) == ["a", "b"]


def test_a_nominated_pod_holds_devices_that_are_still_to_be_freed() -> None:
    terminating = pod("victim", "low", on="a", deleting=True)
    result = filtered(pod("p", "c"), *TWO_NODES, claim("c"), LOW, terminating, *NOMINATED)
    assert list(result.passed) == ["b"]


def test_a_nominated_pod_holds_network_attached_devices_for_all_nodes() -> None:
    world = (GPU, node("a"), node("b"), network_slice("net"), claim("c"), *NOMINATED)
    assert not filtered(pod("p", "c"), *world).passed


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        [claim("n", request(count=9))],
        [claim("n", request(selectors=["device.attributes['gpu.example.com'].boom"]))],
    ],
    ids=["a claim that is not there", "more than there is", "a selector that fails"],
)
def test_a_nominated_pod_that_could_not_be_served_there_holds_nothing(wanted: list[Object]) -> None:
    nominated = pod("n", "n", nominated="a", priority=5)
    assert list(filtered(pod("p", "c"), *TWO_NODES, claim("c"), nominated, *wanted).passed) == ["a", "b"]


def test_a_claim_shared_with_a_nominated_pod_is_not_held_against_us() -> None:
    shared = pod("n", "c", nominated="a", priority=5)
    assert list(filtered(pod("p", "c"), *TWO_NODES, claim("c"), shared).passed) == ["a", "b"]
