"""What is decided once, what again, and that nodes which differ in anything that counts are not taken for one."""

from dataclasses import replace
from typing import Any

import pytest

from allocator.effort import Limits
from allocator.model import AllocationResult, Claim, DeviceId, DeviceResult
from allocator.parse import parse_claim
from allocator.quantity import Quantity
from extender.cluster.api import RESOURCES
from extender.cluster.objects import parse_node_object
from extender.cluster.state import Event, EventType
from extender.deciding.decider import AT_HAND, AtHand, Decided, Decider, NotAtHandError
from extender.deciding.outlook import Numbers
from tests.extender.clusters import (
    DRIVER,
    Object,
    claim,
    device_class,
    local_slice,
    network_slice,
    node,
    request,
    solver,
    state_of,
    taint_rule,
)

GPU = device_class(selectors=[f'device.driver == "{DRIVER}"'])
MODEL = f'device.attributes["{DRIVER}"].model == "x"'
ROOT = f"{DRIVER}/root"
NAMES = ("a", "b", "c")


class Scene:
    """A cluster that is followed, and pods that ask one after the other.

    Attributes:
        solved: nodes that the solver was asked about for the last pod.
    """

    solved = 0

    def __init__(self, *objects: Object, **limits: Any) -> None:
        self.state = state_of(objects)
        self.decider = Decider(solver(**limits), self.state.changes_since)

    def ask(self, *requests: Object, names: tuple[str, ...] = NAMES, match: str = "", pod: str = "p") -> Decided:
        """The next pod with a claim of these requests."""
        before = self.decider.solved
        self.decider.follow(self.state.snapshot)
        decided = self.decider.decide((asked(*requests, match=match, pod=pod),), names, self.state.snapshot)
        self.solved = self.decider.solved - before
        return decided

    def happens(self, raw: Object, kind: EventType = EventType.MODIFIED) -> None:
        self.state.apply(Event(kind, RESOURCES[raw["kind"]], raw))

    def takes(self, pool: str, device: str, *, share: str = "", uid: str = "uid-other") -> None:
        found = DeviceResult("gpu", DeviceId(DRIVER, pool, device))
        if share:
            found = replace(found, share_id=share, consumed_capacity={"memory": Quantity.parse("1Gi")})
        self.state.assume(uid, AllocationResult((found,)), "uid-pod")


def asked(*requests: Object, match: str = "", pod: str = "p") -> Claim:
    raw = claim(f"claim-of-{pod}", *requests)
    if match:
        raw["spec"]["devices"]["constraints"] = [{"matchAttribute": match}]
    return parse_claim(raw)


def yes(decided: Decided) -> list[bool]:
    return [verdict.merit is not None for verdict in decided.verdicts]


def pool_of(name: str, *devices: Object) -> Object:
    """A node's slice with devices that differ."""
    raw = local_slice(name, len(devices))
    raw["spec"]["devices"] = [{"name": f"gpu-{i}", **device} for i, device in enumerate(devices)]
    return raw


def texts(**values: str) -> Object:
    return {"attributes": {name: {"string": value} for name, value in values.items()}}


def three(*devices: Object) -> list[Object]:
    """Three nodes that are alike."""
    return [GPU, *map(node, NAMES), *(pool_of(name, *devices) for name in NAMES)]


# --- once for all that are alike ---------------------------------------------------------------------------


def test_nodes_that_are_alike_are_decided_once() -> None:
    scene = Scene(*three({}, {}))
    decided = scene.ask()
    assert (yes(decided), scene.solved) == ([True] * 3, 1)
    assert len(set(decided.verdicts)) == 1


def test_an_attribute_that_nobody_reads_makes_no_difference() -> None:
    pools = [pool_of(name, texts(model="x", uuid=name)) for name in NAMES]
    scene = Scene(GPU, *map(node, NAMES), *pools)
    assert yes(scene.ask(request(selectors=[MODEL]))) == [True] * 3
    assert scene.solved == 1


def test_which_of_devices_that_are_alike_is_held_makes_no_difference() -> None:
    scene = Scene(*three({}, {}, {}))
    scene.takes("a", "gpu-0", uid="uid-1")
    scene.takes("b", "gpu-2", uid="uid-2")
    assert yes(scene.ask()) == [True] * 3
    assert scene.solved == 2


def test_under_match_attribute_it_makes_no_difference_what_the_common_values_are() -> None:
    pools = [pool_of(name, texts(root=f"{name}-0"), texts(root=f"{name}-0"), texts(root="1")) for name in NAMES]
    scene = Scene(GPU, *map(node, NAMES), *pools)
    assert (yes(scene.ask(request(count=2), match=ROOT)), scene.solved) == ([True] * 3, 1)


# --- not for those that differ -----------------------------------------------------------------------------

PART = {"consumesCounters": [{"counterSet": "set", "counters": {"parts": {"value": "1"}}}]}
WHOLE = {"consumesCounters": [{"counterSet": "set", "counters": {"parts": {"value": "3"}}}]}
TAINTED = {"taints": [{"key": "sick", "effect": "NoSchedule"}]}
SMALL, LARGE = ({"capacity": {"memory": {"value": size}}} for size in ("1Gi", "4Gi"))
ASKS_2GI = request() | {"exactly": {**request()["exactly"], "capacity": {"requests": {"memory": "2Gi"}}}}


@pytest.mark.parametrize(
    ("usual", "different", "wanted", "match"),
    [
        (texts(model="x"), texts(model="y"), request(selectors=[MODEL]), ""),
        (texts(model="1"), {"attributes": {"model": {"int": 1}}}, request(selectors=[MODEL.replace('"x"', '"1"')]), ""),
        ({}, TAINTED, request(count=2), ""),
        (LARGE, SMALL, ASKS_2GI, ""),
        (texts(root="r"), texts(root="s"), request(count=2), ROOT),
        (texts(root="r"), {}, request(count=2), ROOT),
    ],
    ids=["a value that is read", "its type", "a taint", "capacity", "which values are common", "no value"],
)
def test_a_device_that_differs_in_what_counts_makes_a_node_another_one(
    usual: Object, different: Object, wanted: Object, match: str
) -> None:
    devices = [different] if wanted["exactly"]["count"] == 1 else [usual, different]
    scene = Scene(*three(*[usual] * len(devices)), pool_of("b", *devices))
    assert yes(scene.ask(wanted, match=match)) == [True, False, True]


def test_devices_that_draw_on_counters_make_a_node_another_one() -> None:
    def pools(name: str, *devices: Object) -> list[Object]:
        raw = pool_of(name, *devices)
        raw["spec"]["pool"]["resourceSliceCount"] = 2
        counters = {"name": "set", "counters": {"parts": {"value": "3"}}}
        spec = {**raw["spec"], "sharedCounters": [counters]}
        del spec["devices"]
        return [raw, raw | {"metadata": raw["metadata"] | {"name": f"{name}-counters"}, "spec": spec}]

    nodes = [*pools("a", PART, PART), *pools("b", WHOLE, PART), *pools("c", PART, PART)]
    assert yes(Scene(GPU, *map(node, NAMES), *nodes).ask(request(count=2))) == [True, False, True]


def test_a_taint_rule_for_one_device_makes_its_node_another_one() -> None:
    scene = Scene(*three({}), taint_rule("r", driver=DRIVER, pool="b", device="gpu-0"))
    assert yes(scene.ask()) == [True, False, True]


def test_with_admin_access_it_matters_which_of_devices_that_are_alike_is_held() -> None:
    """The administrator's request comes first and takes the first device, held or not; what follows, another one."""
    admin = request("admin")
    admin["exactly"]["adminAccess"] = True
    scene = Scene(GPU, *map(node, "ab"), *(pool_of(name, SMALL, SMALL, LARGE) for name in "ab"))
    scene.takes("a", "gpu-0", uid="uid-1")
    scene.takes("b", "gpu-1", uid="uid-2")
    first, second = scene.ask(admin, request(), names=("a", "b")).verdicts
    assert first.merit is not None
    assert second.merit is not None
    assert (first.merit.capacity, second.merit.capacity) == (
        {f"{DRIVER}/memory": 2**30 * 10**9},
        {f"{DRIVER}/memory": 2**32 * 10**9},
    )


def test_of_shared_devices_that_are_alike_it_matters_which_is_used() -> None:
    shared = LARGE | {"allowMultipleAllocations": True}
    scene = Scene(GPU, *map(node, "ab"), *(pool_of(name, shared, shared) for name in "ab"))
    scene.takes("a", "gpu-0", share="s", uid="uid-1")
    scene.takes("b", "gpu-1", share="t", uid="uid-2")
    wanted = request() | {"exactly": {**request()["exactly"], "capacity": {"requests": {"memory": "1Gi"}}}}
    first, second = scene.ask(wanted, names=("a", "b")).verdicts
    assert first.merit is not None
    assert second.merit is not None
    assert (first.merit.free, second.merit.free) == (0.5, 0.0)


# --- what is known stays known -----------------------------------------------------------------------------


def test_the_next_pod_of_a_shape_costs_nothing_whatever_its_claim_is_called() -> None:
    scene = Scene(*three({}))
    before = scene.ask(pod="p")
    after = scene.ask(pod="q")
    assert (scene.solved, list(after.verdicts)) == (0, list(before.verdicts))


def test_after_a_change_only_its_node_is_decided_again() -> None:
    scene = Scene(*three({}, {}))
    scene.ask(request(count=2))
    scene.takes("b", "gpu-0")
    assert (yes(scene.ask(request(count=2))), scene.solved) == ([True, False, True], 1)


CHANGES: list[tuple[str, Object, EventType]] = [
    ("devices gone", pool_of("b"), EventType.MODIFIED),
    ("a slice gone", pool_of("b"), EventType.DELETED),
    ("a slice of another node now", local_slice("b") | {"spec": local_slice("d")["spec"]}, EventType.MODIFIED),
    ("a taint rule", taint_rule("r", pool="b"), EventType.ADDED),
    ("a node gone", node("b"), EventType.DELETED),
]


@pytest.mark.parametrize(("raw", "kind"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_what_changes_is_noticed(raw: Object, kind: EventType) -> None:
    scene = Scene(*three({}))
    assert yes(scene.ask()) == [True] * 3
    scene.happens(raw, kind)
    assert yes(scene.ask()) == [True, False, True]


def test_another_class_is_another_shape() -> None:
    scene = Scene(*three({}))
    scene.ask()
    scene.happens(device_class(selectors=["false"]))
    assert yes(scene.ask()) == [False] * 3


def test_what_is_held_of_a_pool_that_all_nodes_reach_concerns_all_of_them() -> None:
    scene = Scene(GPU, *map(node, NAMES), network_slice("net"))
    assert yes(scene.ask()) == [True] * 3
    scene.takes("net", "gpu-0")
    assert (yes(scene.ask()), scene.solved) == ([False] * 3, 1)
    scene.state.forget("uid-other")
    assert yes(scene.ask()) == [True] * 3


def test_when_the_log_does_not_go_back_that_far_everything_is_looked_at_again() -> None:
    scene = Scene(*three({}))
    scene.decider = Decider(solver(), lambda _: None)
    scene.ask()
    scene.takes("b", "gpu-0")
    assert yes(scene.ask()) == [True, False, True]


def test_what_holds_in_a_fork_is_not_taken_for_the_cluster() -> None:
    scene = Scene(*three({}))
    scene.ask()
    base = scene.state.snapshot
    held = AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "b", "gpu-0")),))
    fork = replace(base, usage=base.usage.with_allocation(held))
    assert yes(scene.decider.decide((asked(),), NAMES, fork)) == [True, False, True]
    assert yes(scene.ask()) == [True] * 3


def test_a_node_that_was_sent_counts_as_it_was_sent_and_no_further() -> None:
    zoned = network_slice("net")
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    zoned["spec"] = {**zoned["spec"], "nodeSelector": {"nodeSelectorTerms": terms}}
    del zoned["spec"]["allNodes"]
    scene = Scene(GPU, *map(node, NAMES), zoned)
    assert yes(scene.ask()) == [False] * 3
    sent = {name: parse_node_object(node(name, labels={"zone": "z"} if name == "b" else {})) for name in NAMES}
    assert yes(scene.decider.decide((asked(),), NAMES, scene.state.snapshot, sent=sent)) == [False, True, False]
    assert yes(scene.ask()) == [False] * 3


def test_a_search_that_was_stopped_is_tried_again_with_the_next_pod_but_once_for_all_alike() -> None:
    scene = Scene(*three({}), limits=Limits(steps=0))
    for _ in range(2):
        assert yes(scene.ask()) == [False] * 3
        assert scene.solved == 1


def test_what_is_remembered_of_nodes_that_are_no_more_is_forgotten() -> None:
    scene = Scene(*three({}))
    for _ in range(2000):
        scene.takes("b", "gpu-0")
        scene.ask()
        scene.state.forget("uid-other")
        scene.ask()
    (memory,) = scene.decider._memories.values()
    assert len(memory.keys) < 2000


def test_a_number_is_never_given_twice_although_values_are_forgotten() -> None:
    numbers = Numbers(limit=2)
    given = [numbers.of(value) for value in "abcabc"]
    assert len(set(given)) == len(given)


# --- at once, or not at all --------------------------------------------------------------------------------


def test_what_is_known_is_at_hand() -> None:
    scene = Scene(*three({}, {}))
    known = scene.ask()
    at_hand = AtHand(scene.decider).decide((asked(pod="q"),), NAMES, scene.state.snapshot)
    assert at_hand == Decided(known.verdicts, 0)


def test_a_shape_that_is_new_is_not_at_hand() -> None:
    scene = Scene(*three({}))
    scene.ask()
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((asked(request(count=2)),), NAMES, scene.state.snapshot)


def test_a_node_that_is_like_no_other_is_not_at_hand() -> None:
    scene = Scene(*three({}))
    scene.ask()
    scene.takes("a", "gpu-0")
    scene.decider.follow(scene.state.snapshot)
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((asked(),), NAMES, scene.state.snapshot)
    assert yes(AtHand(scene.decider).decide((asked(),), NAMES[1:], scene.state.snapshot)) == [True, True]


def test_many_nodes_that_nobody_has_looked_at_are_not_at_hand() -> None:
    names = tuple(f"n{number}" for number in range(2 * AT_HAND))
    scene = Scene(GPU, *map(node, names), *map(local_slice, names))
    scene.ask(names=names[:1])
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((asked(),), names, scene.state.snapshot)
    some = AtHand(scene.decider).decide((asked(),), names[:AT_HAND], scene.state.snapshot)
    assert yes(some) == [True] * AT_HAND


def test_a_cluster_is_near_until_much_has_changed() -> None:
    scene = Scene(*three({}))
    assert not scene.decider.is_near(scene.state.snapshot)
    scene.ask()
    for number in range(AT_HAND):
        assert scene.decider.is_near(scene.state.snapshot)
        scene.takes("a", "gpu-0", uid=f"uid-{number}")
    scene.takes("a", "gpu-0", uid="uid-more")
    assert not scene.decider.is_near(scene.state.snapshot)
