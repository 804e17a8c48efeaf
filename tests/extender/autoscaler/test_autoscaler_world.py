"""Worlds: made-up nodes beside real ones, claims that are not made yet, pods booked and moved."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import DeviceId
from extender.answers.audit import audit_snapshot
from extender.autoscaler.simulated_cluster import World
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No
from extender.framework.filter import FilterResult
from extender.framework.wire import BindArgs
from extender.kube.api import ObjectKey
from extender.tools.faults import RefusedError
from tests.extender.autoscaler.scenes import machine, made_up, node_template, pod_of, world_of
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    claim,
    claim_template,
    local_slice,
    network_slice,
    parsed,
    pod,
    request,
    solver,
    taint_rule,
)

REAL = (machine("a"), local_slice("a"), machine("b"), local_slice("b"))
NEW = node_template("g", 2)


def asked(world: World, raw: Object, *nodes: Object) -> FilterResult:
    sent = made_up(*nodes)
    decider = Decider(solver(), None)
    return world.with_nodes(sent).filter(parsed(raw), [each.name for each in sent], decider, sent=sent)


def booked(world: World, raw: Object, node: Object) -> World:
    (sent,) = made_up(node)
    after = world.with_nodes((sent,)).with_pod(parsed(raw), sent, solver())
    assert not isinstance(after, No), after.reason
    return after


def refused(world: World, raw: Object, node: Object) -> str:
    (sent,) = made_up(node)
    after = world.with_nodes((sent,)).with_pod(parsed(raw), sent, solver())
    assert isinstance(after, No)
    return after.reason.in_words()


def devices_of(world: World, name: str) -> dict[str, list[str]]:
    """Claim to devices, of a pod that is booked."""
    found = {}
    for key, each in world.snapshot.claims.items():
        if any(user.name == name for user in each.claim.reserved_for) and each.claim.allocation is not None:
            found[key.name] = [str(result.device) for result in each.claim.allocation.results]
    return found


def test_what_was_decided_for_one_pod_of_a_world_holds_for_the_next_on_all_other_nodes() -> None:
    names = [f"n{number}" for number in range(20)]
    world = world_of(each for name in names for each in (machine(name), local_slice(name, 2)))
    decider = Decider(solver(), None)
    decider.follow(world.snapshot)
    solved = []
    for number in range(3):
        asked_for = pod_of(f"p{number}", "gpu")
        assert world.filter(parsed(asked_for), names, decider).passed == tuple(names)
        solved.append(decider.solved)
        world = booked(world, asked_for, machine(names[number]))
    assert solved == [1, 2, 2]


# --- nodes --------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_exist_has_what_its_template_brings() -> None:
    result = asked(world_of(REAL, NEW), pod_of("p", "gpu"), machine("n1", "g"), machine("n2", "unknown"))
    assert (list(result.passed), result.unresolvable.in_words()) == (["n1"], {"n2": "no device for request gpu"})


def test_a_real_node_has_its_real_slices_whatever_templates_say() -> None:
    held = claim("c", allocated=["a/gpu-0"], at="a")
    result = asked(world_of((*REAL, held), NEW), pod_of("p", "gpu"), machine("a", "g"), machine("b", "g"))
    assert (list(result.passed), result.unresolvable.in_words()) == (["b"], {"a": "no free device for request gpu"})


def test_a_real_node_that_has_published_before_its_object_is_known_is_real() -> None:
    result = asked(world_of((local_slice("late"),), node_template("g", 2)), pod_of("p", "gpu"), machine("late", "g"))
    assert len(result.passed) == 1
    two = claim_template("two", request(count=2))
    world = world_of((local_slice("late"), two), node_template("g", 2))
    assert asked(world, pod_of("p", "two"), machine("late", "g")).unresolvable


def test_adding_nodes_does_not_add_devices_of_the_network() -> None:
    held = claim("c", allocated=["net/gpu-0"])
    busy = world_of((network_slice("net"), held))
    assert asked(busy, pod_of("p", "gpu"), machine("n1")).unresolvable.in_words() == {
        "n1": "no free device for request gpu"
    }
    free = world_of((network_slice("net"),))
    after = booked(free, pod_of("p", "gpu"), machine("n1"))
    assert asked(after, pod_of("q", "gpu"), machine("n2")).unresolvable.in_words() == {
        "n2": "no free device for request gpu"
    }


def test_labels_as_sent_decide_what_a_real_node_reaches() -> None:
    east = network_slice("net")
    del east["spec"]["allNodes"]
    expressions = [{"key": "zone", "operator": "In", "values": ["east"]}]
    east["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    world = world_of((machine("a"), east))
    moved = machine("a")
    moved["metadata"]["labels"]["zone"] = "east"
    assert list(asked(world, pod_of("p", "gpu"), moved).passed) == ["a"]
    assert not asked(world, pod_of("p", "gpu"), machine("a")).passed


def test_a_made_up_node_that_changes_its_group_changes_its_devices() -> None:
    world = world_of((), node_template("g"), node_template("h", 3)).with_nodes(made_up(machine("n", "g")))
    assert world.with_nodes(made_up(machine("n", "g"))) is world
    after = world.with_nodes(made_up(machine("n", "h")))
    assert [len(each.devices) for each in after.snapshot.inventory.slices.values()] == [3]
    assert after.weight > world.weight
    assert after.with_nodes(made_up(machine("n", "g"))).weight == world.weight


def test_taint_rules_hold_on_made_up_nodes() -> None:
    world = world_of((taint_rule("r", driver=DRIVER),), NEW)
    result = asked(world, pod_of("p", "gpu"), machine("n", "g"))
    assert result.unresolvable.in_words() == {"n": "untolerated device taint for request gpu"}


def test_a_world_shares_with_the_cluster_and_leaves_it_alone() -> None:
    world = world_of(REAL, NEW)
    before = world.snapshot._replace()
    after = booked(world, pod_of("p", "gpu"), machine("n", "g"))
    for name in ("nodes", "claims", "pods", "inventory", "usage"):
        assert getattr(world.snapshot, name) is getattr(before, name)
        assert getattr(after.snapshot, name) is not getattr(before, name)


# --- claims -------------------------------------------------------------------------------------------------


def test_a_claim_that_is_not_made_yet_is_built_from_its_template() -> None:
    after = booked(world_of(REAL), pod_of("p", "gpu"), machine("a"))
    assert devices_of(after, "p") == {"p/gpu": [f"{DRIVER}/a/gpu-0"]}
    assert after.snapshot.claims[ObjectKey("ns", "p/gpu")].claim.owner_uid == "uid-p"


def test_a_claim_that_is_made_already_is_the_one() -> None:
    made = claim("p-gpu-x", metadata={"ownerReferences": [owner("p")]})
    sent = pod_of("p", "gpu")
    known = pod_of("p", "gpu")
    known["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    after = booked(world_of((*REAL, made, known)), sent, machine("a"))
    assert devices_of(after, "p") == {"p-gpu-x": [f"{DRIVER}/a/gpu-0"]}


def test_a_claim_that_is_made_but_not_seen_yet_has_the_name_that_the_pod_gives() -> None:
    sent = pod_of("p", "gpu")
    sent["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    assert devices_of(booked(world_of(REAL), sent, machine("a")), "p") == {"p-gpu-x": [f"{DRIVER}/a/gpu-0"]}


def test_an_entry_without_a_claim_needs_none() -> None:
    sent = pod_of("p", "gpu")
    sent["status"]["resourceClaimStatuses"] = [{"name": "gpu"}]
    assert list(asked(world_of(()), sent, machine("anywhere")).passed) == ["anywhere"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (pod_of("p", "nowhere"), "claim template nowhere does not exist"),
        (pod("p", "missing"), "claim missing does not exist"),
        (pod("p", "wrong"), "device class tensor does not exist"),
    ],
    ids=["no template", "no claim", "no class"],
)
def test_a_pod_whose_claims_can_not_be_served_is_refused_with_the_reason(raw: Object, reason: str) -> None:
    world = world_of((*REAL, claim("wrong", request(device_class="tensor"))))
    assert asked(world, raw, machine("a")).unresolvable.in_words() == {"a": reason}
    assert refused(world, raw, machine("a")) == reason


def test_a_pod_without_devices_may_be_booked_anywhere() -> None:
    world = world_of(())
    assert booked(world, pod("plain"), machine("n")).snapshot.pods == world.snapshot.pods


# --- booking ------------------------------------------------------------------------------------------------


def test_booked_pods_hold_their_devices() -> None:
    world = world_of((), NEW)
    for name in ("p", "q"):
        world = booked(world, pod_of(name, "gpu"), machine("n", "g"))
    assert (devices_of(world, "p"), devices_of(world, "q")) == (
        {"p/gpu": [f"{DRIVER}/n/gpu-0"]},
        {"q/gpu": [f"{DRIVER}/n/gpu-1"]},
    )
    assert refused(world, pod_of("r", "gpu"), machine("n", "g")) == "no free device for request gpu"
    assert list(asked(world, pod_of("r", "gpu"), machine("n2", "g")).passed) == ["n2"]


def test_a_claim_that_two_pods_share_is_counted_once_and_binds_both_to_its_node() -> None:
    world = world_of((claim("shared"),), NEW)
    world = booked(world, pod("p", "shared"), machine("n", "g"))
    world = booked(world, pod("q", "shared"), machine("n", "g"))
    assert devices_of(world, "p") == devices_of(world, "q") == {"shared": [f"{DRIVER}/n/gpu-0"]}
    assert len(world.snapshot.claims[ObjectKey("ns", "shared")].claim.reserved_for) == 2
    reason = "claim shared is allocated for other nodes"
    assert asked(world, pod("r", "shared"), machine("n2", "g")).unresolvable.in_words() == {"n2": reason}
    booked(world, pod_of("r", "gpu"), machine("n", "g"))


def test_nobody_waits_for_binding_conditions() -> None:
    world = world_of(
        (claim("shared"),), node_template("g", bindingConditions=["ready"], bindingFailureConditions=["bad"])
    )
    for name in ("p", "q"):
        world = booked(world, pod(name, "shared"), machine("n", "g"))
    assert devices_of(world, "p") == devices_of(world, "q")


def test_booking_again_changes_nothing_and_booking_elsewhere_moves() -> None:
    world = booked(world_of((), NEW), pod_of("p", "gpu"), machine("n", "g"))
    again = booked(world, pod_of("p", "gpu"), machine("n", "g"))
    assert (devices_of(again, "p"), again.weight) == (devices_of(world, "p"), world.weight)
    moved = booked(world, pod_of("p", "gpu"), machine("n2", "g"))
    assert devices_of(moved, "p") == {"p/gpu": [f"{DRIVER}/n2/gpu-0"]}
    assert moved.snapshot.usage.device(DeviceId(DRIVER, "n", "gpu-0")).is_free


def test_a_running_pod_that_is_asked_about_without_its_node_is_to_move() -> None:
    running = pod_of("p", "gpu", on="a")
    running["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    owned = {"ownerReferences": [owner("p")]}
    world = world_of((*REAL, running, claim("p-gpu-x", allocated=["a/gpu-0"], at="a", users=["p"], metadata=owned)))
    assert list(asked(world, running, machine("a"), machine("b")).passed) == ["a"]
    moved = booked(world, pod_of("p", "gpu"), machine("b"))
    assert devices_of(moved, "p") == {"p-gpu-x": [f"{DRIVER}/b/gpu-0"]}
    booked(moved, pod_of("q", "gpu"), machine("a"))


def owner(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}


# --- laws ---------------------------------------------------------------------------------------------------

NAMES = ("n0", "n1", "n2")
SMALL: Object = {"attributes": {"size": {"string": "small"}}}
_WISHES = st.lists(st.tuples(st.sampled_from(["gpu", "two", "shared", "big"]), st.sampled_from(NAMES)), max_size=12)
_OBJECTS = (
    claim_template("two", request(count=2)),
    claim_template("big", request(selectors=[f'device.attributes["{DRIVER}"].size == "big"'])),
    claim("shared"),
    network_slice("net", 1, attributes={"size": {"string": "big"}}),
)


def _pod(number: int, kind: str) -> Object:
    return pod(f"p{number}", "shared") if kind == "shared" else pod_of(f"p{number}", kind)


async def _bound(wishes: Sequence[tuple[str, str]]) -> list[dict[str, list[str]] | None]:
    """Per pod, what binding it on a cluster that has the nodes gives; None where it is refused."""
    nodes = [machine(name, "g") for name in NAMES]
    cluster = Cluster.of(GPU, claim_template(), *_OBJECTS, *nodes, *(local_slice(name, 2, **SMALL) for name in NAMES))
    service = cluster.service()
    found: list[dict[str, list[str]] | None] = []
    for number, (kind, name) in enumerate(wishes):
        cluster.load(_pod(number, kind))
        await cluster.settle()
        try:
            await service.bind(BindArgs(f"p{number}", "ns", f"uid-p{number}", name))
        except RefusedError:
            found.append(None)
        else:
            found.append(_entries(cluster.state.snapshot, number))
    return found


def _simulated(wishes: Sequence[tuple[str, str]]) -> list[dict[str, list[str]] | None]:
    """The same, booked on nodes that do not exist."""
    world = world_of(_OBJECTS, node_template("g", 2, **SMALL))
    found: list[dict[str, list[str]] | None] = []
    for number, (kind, name) in enumerate(wishes):
        (node,) = made_up(machine(name, "g"))
        after = world.with_nodes((node,)).with_pod(parsed(_pod(number, kind)), node, solver())
        world = world if isinstance(after, No) else after
        found.append(None if isinstance(after, No) else _entries(world.snapshot, number))
    assert audit_snapshot(world.snapshot) == ()
    return found


def _entries(snapshot: Snapshot, number: int) -> dict[str, list[str]]:
    """Entry of the pod to the devices of the claim that it means."""
    found = snapshot.pod(f"uid-p{number}")
    assert found is not None
    entries = {}
    for entry in found.claims:
        name = entry.claim_name or found.claim_statuses[entry.name]
        allocation = snapshot.claims[ObjectKey("ns", str(name))].claim.allocation
        assert allocation is not None
        entries[entry.name] = [str(result.device) for result in allocation.results]
    return entries


@given(wishes=_WISHES)
def test_booking_on_made_up_nodes_gives_what_binding_on_a_cluster_of_those_nodes_gives(
    wishes: list[tuple[str, str]],
) -> None:
    assert _simulated(wishes) == asyncio.run(_bound(wishes))


# --- device plugins -----------------------------------------------------------------------------------------

PLUGIN = "example.com/fpga"


def test_what_pods_hold_of_device_plugins_counts_in_a_session() -> None:
    node, running = machine("n", **{PLUGIN: "3"}), pod("running", on="n", resources={PLUGIN: "1"})
    world = world_of((node, running))
    (there,) = made_up(node)
    asked = [parsed(pod(f"p{index}", resources={PLUGIN: "2"})) for index in range(2)]
    booked = world.with_pod(asked[0], there, solver())
    assert isinstance(booked, World)
    refused = booked.with_pod(asked[1], there, solver())
    assert isinstance(refused, No)
    assert refused.reason.in_words() == f"insufficient {PLUGIN}"
    deciding = Decider(solver(), None)
    assert booked.filter(asked[1], ["n"], deciding).unresolvable.in_words() == {"n": f"insufficient {PLUGIN}"}
    assert booked.filter(asked[0], ["n"], deciding).passed == ("n",), "the pod itself does not count"
    assert world.filter(asked[1], ["n"], deciding).passed == ("n",)


def test_a_node_that_is_sent_as_a_whole_has_the_device_plugins_that_were_sent() -> None:
    asked = parsed(pod("p", resources={PLUGIN: "2"}))
    world = world_of()
    for amount, reasons in (("1", {"new": f"insufficient {PLUGIN}"}), ("2", {})):
        sent = made_up(machine("new", **{PLUGIN: amount}))
        found = world.with_nodes(sent).filter(asked, ["new"], Decider(solver(), None), sent=sent)
        assert found.unresolvable.in_words() == reasons
