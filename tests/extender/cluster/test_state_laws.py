"""Laws of the state, over random histories of a small cluster."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import AllocationResult, ClaimTemplate, DeviceId, DeviceResult, Quantity, Usage
from allocator.model.optional import OPTIONAL_REQUESTS, optional_problem
from extender.cluster.cluster_state import ClusterState
from extender.cluster.controller_marks import Mark
from extender.cluster.kinds import Topic
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.claims import (
    ALLOCATION_MODE,
    MARK,
    MARK_FINALIZER,
    READ,
    SPECIAL,
    mode_problem,
    parse_claim_object,
)
from extender.cluster.objects.pods import parse_pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.claim_rules import FINALIZER
from extender.kube.plain_pods import plain_pod, plain_pod_of_event
from extender.kube.resources import CLAIMS, PODS, RESOURCES, TEMPLATES, Resource
from tests.extender.cluster.writes.scenes import ALLOCATE, PROTECT, Scene
from tests.extender.cluster.writes.scenes import READ as READ_CALL
from tests.kit.clusters import (
    DRIVER,
    budget,
    claim,
    claim_template,
    device_class,
    local_slice,
    network_slice,
    node,
    pod,
    taint_rule,
)

NODES = ("n", "m")
DEVICES = ("n/gpu-0", "n/gpu-1", "m/gpu-0", "net/gpu-0")
SHARED = Quantity.parse("1Gi")


def some(values: Sequence[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


CPU = some([{}, {"cpu": "1"}, {"cpu": "500m"}])
OBJECTS: st.SearchStrategy[RawObject] = st.one_of(
    st.builds(node, some(NODES), labels=st.dictionaries(some(["zone"]), some(["a", "b"]))),
    st.builds(local_slice, some(NODES), st.integers(0, 2)),
    st.builds(network_slice, st.just("net"), st.integers(0, 2)),
    st.builds(device_class, some(["a", "b"]), extended=some([None, "example.com/x", "example.com/y"])),
    st.builds(taint_rule, some(["t"]), driver=some([DRIVER, "other"])),
    st.builds(budget, some(["b"]), st.just({}), st.integers(0, 2)),
    st.builds(
        claim,
        some(["c", "d"]),
        allocated=st.lists(some(DEVICES), max_size=2, unique=True),
        metadata=st.builds(lambda uid: {"uid": uid}, some(["uid-c", "uid-d", "uid-e"])),
    ),
    st.builds(
        lambda uid, raw: raw | {"metadata": raw["metadata"] | {"uid": uid}},
        some(["uid-p", "uid-q"]),
        st.builds(
            pod,
            some(["p", "q"]),
            some(["c", "d"]),
            on=some(["", *NODES]),
            nominated=some(["", *NODES]),
            resources=CPU,
        ),
    ),
    st.builds(pod, some(["p", "q"]), on=some(["", *NODES]), resources=CPU),
    st.just({**local_slice("n"), "spec": "not to be read"}),
)


@dataclass
class History:
    """Events as a watch would tell them, and what is there in the end; ``since`` is the revision before the first."""

    since: int = 0
    events: list[Event] = field(default_factory=list)
    there: dict[tuple[str, ObjectKey], RawObject] = field(default_factory=dict)

    def add(self, raw: RawObject, *, deleted: bool) -> None:
        at = (raw["kind"], key_of(raw))
        uids = {known["metadata"]["uid"] for key, known in self.there.items() if key != at and key[0] == at[0]}
        if raw["metadata"]["uid"] in uids:
            return
        version = str(self.since + len(self.events) + 1)
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": version}}
        if deleted:
            if self.there.pop(at, None) is None:
                return
            kind = EventType.DELETED
        else:
            kind = EventType.MODIFIED if at in self.there else EventType.ADDED
            self.there[at] = raw
        self.events.append(Event(kind, RESOURCES[raw["kind"]], raw))


@st.composite
def histories(draw: st.DrawFn, since: int = 0) -> History:
    history = History(since)
    for raw, deleted in draw(st.lists(st.tuples(OBJECTS, st.booleans()), max_size=30)):
        history.add(raw, deleted=deleted)
    return history


FLIGHTS = st.lists(
    st.tuples(
        st.integers(0, 30), some(["uid-c", "uid-d", "uid-e"]), some([*DEVICES, "forget", "settle"]), st.booleans()
    ),
    max_size=8,
)
"""After which event, for which claim, what: a device to be in flight (shared or not), or the flight's end."""


def listed(history: History) -> ClusterState:
    """A state that is told what is there in the end, at once."""
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    for resource in RESOURCES.values():
        state.replace(resource, [raw for (kind, _), raw in history.there.items() if kind == resource.kind], 1)
    return state


def picture(snapshot: Snapshot) -> dict[str, object]:
    """All that a snapshot says but its version, and since when claims are allocated."""
    inventory = snapshot.inventory
    return {
        "nodes": snapshot.nodes,
        "classes": snapshot.classes,
        "claims": {key: (each.claim, each.resource_version) for key, each in snapshot.claims.items()},
        "claim keys": snapshot.claim_keys,
        "pods": {key: (each, each.resource_version) for key, each in snapshot.pods.items()},
        "pod keys": snapshot.pod_keys,
        "bound": snapshot.bound,
        "nominated": snapshot.nominated,
        "requested": snapshot.requested,
        "others": snapshot.others,
        "budgets": snapshot.objects(Budget),
        "slices": {name: [d.id for d in each.devices] for name, each in inventory.slices.items()},
        "pools": {name: [s.name for s in pool.slices] for name, pool in inventory.pools.items()},
        "reach": (inventory.local, inventory.roaming),
        "rules": (snapshot.rules, snapshot.taint_rules),
        "extended": snapshot.extended,
        "usage": snapshot.usage,
        "holders": snapshot.holders,
        "problems": snapshot.problems,
    }


@given(histories())
def test_the_state_after_events_is_that_of_a_list(history: History) -> None:
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    for event in history.events:
        state.apply(event)
    assert picture(state.snapshot) == picture(listed(history).snapshot)


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_in_which_watches_tell_is_of_no_matter(history: History, random: Any) -> None:
    """Each kind has a watch of its own: of two kinds any event may come first."""
    waiting = {kind: [e for e in history.events if e.resource.kind == kind] for kind in RESOURCES}
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    while any(waiting.values()):
        events = random.choice([events for events in waiting.values() if events])
        state.apply(events.pop(0))
    assert picture(state.snapshot) == picture(listed(history).snapshot)


@given(histories(), histories(since=100))
def test_a_list_replaces_whatever_was_there(before: History, after: History) -> None:
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    for event in before.events:
        state.apply(event)
    for resource in RESOURCES.values():
        objects = [raw for (kind, _), raw in after.there.items() if kind == resource.kind]
        assert state.replace(resource, objects, 1000)
    assert picture(state.snapshot) == picture(listed(after).snapshot)


@given(histories(), histories(since=100), FLIGHTS, st.randoms(use_true_random=False))
def test_a_list_that_comes_bit_by_bit_is_that_list_whatever_happens_meanwhile(
    before: History, after: History, flights: list[tuple[int, str, str, bool]], random: Any
) -> None:
    """Of other kinds events come, and binds put allocations in flight and forget them."""
    slow, quick = (ClusterState(counts_cpu=True, cpu_of_all_pods=True) for _ in range(2))
    states = (slow, quick)
    for event in before.events:
        for state in states:
            state.apply(event)
    resource = random.choice(list(RESOURCES.values()))
    objects = [raw for (kind, _), raw in after.there.items() if kind == resource.kind]
    relist = slow.relist(resource)
    others: list[Any] = [*flights, *(e for e in after.events if e.resource != resource)]
    queues: list[list[Any]] = [list(objects), others]
    while any(queues):
        step = random.choice([queue for queue in queues if queue]).pop(0)
        if isinstance(step, dict):
            relist.add(key_of(step), step)
            continue
        for state in states:
            if isinstance(step, Event):
                state.apply(step)
            else:
                fly(state, step[1], step[2], shared=step[3])
    assert slow.take(relist, 1000)
    assert quick.replace(resource, objects, 1000)
    assert picture(slow.snapshot) == picture(quick.snapshot)
    assert set(slow.snapshot.assumed) == set(quick.snapshot.assumed)


@given(histories(), histories(since=100))
def test_pods_without_devices_count_the_same_however_little_is_read_of_them(before: History, after: History) -> None:
    decoded, skimmed = (ClusterState(counts_cpu=True, cpu_of_all_pods=True) for _ in range(2))
    first = skimmed.snapshot
    for event in before.events:
        decoded.apply(event)
        plain = plain_pod_of_event(orjson.dumps({"type": event.type.value, "object": event.object}))
        if event.resource == PODS and plain is not None:
            skimmed.count_pod(plain)
        else:
            skimmed.apply(event)
    assert picture(skimmed.snapshot) == picture(decoded.snapshot)
    pods = [raw for (kind, _), raw in after.there.items() if kind == PODS.kind]
    relist, events = skimmed.relist(PODS), skimmed.snapshot
    for raw in pods:
        plain = plain_pod(orjson.dumps(raw))
        if plain is None:
            relist.add(key_of(raw), raw)
        else:
            relist.count_pod(plain)
    assert skimmed.take(relist, 1000)
    assert decoded.replace(PODS, pods, 1000)
    assert picture(skimmed.snapshot) == picture(decoded.snapshot)
    for old in (first, events):
        assert differences(old, skimmed.snapshot) <= set(skimmed.since(old.version).pairs())


@given(histories())
def test_nothing_is_kept_of_pods_without_devices_unless_they_count(history: History) -> None:
    state = ClusterState()
    for event in history.events:
        plain = plain_pod_of_event(orjson.dumps({"type": event.type.value, "object": event.object}))
        if event.resource == PODS and plain is not None:
            before = state.snapshot
            state.count_pod(plain)
            assert plain.key in before.pods or state.snapshot is before
        else:
            state.apply(event)
        assert state.snapshot.others is None


def fly(state: ClusterState, uid: str, what: str, *, shared: bool) -> None:
    if what == "forget":
        state.forget(uid)
    elif what == "settle":
        state.settle(uid, state.seen(CLAIMS) + 2)
    else:
        pool, device = what.split("/")
        result = DeviceResult("gpu", DeviceId(DRIVER, pool, device))
        if shared:
            result = replace(result, share_id=f"share-{uid}", consumed_capacity={"memory": SHARED})
        state.assume(uid, AllocationResult((result,)), "uid-p")


def play(history: History, flights: list[tuple[int, str, str, bool]]) -> list[Snapshot]:
    """The snapshots after each step."""
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    snapshots = [state.snapshot]
    for index, event in enumerate(history.events):
        state.apply(event)
        for after, uid, what, shared in flights:
            if after == index:
                fly(state, uid, what, shared=shared)
        snapshots.append(state.snapshot)
    return snapshots


@given(histories(), FLIGHTS)
def test_usage_and_holders_are_what_claims_and_flights_hold(
    history: History, flights: list[tuple[int, str, str, bool]]
) -> None:
    for snapshot in play(history, flights):
        usage, holders = Usage(), set()
        for uid in {*snapshot.claim_keys, *snapshot.assumed}:
            for allocation in snapshot.held_by(uid):
                usage = usage.with_allocation(allocation)
                holders |= {(result.device.pool_id, uid) for result in allocation.results}
        assert snapshot.usage == usage
        assert {(pool, uid) for pool, uids in snapshot.holders.items() for uid in uids} == holders


@given(histories(), FLIGHTS)
def test_snapshots_do_not_change(history: History, flights: list[tuple[int, str, str, bool]]) -> None:
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    taken = []
    for event in history.events:
        taken.append((state.snapshot, picture(state.snapshot)))
        state.apply(event)
    for _, uid, what, shared in flights:
        fly(state, uid, what, shared=shared)
    assert all(picture(snapshot) == then for snapshot, then in taken)


@given(histories(), FLIGHTS)
def test_the_log_names_all_that_is_different(history: History, flights: list[tuple[int, str, str, bool]]) -> None:
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    since: list[Snapshot] = []
    for index, event in enumerate(history.events):
        since.append(state.snapshot)
        state.apply(event)
        for after, uid, what, shared in flights:
            if after == index:
                fly(state, uid, what, shared=shared)
    for old in since:
        assert differences(old, state.snapshot) <= set(state.since(old.version).pairs())


def differences(old: Snapshot, new: Snapshot) -> set[tuple[Topic, object]]:
    """What decisions depend on, and is not the same."""
    tables: list[tuple[Topic, Any, Any]] = [
        (Topic.NODE, old.nodes, new.nodes),
        (Topic.CPU, old.requested, new.requested),
        (Topic.CLASS, old.classes, new.classes),
        (Topic.TAINT_RULE, old.rules, new.rules),
        (Topic.BUDGET, old.objects(Budget), new.objects(Budget)),
        (Topic.POD, old.pods, new.pods),
        (Topic.CLAIM, old.claims, new.claims),
        (Topic.POOL, old.inventory.pools, new.inventory.pools),
        (Topic.POOL, old.usage.pools, new.usage.pools),
    ]
    return {
        (topic, key)
        for topic, before, after in tables
        for key in {*before, *after}
        if before.get(key) != after.get(key)
    }


# What is kept of claims, templates and pods: what decisions need, however much their authors write into metadata.


LONG = "x" * 255_000
OTHERS: dict[str, dict[str, Any]] = {
    "an annotation": {"annotations": {"example.com/notes": LONG}},
    "many annotations": {"annotations": {f"example.com/{number}": "y" for number in range(10_000)}},
    "labels": {"labels": {f"example.com/{number}": "z" * 63 for number in range(3_000)}},
    "finalizers": {"finalizers": [f"example.com/{number}" for number in range(10_000)]},
    "owners": {"ownerReferences": [{"kind": "ConfigMap", "name": f"o-{n}", "uid": f"{n}"} for n in range(3_000)]},
    "managed fields": {"managedFields": [{"manager": LONG}]},
}


@pytest.mark.parametrize("metadata", OTHERS.values(), ids=OTHERS)
def test_what_nothing_is_decided_from_is_not_kept(metadata: dict[str, Any]) -> None:
    plain, kept = parse_claim_object(claim("gpu")), parse_claim_object(claim("gpu", metadata=metadata))
    assert len(kept.raw) < 2_000
    assert kept.claim == plain.claim


def test_short_labels_and_annotations_of_others_are_kept_so_that_most_claims_are_whole() -> None:
    kept = parse_claim_object(claim("gpu", metadata={"labels": {"a": "b"}, "annotations": {"example.com/c": "d"}}))
    assert kept.is_whole
    assert b'"example.com/c":"d"' in kept.raw


def test_what_decisions_need_is_kept_of_a_claim_with_long_metadata() -> None:
    owners = [{"kind": "ConfigMap", "name": f"o-{n}", "uid": f"{n}"} for n in range(100)]
    owners[50] |= {"kind": "Pod", "uid": "uid-p", "controller": True}  # type: ignore[dict-item]
    metadata = {
        "annotations": {"example.com/notes": LONG, SPECIAL: "true", **dict.fromkeys(READ - {SPECIAL}, "r")},
        "finalizers": [*(f"example.com/{n}" for n in range(100)), FINALIZER, MARK_FINALIZER],
        "ownerReferences": owners,
    }
    kept = parse_claim_object(claim("gpu", metadata=metadata))
    assert not kept.is_whole
    assert kept.claim.annotations.keys() == READ
    assert kept.claim.finalizers == (FINALIZER, MARK_FINALIZER)
    assert kept.special_of == "uid-p"


def test_an_annotation_that_is_too_long_is_a_mistake_that_names_it() -> None:
    long = {ALLOCATION_MODE: LONG, OPTIONAL_REQUESTS: f"gpu,{LONG}", MARK: LONG}
    kept = parse_claim_object(claim("gpu", metadata={"annotations": long}))
    assert len(kept.raw) < 40_000
    assert ALLOCATION_MODE in mode_problem(kept.claim.annotations)
    assert OPTIONAL_REQUESTS in optional_problem(kept.claim.spec)
    assert Mark.of(kept.claim) == Mark("", 0, ""), "as a mark that somebody has changed"


def _many(number: int, make: Any) -> list[RawObject]:
    return [make(f"c-{index}", {"example.com/notes": f"{index} {LONG}"}) for index in range(number)]


def _claim(name: str, annotations: dict[str, str]) -> RawObject:
    return claim(name, metadata={"annotations": annotations})


def _template(name: str, annotations: dict[str, str]) -> RawObject:
    found = claim_template(name)
    found["spec"]["metadata"] = {"annotations": annotations, "labels": {"example.com/notes": LONG}}
    return found


@pytest.mark.parametrize(("resource", "make"), [(CLAIMS, _claim), (TEMPLATES, _template)], ids=["claims", "templates"])
def test_annotations_of_255_kilobytes_take_no_memory(resource: Resource, make: Any) -> None:
    state, objects = ClusterState(), _many(100, make)
    tracemalloc.start()
    try:
        assert state.replace(resource, objects, 1)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000, "they are 25 MB"
    finally:
        tracemalloc.stop()
    assert state.count(resource) == 100


def test_of_a_template_the_spec_of_its_claims_is_kept() -> None:
    state, plain = ClusterState(), ClusterState()
    state.replace(TEMPLATES, [_template("c", {"example.com/notes": LONG})], 1)
    plain.replace(TEMPLATES, [claim_template("c")], 1)
    [one], [other] = (each.snapshot.objects(ClaimTemplate).values() for each in (state, plain))
    assert one == other


def test_of_very_many_labels_of_a_pod_some_are_kept() -> None:
    labels = {f"example.com/{number}": "z" * 63 for number in range(3_000)}
    kept = parse_pod(pod("p", "gpu") | {"metadata": {**pod("p", "gpu")["metadata"], "labels": labels}}).labels
    assert 32 < len(kept) < 100
    assert kept.items() <= labels.items()


# --- writes --------------------------------------------------------------------------------------------------

NOTES: dict[str, Any] = {"annotations": {"example.com/notes": LONG}, "labels": {"a": "b"}}


def test_what_is_not_kept_of_a_claim_survives_a_bind_and_its_undo() -> None:
    scene = Scene(claim("gpu", metadata=NOTES))
    scene.reserve()
    assert scene.transport.calls == [READ_CALL, PROTECT, ALLOCATE]
    assert (scene.device, scene.users) == ("gpu-0", ["p"])
    scene.release()
    assert scene.device is None
    assert scene.claim["metadata"]["annotations"] == NOTES["annotations"]
    assert scene.claim["metadata"]["labels"] == NOTES["labels"]


def test_a_claim_that_is_not_whole_and_has_changed_is_written_as_it_is_now() -> None:
    scene = Scene(claim("gpu", metadata=NOTES))
    scene.transport.script(PROTECT, scene.by_others({"metadata": {"labels": {"a": "c"}}}))
    scene.reserve()
    assert (scene.device, scene.users) == ("gpu-0", ["p"])
    assert scene.claim["metadata"]["labels"] == {"a": "c"}
    assert scene.claim["metadata"]["annotations"] == NOTES["annotations"]
