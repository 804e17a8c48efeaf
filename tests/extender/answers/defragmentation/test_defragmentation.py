"""Which pods a defragmentation moves for which pending pods, and what protects the others."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from extender import Cluster
from extender.answers.defragmentation.defragment import LATE, SearchBounds, defragment
from extender.answers.defragmentation.search import TAKEN
from extender.config.sources import load
from tests.extender.answers.defragmentation.scenes import FOREIGN, advice, moves, owned, runs, said, spared, waits
from tests.kit.clusters import (
    GPU,
    Object,
    budget,
    claim,
    claim_template,
    device_class,
    local_slice,
    network_slice,
    node,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.objects.quotas import quota


def nodes(**devices: int) -> list[Object]:
    """Nodes, each with a number of devices."""
    return [GPU, *(each for name, number in devices.items() for each in (node(name), local_slice(name, number)))]


HALF_FULL = [*nodes(a=2, b=2), *moves("x", "a/gpu-0", on="a"), *moves("y", "b/gpu-0", on="b")]
"""Two devices are free, each on another node."""


def test_a_pod_moves_so_that_devices_on_one_node_suffice() -> None:
    found = advice(*HALF_FULL, *waits("p", 2))
    assert said(found) == ["ns/p on a: move ns/x from a to b"]
    assert found.shapes[0].asks == ("gpu: 2 gpu",)


def test_a_claim_from_a_template_is_made_again_for_the_pod_that_moves() -> None:
    x, own = moves("x", "a/gpu-0", on="a")
    x["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    x["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "x-c"}]
    own["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-x", "controller": True}
    ]
    world = [*nodes(a=2, b=1), x, own, *waits("p", 2)]
    assert said(advice(*world, claim_template("one"))) == ["ns/p on a: move ns/x from a to b"]
    assert said(advice(*world)) == ["ns/p: no set of at most 3 moves makes room on any node"]


def test_priority_protects_nobody_from_a_move() -> None:
    world = [*nodes(a=2, b=1), *moves("x", "a/gpu-0", on="a", priority=1000), *waits("p", 2)]
    assert said(advice(*world)) == ["ns/p on a: move ns/x from a to b"]


def shared_with(name: str, running: list[Object]) -> list[Object]:
    """The claim is reserved for another pod, too."""
    running[1]["status"]["reservedFor"].append({"resource": "pods", "name": name, "uid": f"uid-{name}"})
    return [*running, pod(name, running[1]["metadata"]["name"], on="a")]


def shared_with_experiment(running: list[Object]) -> list[Object]:
    running[1]["status"]["reservedFor"].append(FOREIGN)
    return running


def used_by_experiment(name: str, device: str) -> Object:
    """A claim that no pod uses."""
    held = claim(name, allocated=[device], at="a")
    held["status"]["reservedFor"] = [FOREIGN]
    return held


def only_on_its_node(running: list[Object]) -> list[Object]:
    running[0]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "a"}
    return running


PROTECTED: Mapping[str, tuple[list[Object], dict[str, tuple[str, ...]]]] = {
    "a pod without a controller": (
        runs("x", "a/gpu-0", on="a"),
        {"no controller makes it again": ("pod ns/x",)},
    ),
    "a pod of a DaemonSet": (
        owned(runs("x", "a/gpu-0", on="a"), "DaemonSet", "agent"),
        {"DaemonSet agent runs it on this node": ("pod ns/x",)},
    ),
    "a static pod": (
        owned(runs("x", "a/gpu-0", on="a"), "Node", "a"),
        {"it is a static pod of its node": ("pod ns/x",)},
    ),
    "a pod with a budget": (
        [*moves("x", "a/gpu-0", on="a", labels={"app": "x"}), budget("x", {"app": "x"}, 0)],
        {"PodDisruptionBudget ns/x allows no eviction": ("pod ns/x",)},
    ),
    "a pod that shares its claim": (
        shared_with("mate", moves("x", "a/gpu-0", on="a")),
        {
            "it shares claim ns/x-c with pod ns/mate": ("pod ns/x",),
            "no controller makes it again": ("pod ns/mate",),
        },
    ),
    "a pod that shares its claim with something that is no pod": (
        shared_with_experiment(moves("x", "a/gpu-0", on="a")),
        {"it shares claim ns/x-c with experiments x": ("pod ns/x",)},
    ),
    "a claim that no pod uses": (
        [used_by_experiment("e", "a/gpu-0")],
        {"reserved for experiments x": ("claim ns/e",)},
    ),
    "a pod that its node selector keeps on its node": (
        only_on_its_node(moves("x", "a/gpu-0", on="a")),
        {"no other node takes it": ("pod ns/x",)},
    ),
}


@pytest.mark.parametrize(("running", "expected"), PROTECTED.values(), ids=PROTECTED)
def test_protected_pods_are_named_and_do_not_move(running: list[Object], expected: dict[str, tuple[str, ...]]) -> None:
    found = advice(*nodes(a=2, b=1), *running, *waits("p", 2))
    assert not found.proposals
    assert spared(found) == expected


def test_the_place_that_one_pod_would_leave_is_no_place_for_another() -> None:
    full = [*nodes(a=1, b=1), *moves("x", "a/gpu-0", on="a"), *moves("y", "b/gpu-0", on="b")]
    assert spared(advice(*full, *waits("p"))) == {"no other node takes it": ("pod ns/x", "pod ns/y")}


def test_a_pod_in_a_namespace_at_its_quota_moves() -> None:
    """It gives back what it holds before it asks again."""
    other = waits("p", 2)
    for each in other:
        each["metadata"]["namespace"] = "elsewhere"
    assert said(advice(*HALF_FULL, quota(), *other)) == ["elsewhere/p on a: move ns/x from a to b"]


def test_a_pod_of_a_scheduler_that_does_not_call_the_extender_does_not_move() -> None:
    world = [*nodes(a=2, b=1), *moves("x", "a/gpu-0", on="a"), *waits("p", 2)]
    world[-2]["spec"]["schedulerName"] = "dra-scheduler"
    found = advice(*world, schedulers=["dra-scheduler"])
    assert not found.proposals
    assert list(spared(found)) == [
        "no scheduler of ours is asked: schedulerName is default-scheduler; write dra-scheduler"
    ]


def test_no_set_of_moves_breaks_a_budget() -> None:
    two = [each for n in (0, 1) for each in moves(f"x{n}", f"a/gpu-{n}", on="a", labels={"app": "x"})]
    world = [*nodes(a=2, b=2), *moves("z", "b/gpu-0", on="b"), node("c"), local_slice("c", 1), *two, *waits("p", 2)]
    one, both = budget("x", {"app": "x"}, 1), budget("x", {"app": "x"}, 2)
    assert said(advice(*world, one)) == ["ns/p on b: move ns/z from b to c"]
    without_z = [each for each in world if each["metadata"]["name"] not in {"z", "z-c", "b", "slice-b"}]
    wide = [*without_z, node("b"), local_slice("b", 1)]
    assert not advice(*wide, one).proposals
    assert said(advice(*wide, both)) == ["ns/p on a: move ns/x0 from a to b; move ns/x1 from a to c"]


# --- choice -------------------------------------------------------------------------------------------------


def test_the_node_with_the_fewest_moves_is_chosen() -> None:
    small = [each for n in (0, 1) for each in moves(f"x{n}", f"a/gpu-{n}", on="a")]
    world = [*nodes(a=3, b=3, c=2), *small, *moves("y", "b/gpu-0", on="b"), *waits("p", 3)]
    assert said(advice(*world)) == ["ns/p on b: move ns/y from b to a"]


def test_of_equally_few_moves_those_are_chosen_that_serve_most_pods() -> None:
    zone = {"zone": "z"}
    world = [*nodes(), node("b", labels=zone), local_slice("b", 2), node("c", labels=zone), local_slice("c", 4)]
    world += [*moves("y", "b/gpu-0", on="b"), *moves("z", "c/gpu-0", "c/gpu-1", "c/gpu-2", on="c")]
    many = [each for n in range(2) for each in in_zone(waits(f"p{n}", 2))]
    outside = [node("d"), local_slice("d", 3)]
    assert said(advice(*world, *outside, *many)) == ["ns/p0, ns/p1 on c: move ns/z from c to d"]


def test_shapes_that_win_most_for_each_move_come_first() -> None:
    pieces = [each for n in (0, 1) for each in moves(f"x{n}", f"a/gpu-{n}", on="a")]
    world = [*nodes(a=4, b=4), *pieces, *moves("y", "b/gpu-0", "b/gpu-1", on="b")]
    found = advice(*world, *waits("big", 4), *waits("middle", 3))
    assert [each.proposal and each.proposal.moves[0].pod.name for each in found.shapes] == ["y", "x0"]


def test_no_proposal_moves_more_pods_than_allowed() -> None:
    two = [each for n in (0, 1) for each in moves(f"x{n}", f"a/gpu-{n}", on="a")]
    world = [*nodes(a=3, b=2), *two, *waits("p", 3)]
    assert said(advice(*world, most_moves=2)) == ["ns/p on a: move ns/x0 from a to b; move ns/x1 from a to b"]
    assert said(advice(*world, most_moves=1)) == ["ns/p: no move makes room on any node"]


def test_pods_that_find_no_places_together_do_not_move_together() -> None:
    """Each of two pods could move alone. A third pod moves with one of them instead."""
    held = [each for n in (0, 1) for each in moves(f"x{n}", f"a/gpu-{n}", on="a")]
    narrow = moves("z", "a/gpu-2", on="a")
    for each in (held[0], held[2]):
        each["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "b"}
    world = [*nodes(a=3, b=1, c=1), *held, *narrow, *waits("p", 2)]
    assert said(advice(*world)) == ["ns/p on a: move ns/x0 from a to b; move ns/z from a to c"]


# --- evictions ----------------------------------------------------------------------------------------------


def without_place(**more: Any) -> list[Object]:
    """Two devices are free, on two nodes. The pod that is in the way holds two, and no other node takes it."""
    return [*nodes(a=3, b=1), *moves("x", "a/gpu-0", "a/gpu-1", on="a", **more)]


def test_a_pod_that_finds_no_place_is_no_move_but_an_eviction() -> None:
    found = advice(*without_place(priority=1), *waits("p", 2, priority=2))
    assert said(found) == ["ns/p on a: evict ns/x"]
    assert found.proposals[0].evictions == 1


def test_a_pod_is_evicted_only_where_preemption_would_evict_it() -> None:
    asked = waits("p", 2, priority=2)
    asked[0]["spec"]["preemptionPolicy"] = "Never"
    nothing = ["ns/p: no set of at most 3 moves makes room on any node"]
    assert said(advice(*without_place(priority=1), *asked)) == nothing
    assert said(advice(*without_place(priority=2), *waits("p", 2, priority=2))) == nothing


def test_a_move_is_better_than_an_eviction() -> None:
    world = [*without_place(priority=1), node("c"), local_slice("c", 2), *moves("y", "c/gpu-0", on="c", priority=1)]
    assert said(advice(*world, *waits("p", 2, priority=2))) == ["ns/p on c: move ns/y from c to a"]


# --- why there is no proposal -------------------------------------------------------------------------------


def in_zone(waiting: list[Object]) -> list[Object]:
    waiting[0]["spec"]["nodeSelector"] = {"zone": "z"}
    return waiting


def alike(waiting: list[Object]) -> list[Object]:
    """The devices of the pod have to agree in an attribute that no device has."""
    waiting[1]["spec"]["devices"]["constraints"] = [{"matchAttribute": "example.com/root"}]
    return waiting


REASONS: Mapping[str, tuple[list[Object], str]] = {
    "too few free devices": (
        [*HALF_FULL, *waits("p", 3)],
        "request gpu asks for 3 devices of class gpu, and 2 suitable devices are free on all nodes together",
    ),
    "nobody can move": (
        [*nodes(a=2, b=1), *runs("x", "a/gpu-0", on="a"), *waits("p", 2)],
        "no pod that holds devices can move",
    ),
    "no pod holds devices": (
        [*nodes(a=2), *alike(waits("p", 2))],
        "no pod holds devices, so no move helps",
    ),
    "no node for the pod": ([*HALF_FULL, *in_zone(waits("p", 2))], "kube-scheduler itself rejects all nodes"),
    "a claim that does not exist": ([*HALF_FULL, pod("p", "gone")], "claim gone does not exist"),
    "a claim that does not exist, and no node for the pod": (
        [*HALF_FULL, *in_zone([pod("p", "gone")])],
        "claim gone does not exist",
    ),
    "a class that does not exist": (
        [*HALF_FULL, pod("p", "c"), claim("c", request(device_class="tpu"))],
        "device class tpu does not exist",
    ),
    "a selector that fails": (
        [*HALF_FULL, pod("p", "c"), claim("c", request(count=2, selectors=["device.attributes['x'].y == 1"]))],
        "claim ns/c, request gpu: selector 0: no such key: y",
    ),
    "a nomination": (
        [*HALF_FULL, *waits("p", 2, nominated="a")],
        "devices are freed for the pod on node a already",
    ),
}


@pytest.mark.parametrize(("objects", "reason"), REASONS.values(), ids=REASONS)
def test_no_proposal_has_a_reason(objects: list[Object], reason: str) -> None:
    assert said(advice(*objects)) == [f"ns/p: {reason}"]


def test_room_that_a_pod_of_another_shape_takes_is_no_room() -> None:
    """Room for three devices would be room for two, and the pod that asks for two is older."""
    older = waits("older", 2, created="2025-01-01T00:00:00Z")
    world = [*nodes(a=3, b=1, c=1), *moves("x", "a/gpu-0", on="a"), *moves("y", "a/gpu-1", on="a")]
    assert said(advice(*world, *waits("p", 3))) == ["ns/p on a: move ns/x from a to b; move ns/y from a to c"]
    assert said(advice(*world, *older, *waits("p", 3))) == ["ns/older on a: move ns/x from a to b", f"ns/p: {TAKEN}"]


def test_a_search_without_time_says_so() -> None:
    outcomes, reasons = [], set()
    for most in range(0, 120, 4):
        slow = replace(solver(), clock=partial(next, count(0, 0.001)))
        bounds = SearchBounds(seconds=most / 1000)
        try:
            found = defragment(snapshot_of(*HALF_FULL, *waits("p", 2)), slow, bounds=bounds)
            outcomes += said(found)
            reasons |= {*spared(found)}
        except TimeoutError:
            outcomes.append("nothing")
    expected = ["nothing", f"ns/p: {LATE}", "ns/p on a: move ns/x from a to b"]
    assert list(dict.fromkeys(outcomes)) == expected
    assert reasons == {"there was not enough time to look for another node"}


# --- the cluster as it will be ------------------------------------------------------------------------------


def test_pods_that_fit_are_no_shape_and_hold_their_devices() -> None:
    found = advice(*HALF_FULL, *waits("q", created="2025-01-01T00:00:00Z"), *waits("p", 2))
    assert found.fitting == (("ns/q", "a"),)
    assert said(found) == [
        "ns/p: request gpu asks for 2 devices of class gpu, and 1 suitable device is free on all nodes together"
    ]


def test_devices_of_terminating_pods_count_as_free() -> None:
    world = [*nodes(a=2), *moves("x", "a/gpu-0", on="a", deleting=True)]
    found = advice(*world, *waits("p", 2))
    assert (found.fitting, found.shapes) == ((("ns/p", "a"),), ())


def test_equal_pods_are_one_shape() -> None:
    found = advice(*HALF_FULL, *waits("p", 2), *waits("q", 2))
    assert [each.pods for each in found.shapes] == [("ns/p", "ns/q")]
    assert said(found) == ["ns/p on a: move ns/x from a to b"]


def test_one_pod_is_asked_for_by_name() -> None:
    found = advice(*HALF_FULL, *waits("p", 2), *waits("q", 3), only="q")
    assert [each.pods for each in found.shapes] == [("ns/q",)]


def test_a_pod_on_another_node_moves_for_a_device_that_the_network_attaches() -> None:
    fast = device_class("fast", selectors=["device.attributes['gpu.example.com'].fast"])
    devices: Object = {"attributes": {"fast": {"bool": True}}}
    world = [GPU, fast, node("a"), node("b"), node("c"), network_slice("net", **devices), local_slice("c", 1)]
    world[-1]["spec"]["devices"][0]["attributes"] = {"fast": {"bool": False}}
    asked = [pod("p", "p-c"), claim("p-c", request(device_class="fast"))]
    assert said(advice(*world, *moves("x", "net/gpu-0", on="b"), *asked)) == ["ns/p on a: move ns/x from b to c"]


def test_a_pod_with_an_extended_resource_gets_room() -> None:
    whole = device_class("whole", extended="example.com/gpu")
    world = [whole, *HALF_FULL, pod("p", resources={"example.com/gpu": "2"})]
    found = advice(*world)
    assert said(found) == ["ns/p on a: move ns/x from a to b"]
    assert found.shapes[0].asks == ("2 example.com/gpu",)


def test_a_pod_with_an_extended_resource_moves() -> None:
    """Its special claim goes with it, and a new one is made."""
    whole = device_class("whole", extended="example.com/gpu")
    small = [owned([pod(name, resources={"example.com/gpu": "1"})])[0] for name in ("x", "y")]
    cluster = Cluster.from_objects([whole, *nodes(a=2, b=2), *small], settings=load("scheduling: {policy: spread}"))
    cluster.schedule()
    cluster.add(pod("p", resources={"example.com/gpu": "2"}))
    assert said(defragment(cluster.snapshot, solver())) == ["ns/p on a: move ns/x from a to b"]


def test_conditions_that_are_not_looked_at_are_named() -> None:
    asked = waits("p", 2)
    asked[0]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert advice(*HALF_FULL, *asked).unmodeled == ("requests of CPU and memory",)
