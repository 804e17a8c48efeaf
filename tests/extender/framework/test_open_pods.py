"""A filter call waits for what became of the pods before, where volumes or last devices are at stake; not for long."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from allocator.policies import POLICIES, Merit
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.framework.filter import FilterResult
from extender.framework.open_pods import MOST_SECONDS, OPEN_SECONDS, TAKEN_SOON, WAITING_SHARE, OpenPods
from extender.framework.ranking import Merits
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import Event, EventType
from extender.kube.resources import PODS
from extender.tools.fairness import QUICK_SECONDS, SAVED_SECONDS
from extender.tools.offload import at_once
from tests.extender.plugins.negotiation.scenes import negotiated_class
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    claim,
    claim_template,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    state_of,
)
from tests.kit.virtualtime import elapse, in_virtual_time, run

VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
SOON = 0.05


def waits_end() -> float:
    return asyncio.get_running_loop().time() + MOST_SECONDS


def open_pods(
    state: ClusterState, decided: Collection[str] = (), bound: Mapping[str, str] = {}, policy: str = "first-fit"
) -> OpenPods:
    """Open pods.

    Args:
        state: the cluster.
        decided: uids of the pods whose binds have decided.
        bound: uid to node of the pods that are being bound.
        policy: of all pods.
    """
    return OpenPods(state, decided, lambda uid: bound.get(uid, ""), lambda _: POLICIES[policy])


async def wait_for_devices(turns: OpenPods, pod: Pod, merits: Merits, until: float) -> None:
    scarce = turns.scarce(pod, merits)
    if scarce is not None:
        await turns.wait_for_devices(scarce, until)


def with_volumes(obj: Object) -> Object:
    return {**obj, "spec": {**obj["spec"], "volumes": [VOLUME]}}


PLAIN, STATEFUL = pod("before", "c"), with_volumes(pod("before", "c"))


def later(obj: Object, **metadata: Any) -> Event:
    changed = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "2", **metadata}}
    return Event(EventType.MODIFIED, PODS, changed)


def waited(before: Object, now: Object, event: Event | None = None) -> float:
    """Seconds that the filter call of a pod waits after the one of another.

    Args:
        event: what happens to the other soon; None: it is being bound then.
    """

    async def scene() -> float:
        state, binding = state_of([before]), set[str]()
        turns = open_pods(state, binding)
        turns.add(parsed(before), Merits())
        loop = asyncio.get_running_loop()
        if event is None:
            loop.call_later(SOON, binding.add, "uid-before")
        else:
            loop.call_later(SOON, state.apply, event)
        await turns.wait_for_volumes(parsed(now))
        return loop.time()

    return run(scene())


def test_where_no_volumes_are_at_stake_nobody_waits() -> None:
    assert waited(PLAIN, pod("now", "d")) == 0


@pytest.mark.parametrize(
    ("before", "now"),
    [(STATEFUL, pod("now", "d")), (PLAIN, with_volumes(pod("now", "d")))],
    ids=["the one before has volumes", "this one has volumes"],
)
@pytest.mark.parametrize(
    "event",
    [
        later(pod("before", "c", nominated="a")),
        later(pod("before", "c", on="a")),
        later(pod("before", "c")),
        None,
    ],
    ids=["nominated", "bound", "changed, as by a failure", "being bound"],
)
def test_it_waits_until_something_is_heard(before: Object, now: Object, event: Event | None) -> None:
    assert waited(before, now, event) == pytest.approx(SOON, abs=0.01)


@in_virtual_time
async def test_it_does_not_wait_for_ever_and_for_the_same_pod_only_once() -> None:
    turns = open_pods(state_of([STATEFUL]))
    turns.add(parsed(STATEFUL), Merits())
    times = []
    for name in ("now", "next"):
        await turns.wait_for_volumes(parsed(pod(name)))
        times.append(asyncio.get_running_loop().time())
    assert times == pytest.approx([MOST_SECONDS, MOST_SECONDS])


def test_nobody_waits_for_himself() -> None:
    assert waited(STATEFUL, STATEFUL) == 0


@in_virtual_time
async def test_what_was_heard_before_filter_was_asked_does_not_count() -> None:
    newer = {**STATEFUL, "metadata": {**STATEFUL["metadata"], "resourceVersion": "2"}}
    state = state_of([STATEFUL])
    turns = open_pods(state)
    turns.add(parsed(newer), Merits())
    state.apply(later(STATEFUL))
    await turns.wait_for_volumes(parsed(pod("now")))
    assert asyncio.get_running_loop().time() == pytest.approx(MOST_SECONDS)


# --- last devices -------------------------------------------------------------------------------------------


def nodes(**devices: int) -> list[Object]:
    """Nodes with so many devices each."""
    return [each for name, count in devices.items() for each in (node(name), local_slice(name, count))]


def pods(*names: str) -> list[Object]:
    """Pods with a claim each."""
    return [each for name in names for each in (pod(name, name), claim(name))]


def answered(*world: Object, bound: bool = True) -> tuple[list[str], float]:
    """The nodes for pod q, asked about right after pod p, and the seconds that the answer takes.

    Args:
        world: the cluster.
        bound: pod p is bound to node a soon.
    """

    async def scene() -> tuple[list[str], float]:
        cluster = Cluster.of(GPU, *world)
        service, loop = cluster.service(off_loop=at_once), asyncio.get_running_loop()
        names = sorted(cluster.state.snapshot.nodes)

        async def filtered(name: str) -> list[str]:
            asked = cluster.state.snapshot.pod(f"uid-{name}") or parsed(pod(name))
            return list((await service.filter(FilterArgs(asked, names))).passed)

        async def bind() -> None:
            await elapse(SOON)
            await service.bind(BindArgs("p", "ns", "uid-p", "a"))

        await filtered("p")
        binding = asyncio.create_task(bind()) if bound else None
        found = await filtered("q"), loop.time()
        if binding is not None:
            await binding
        return found

    return run(scene())


def test_an_answer_that_the_pod_before_would_make_wrong_waits_for_its_bind() -> None:
    passed, seconds = answered(*nodes(a=1, b=1), *pods("p", "q"))
    assert passed == ["b"]
    assert seconds == pytest.approx(SOON, abs=0.01)


@in_virtual_time
async def test_a_pod_whose_claim_is_not_made_yet_is_decided_from_its_template_after_the_wait_as_well() -> None:
    unmade = pod("q")
    unmade["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    cluster = Cluster.of(GPU, *nodes(a=1, b=1), *pods("p"), claim_template(), unmade)
    service, loop = cluster.service(off_loop=at_once), asyncio.get_running_loop()

    async def bind() -> None:
        await elapse(SOON / 2)
        cluster.load(claim("other"))
        await elapse(SOON / 2)
        await service.bind(BindArgs("p", "ns", "uid-p", "a"))

    asked = [cluster.state.snapshot.pod(f"uid-{name}") or parsed(pod(name)) for name in "pq"]
    await service.filter(FilterArgs(asked[0], ["a", "b"]))
    async with asyncio.TaskGroup() as binding:
        binding.create_task(bind())
        result, seconds = await service.filter(FilterArgs(asked[1], ["a", "b"])), loop.time()
    assert list(result.passed) == ["b"], result.unresolvable.in_words()
    assert seconds == pytest.approx(SOON, abs=0.01)


def like_a(others: int) -> list[Object]:
    """Node a, and so many other nodes, with one device each."""
    return nodes(a=1, **{f"b-{number}": 1 for number in range(others)})


def test_some_nodes_that_are_as_good_do_not_make_the_answer_right() -> None:
    passed, seconds = answered(*like_a(20), *pods("p", "q"))
    assert "a" not in passed
    assert seconds == pytest.approx(SOON, abs=0.01)


def test_what_the_first_of_two_pods_has_taken_may_leave_the_last_device_to_the_second() -> None:
    async def scene() -> tuple[list[str], float]:
        cluster = Cluster.of(GPU, *nodes(a=2, b=2), *pods("p", "o", "q"))
        service, loop = cluster.service(off_loop=at_once), asyncio.get_running_loop()

        async def filtered(name: str) -> list[str]:
            asked = cluster.state.snapshot.pod(f"uid-{name}") or parsed(pod(name))
            return list((await service.filter(FilterArgs(asked, ["a", "b"]))).passed)

        async def bind(name: str, seconds: float) -> None:
            await elapse(seconds)
            await service.bind(BindArgs(name, "ns", f"uid-{name}", "a"))

        await filtered("p")
        await filtered("o")
        async with asyncio.TaskGroup() as binding:
            binding.create_task(bind("p", SOON))
            binding.create_task(bind("o", 1.5 * SOON))
            return await filtered("q"), loop.time()

    passed, seconds = run(scene())
    assert passed == ["b"], "once the bind of p is called for a, one pod at most may take a device of b"
    assert seconds == pytest.approx(SOON, abs=0.01)


TAKEN = claim("r", allocated=["a/gpu-0"], at="a", users=["p", "q"])
NOTHING_AT_STAKE = {
    "a device is left for the next one": [*nodes(a=2, b=2), *pods("p", "q")],
    "many nodes are as good": [*like_a(64), *pods("p", "q")],
    "the one before has its claim already": [*nodes(a=2, b=1), pod("p", "r"), TAKEN, *pods("q")],
    "this one has its claim already": [*nodes(a=2, b=1), *pods("p"), pod("q", "r"), TAKEN],
    "the one before needs no devices": [*nodes(a=1, b=1), pod("p"), *pods("q")],
}


@pytest.mark.parametrize("world", NOTHING_AT_STAKE.values(), ids=NOTHING_AT_STAKE.keys())
def test_where_no_last_device_is_at_stake_nobody_waits(world: list[Object]) -> None:
    passed, seconds = answered(*world)
    assert "a" in passed
    assert seconds == 0


def test_for_a_pod_that_is_never_bound_the_next_one_waits_the_longest_time() -> None:
    passed, seconds = answered(*nodes(a=1, b=1), *pods("p", "q"), bound=False)
    assert passed == ["a", "b"]
    assert seconds == pytest.approx(MOST_SECONDS)


@in_virtual_time
async def test_where_a_pod_of_two_may_be_served_nobody_waits_and_the_node_with_one_device_is_left_out() -> None:
    cluster = Cluster.of(GPU, *nodes(a=1, b=2), *pods("p", "q"))
    service, found = cluster.service(off_loop=at_once), list[list[str]]()
    for name in "pq":
        asked = cluster.state.snapshot.pod(f"uid-{name}") or parsed(pod(name))
        found.append(list((await service.filter(FilterArgs(asked, ["a", "b"]))).passed))
    assert found == [["a", "b"], ["b"]]
    assert asyncio.get_running_loop().time() == 0


@in_virtual_time
async def test_after_a_wait_in_vain_the_node_that_the_pod_may_take_is_left_out_and_nobody_waits_again() -> None:
    loop = asyncio.get_running_loop()
    merits = Merits("ab", [Merit(free=0.0), Merit(free=0.75)], [0, 1])
    turns = open_pods(state_of([GPU, *pods("p", "q", "r")]), policy="best-fit")
    turns.add(parsed(pod("p", "p")), merits)
    for name in "qr":
        scarce = turns.scarce(parsed(pod(name, name)), merits)
        assert scarce is not None
        await turns.wait_for_devices(scarce, waits_end())
        assert list(turns.beside(scarce, FilterResult("ab", merits=merits)).passed) == ["b"]
    assert loop.time() == pytest.approx(MOST_SECONDS, abs=0.003)


@pytest.mark.parametrize("is_gone", [True, False], ids=["is deleted", "is left alone"])
@in_virtual_time
async def test_a_pod_that_nobody_binds_any_more_leaves_its_node_to_others(is_gone: bool) -> None:
    merits = Merits("ab", [Merit(free=0.0), Merit(free=0.75)], [0, 1])
    state = state_of([GPU, *pods("p", "q")])
    turns = open_pods(state, policy="best-fit")
    turns.add(parsed(pod("p", "p")), merits)
    assert turns.scarce(parsed(pod("q", "q")), merits) is not None
    if is_gone:
        state.apply(Event(EventType.DELETED, PODS, later(pod("p", "p")).object))
    else:
        await elapse(OPEN_SECONDS)
    assert turns.scarce(parsed(pod("q", "q")), merits) is None


@in_virtual_time
async def test_of_nodes_that_are_as_good_one_where_a_pod_is_being_bound_is_left_out_without_a_wait() -> None:
    merits = Merits("ab", [Merit(free=0.0)], [0, 0])
    turns = open_pods(state_of([GPU, *pods("p", "q")]), bound={"uid-p": "a"})
    turns.add(parsed(pod("p", "p")), merits)
    scarce = turns.scarce(parsed(pod("q", "q")), merits)
    assert scarce is not None
    assert not await turns.wait_for_devices(scarce, waits_end())
    assert asyncio.get_running_loop().time() == 0
    result = turns.beside(scarce, FilterResult("ab", merits=merits))
    assert (list(result.passed), result.unresolvable.in_words()) == (["b"], {"a": TAKEN_SOON.in_words()})
    assert list(result.merits) == ["b"]


@in_virtual_time
async def test_if_devices_are_not_those_of_one_node_the_node_of_a_bind_says_nothing() -> None:
    merits, network = Merits("ab", [Merit(free=0.0)], [0, 0]), network_slice("fabric")
    turns = open_pods(state_of([GPU, network, *pods("p", "q")]), bound={"uid-p": "a"})
    turns.add(parsed(pod("p", "p")), merits)
    await wait_for_devices(turns, parsed(pod("q", "q")), merits, waits_end())
    assert asyncio.get_running_loop().time() == pytest.approx(MOST_SECONDS)


@in_virtual_time
async def test_a_wait_in_vain_forgets_no_pod_that_was_not_waited_for() -> None:
    turns, loop = open_pods(state_of([GPU, *pods("a", "b", "now")])), asyncio.get_running_loop()
    for each in "ab":
        turns.add(parsed(pod(each, each)), Merits("n", [Merit(free=0.5)], [0]))
    now = parsed(pod("now", "now"))
    await wait_for_devices(turns, now, Merits("n", [Merit(free=0.5)], [0]), waits_end())
    assert loop.time() == pytest.approx(MOST_SECONDS, abs=0.003)
    await wait_for_devices(turns, now, Merits("n", [Merit(free=0.0)], [0]), waits_end())
    assert loop.time() == pytest.approx(2 * MOST_SECONDS, abs=0.003), "now for b, which one pod might leave a device"


@pytest.mark.parametrize(("device_class", "expected"), [("gpu", MOST_SECONDS), ("license", 0.0)])
@in_virtual_time
async def test_nobody_waits_for_devices_of_a_pod_whose_controller_may_take_seconds(
    device_class: str, expected: float
) -> None:
    before, now = pod("p", "p"), pod("q", "q")
    asked = claim("p", request("r", device_class=device_class))
    turns = open_pods(state_of([GPU, negotiated_class(), before, now, asked, claim("q")]))
    turns.add(parsed(before), Merits())
    await wait_for_devices(turns, parsed(now), Merits("a", [Merit(free=0.0)], [0]), waits_end())
    assert asyncio.get_running_loop().time() == pytest.approx(expected, abs=0.003)


@pytest.mark.parametrize(
    ("before", "free", "expected"),
    [("ab", 0.5, SOON), ("a", 0.5, 0.0), ("ab", 0.75, 0.0)],
    ids=["two pods may take what is left", "one pod leaves some", "much is left"],
)
@in_virtual_time
async def test_where_few_devices_are_left_one_pod_alone_may_be_open(before: str, free: float, expected: float) -> None:
    binding, loop = set[str](), asyncio.get_running_loop()
    turns = open_pods(state_of([GPU, *pods(*before, "now")]), binding)
    for each in before:
        turns.add(parsed(pod(each, each)), Merits())
    loop.call_later(SOON, binding.add, "uid-a")
    await wait_for_devices(turns, parsed(pod("now", "now")), Merits("n", [Merit(free=free)], [0]), waits_end())
    assert loop.time() == pytest.approx(expected, abs=0.01)


@in_virtual_time
async def test_all_waits_of_a_call_together_take_the_longest_time() -> None:
    turns, loop = open_pods(state_of([GPU, *pods("a", "b", "now")])), asyncio.get_running_loop()
    until, merits = waits_end(), Merits("n", [Merit(free=0.0)], [0])
    for each in "ab":
        turns.add(parsed(pod(each, each)), Merits())
        await wait_for_devices(turns, parsed(pod("now", "now")), merits, until)
    assert loop.time() == pytest.approx(MOST_SECONDS, abs=0.003)


# --- shares by namespace ------------------------------------------------------------------------------------


def waits_for(namespaces: Sequence[str], pause: float = 0.0) -> list[float]:
    """Seconds that one call after the other waits, each after a pod of one of these namespaces that is never bound.

    Args:
        namespaces: of the pods.
        pause: seconds before the next pod.
    """

    async def scene() -> list[float]:
        loop, found = asyncio.get_running_loop(), []
        turns = open_pods(state_of([]))
        for each in namespaces:
            await elapse(pause)
            turns.add(parsed({**STATEFUL, "metadata": {**STATEFUL["metadata"], "namespace": each}}), Merits())
            began = loop.time()
            await turns.wait_for_volumes(parsed(pod("now")))
            found.append(loop.time() - began)
        return found

    return run(scene())


def test_pods_that_are_never_bound_delay_others_for_a_share_of_the_time() -> None:
    waits = waits_for(["x"] * 200)
    assert waits[0] == pytest.approx(MOST_SECONDS, abs=0.003)
    beyond = sum(each - QUICK_SECONDS for each in waits)
    assert beyond == pytest.approx(WAITING_SHARE * (SAVED_SECONDS + sum(waits)), abs=0.1)
    assert waits[-1] < MOST_SECONDS / 4


def test_a_namespace_whose_pods_are_never_bound_leaves_others_their_part() -> None:
    *_, x, y = waits_for([*["y", *["x"] * 200] * 4, "y"])
    assert x < MOST_SECONDS / 4
    assert y > MOST_SECONDS / 2


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (VOLUME, True),
        ({"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}, True),
        ({"name": "data", "emptyDir": {}}, False),
    ],
    ids=["claimed", "ephemeral", "of the node"],
)
def test_which_volumes_count(volume: Object, expected: bool) -> None:
    raw = pod("p")
    raw["spec"]["volumes"] = [volume]
    assert parsed(raw).has_volumes == expected
