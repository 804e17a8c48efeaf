"""Laws of timelines, over random histories: what changes concern, and views that are moved by them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import DeviceId, Features, PoolId
from allocator.usage import NOTHING_USED
from extender.answers.observe.device_history import DeviceHistory
from extender.answers.observe.overview import ClaimCounts, PendingPods
from extender.answers.usage.usage import Usage
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.timeline import ANYTHING, ChangeLog, Reach, View
from extender.framework.decision_log import DecisionLog
from extender.kube.api import ObjectKey
from tests.extender.cluster.test_state_laws import DEVICES, FLIGHTS, NODES, History, fly, histories
from tests.kit.clusters import DRIVER, NOW, local_slice, network_slice, snapshot_of


class Pods(View[dict[str, Pod]]):
    """The pods that have a name, by uid."""

    topics = frozenset({Topic.POD})
    bound = "the pods"

    def build(self, snapshot: Snapshot) -> dict[str, Pod]:
        return {pod.uid: pod for pod in snapshot.pods.values()}

    def apply(self, value: dict[str, Pod], reach: Reach, snapshot: Snapshot) -> dict[str, Pod]:
        changed = reach.keys(Topic.POD) or ()
        left = {uid: pod for uid, pod in value.items() if pod.key not in changed}
        return left | {snapshot.pods[key].uid: snapshot.pods[key] for key in changed if key in snapshot.pods}


Reading = Callable[[Snapshot], object]


def pods(state: ClusterState) -> Reading:
    return Pods(state).at


def claim_counts(state: ClusterState) -> Reading:
    return ClaimCounts(state).count


def pending_pods(state: ClusterState) -> Reading:
    log = DecisionLog(1, now=lambda: NOW, clock=lambda: 0.0, new_id=str, has_pod=lambda _: True)
    return PendingPods(state, log, ()).count


def holders(state: ClusterState) -> Reading:
    history = DeviceHistory(state, lambda: NOW)

    def read(snapshot: Snapshot) -> object:
        history.look(snapshot)
        return {
            name: {
                hold.claim for hold in history.of(DeviceId(DRIVER, *name.split("/")), snapshot) if hold.until is None
            }
            for name in DEVICES
        }

    return read


def usage(state: ClusterState) -> Reading:
    followed = Usage(state, lambda: NOW)

    def read(snapshot: Snapshot) -> object:
        followed.look(snapshot)
        return followed.levels()

    return read


def moments(state: ClusterState, history: History, flights: list[tuple[int, str, str, bool]]) -> Iterator[Snapshot]:
    """The snapshots after each event of a history, as it happens."""
    for index, event in enumerate(history.events):
        state.apply(event)
        for after, uid, what, shared in flights:
            if after == index:
                fly(state, uid, what, shared=shared)
        yield state.snapshot


@pytest.mark.parametrize("view", [pods, claim_counts, pending_pods, holders, usage])
@given(histories(), FLIGHTS, st.lists(st.booleans(), max_size=30), st.sampled_from([3, 100]))
def test_a_view_that_is_moved_by_changes_is_one_that_is_built_anew(
    view: Callable[[ClusterState], Reading],
    history: History,
    flights: list[tuple[int, str, str, bool]],
    is_read: list[bool],
    log_size: int,
) -> None:
    state = ClusterState(log_size=log_size, counts_cpu=True, cpu_of_all_pods=True)
    moved = view(state)
    for number, snapshot in enumerate(moments(state, history, flights)):
        if number >= len(is_read) or is_read[number]:
            assert moved(snapshot) == view(state)(snapshot)


def sight(node: str, snapshot: Snapshot) -> object:
    """What a node sees, and what is in use of the pools that it has for itself."""
    known = snapshot.nodes.get(node)
    if known is None:
        return None
    pools = snapshot.inventory.for_node(known.node, Features())
    own = [each.id for each in pools if each.id not in snapshot.inventory.roaming]
    return known.node, pools, {pool: snapshot.usage.pools.get(pool, NOTHING_USED) for pool in own}


@given(histories(), FLIGHTS)
def test_what_a_change_does_not_concern_is_as_it_was(
    history: History, flights: list[tuple[int, str, str, bool]]
) -> None:
    state = ClusterState()
    before = first = state.snapshot
    for after in moments(state, history, flights):
        for old in (before, first):
            reach = state.since(old.version)
            nodes, pools = reach.nodes(old, after), reach.pools(after)
            others = () if nodes is None else NODES
            assert all(name in (nodes or ()) or sight(name, old) == sight(name, after) for name in others)
            known = set() if pools is None else {*old.inventory.pools, *after.inventory.pools}
            tables = [(each.inventory.pools, each.usage.pools) for each in (old, after)]
            kept = [
                [(pool, *(table.get(pool) for table in both)) for pool in known - (pools or set())] for both in tables
            ]
            assert kept[0] == kept[1]
        before = after


POOL_OF_N, POOL_OF_M = PoolId(DRIVER, "n"), PoolId(DRIVER, "m")


@pytest.mark.parametrize(
    ("changed", "pools"),
    [
        ({Topic.NODE: {"n"}}, {POOL_OF_N, PoolId(DRIVER, "net")}),
        ({Topic.POOL: {POOL_OF_M}}, {POOL_OF_M}),
        ({Topic.CLAIM: {ObjectKey("ns", "c")}}, set()),
        ({Topic.TAINT_RULE: {"t"}}, None),
        (None, None),
    ],
    ids=["node", "pool", "claim", "rule", "unknown"],
)
def test_the_pools_that_a_change_concerns(changed: dict[Topic, Any] | None, pools: object) -> None:
    assert Reach(changed).pools(snapshot_of(*map(local_slice, NODES), network_slice("net"))) == pools


def test_two_reaches_together_concern_what_either_does() -> None:
    one, other = Reach.of([(Topic.NODE, "a"), (Topic.CLASS, "c")]), Reach.of([(Topic.NODE, "b"), (Topic.NODE, "a")])
    assert (one | other).changed == {Topic.NODE: {"a", "b"}, Topic.CLASS: {"c"}}
    assert one | ANYTHING == ANYTHING | one == ANYTHING


def test_readers_of_one_moment_share_what_has_changed_until_something_more_does() -> None:
    log = ChangeLog(10)
    log.add(1, [(Topic.NODE, "a")])
    first = log.since(0)
    assert log.since(0) is first
    log.add(2, [(Topic.NODE, "b")])
    both, later = log.since(0), log.since(1)
    assert both.keys(Topic.NODE) == {"a", "b"}
    assert later.keys(Topic.NODE) == {"b"}
    assert (log.since(0), log.since(1)) == (both, later)
    assert log.since(0) is both, "readers who have read up to another version take nothing from it"


def test_what_is_known_of_changes_is_no_more_than_the_changes() -> None:
    log = ChangeLog(10)
    for version in range(1, 20):
        log.add(version, [(Topic.NODE, version)])
    first = log.since(0)
    for version in range(1, 20):
        log.since(version)
    assert log.since(0) is not first


def test_a_view_gets_the_changes_of_its_topics_alone() -> None:
    log, seen = ChangeLog(10), list[Reach]()

    class Nodes(Pods):
        topics = frozenset({Topic.NODE})

        def apply(self, value: dict[str, Pod], reach: Reach, snapshot: Snapshot) -> dict[str, Pod]:
            seen.append(reach)
            return super().apply(value, reach, snapshot)

    view = Nodes(log)
    view.at(EMPTY)
    log.add(1, [(Topic.NODE, "a"), (Topic.POD, ObjectKey("ns", "p"))])
    view.at(EMPTY._replace(version=1))
    assert seen == [Reach({Topic.NODE: {"a"}})]
