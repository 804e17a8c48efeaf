"""Faults of negotiation, one for each row of the table in docs/explanation/negotiated-claims.md."""

import asyncio

import pytest

from extender.framework.wire import FilterArgs
from extender.kube.api import ApiError, ObjectKey, timestamp
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.negotiation.protocol import ALLOCATE, DEALLOCATE, UNSUITABLE_NODES
from tests.extender.plugins.negotiation.scenes import NAME, Scene, pods
from tests.kit import virtualtime
from tests.kit.clusters import NOW, pod
from tests.kit.controllers import Fault, Licenses
from tests.kit.servers.memory import Fault as ApiFault
from tests.kit.virtualtime import in_virtual_time

SINCE = f"waiting for controller {NAME} since {timestamp(NOW)}"


async def released(scene: Scene, attempt: int = 2) -> None:
    """Nothing is left of an attempt, once the controller's pause is over and the background tasks had their turn."""
    await scene.tick(1.0)
    assert scene.licenses.held == {}
    assert scene.licenses.left == 1
    assert await scene.allocation() is None
    assert await scene.mark() == f"{NAME} {attempt} released"
    assert not scene.cluster.state.snapshot.assumed


@in_virtual_time
async def test_controller_that_does_not_answer_keeps_its_pod_waiting_and_is_not_asked_for_each_pod() -> None:
    scene = Scene(*pods("p", "q"))
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault("no answer within 2 s")]
    assert await scene.reasons("p") == [f"{SINCE}: no answer within 2 s"]
    assert await scene.reasons("q") == [f"{SINCE}: no answer within 2 s"]
    assert len(scene.licenses.questions) == 1
    await scene.tick(1.0)
    await scene.tick()
    assert await scene.woken("p")
    assert await scene.reasons("p") == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(fault="HTTP 500: KeyError"), "HTTP 500: KeyError"),
        (Fault(answer={"claims": []}), "wrong answer: claims: has no entry for claim ns/p-c, uid uid-p-c"),
    ],
)
@in_virtual_time
async def test_claim_that_its_controller_fails_on_keeps_only_its_own_pod_waiting(fault: Fault, error: str) -> None:
    scene = Scene(*pods("p", "q"))
    scene.licenses.faults[UNSUITABLE_NODES] = [fault]
    assert await scene.reasons("p") == [f"controller {NAME}: {error}"]
    assert await scene.reasons("q") == []
    assert await scene.reasons("p") == [f"controller {NAME}: {error}"]
    assert len(scene.licenses.questions) == 2
    await scene.tick(1.0)
    await scene.tick()
    assert await scene.woken("p")
    assert await scene.reasons("p") == []


@in_virtual_time
async def test_answer_about_nodes_that_were_not_asked_about_is_wrong() -> None:
    scene = Scene(*pods("p"))
    told = {"n": "no", "m": "no", "x": "no", "y": "no"}
    answer = {"claims": [{"uid": "uid-p-c", "unsuitableNodes": told}]}
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault(answer=answer)]
    problem = 'claims[0].unsuitableNodes: has 2 nodes that were not asked about, such as "x"'
    assert await scene.reasons() == [f"controller {NAME}: wrong answer: {problem}"]


@in_virtual_time
async def test_nodes_and_reasons_of_answers_are_in_memory_once() -> None:
    """An answer about 5,000 nodes would take 2 MB, and hundreds of answers are remembered."""
    scene = Scene(*pods("p", "q"), licenses=Licenses(refuses={"n": "no seat", "m": "no seat"}))
    for name in ("p", "q"):
        await scene.filter(name)
    scene.licenses.refuses = {"n": "no seat!".rstrip("!")}  # equal, and not the same object
    scene.seconds += 2.0
    await scene.filter("p")
    snapshot = scene.cluster.state.snapshot
    one, other = (snapshot.answers[f"uid-{name}-c"] for name in ("p", "q"))
    assert one.unsuitable != other.unsuitable
    assert one.asked is other.asked
    assert one.unsuitable["n"] is other.unsuitable["n"]
    names = {node.name: node.name for node in snapshot.nodes.values()}
    assert all(names[name] is name for name in (*one.unsuitable, *other.unsuitable))


@in_virtual_time
async def test_different_answers_are_remembered_up_to_a_limit() -> None:
    names = [f"p{number}" for number in range(300)]
    scene = Scene(*pods(*names))
    for name in names:
        scene.licenses.refuses = {"m": f"no server for {name}"}
        await scene.filter(name)
    assert set(scene.cluster.state.snapshot.answers) == {f"uid-{name}-c" for name in names[-256:]}


@in_virtual_time
async def test_many_different_answers_about_one_namespace_leave_those_about_another() -> None:
    names = [f"p{number}" for number in range(300)]
    theirs = [each | {"metadata": each["metadata"] | {"namespace": "b"}} for each in pods("theirs")]
    scene = Scene(*theirs, *pods(*names))
    await scene.service.filter(FilterArgs(scene.cluster.state.snapshot.pods[ObjectKey("b", "theirs")], ["n", "m"]))
    for name in names:
        scene.licenses.refuses = {"m": f"no server for {name}"}
        await scene.filter(name)
    expected = {"uid-theirs-c", *(f"uid-{name}-c" for name in names[-255:])}
    assert set(scene.cluster.state.snapshot.answers) == expected


@in_virtual_time
async def test_controller_that_answers_with_an_error_is_there_again() -> None:
    scene = Scene(*pods("p", "q"))
    scene.licenses.faults[UNSUITABLE_NODES] = [Fault("no connection"), Fault(fault="HTTP 500")]
    assert await scene.reasons("p") == [f"{SINCE}: no connection"]
    await scene.tick(1.0)
    assert await scene.reasons("p") == [f"controller {NAME}: HTTP 500"]
    assert await scene.reasons("q") == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("HTTP 503"), "HTTP 503"),
        (Fault(fault="HTTP 500"), "HTTP 500"),
        (Fault(answer={"claims": []}), "wrong answer: claims: has no entry for claim ns/p-c, uid uid-p-c"),
    ],
)
@in_virtual_time
async def test_controller_that_does_not_answer_in_bind_releases_the_claim(fault: Fault, error: str) -> None:
    scene = Scene(*pods("p"))
    scene.licenses.faults[ALLOCATE] = [fault]
    assert await scene.bind() == f"node n: controller {NAME}: {error}"
    await released(scene)


@in_virtual_time
async def test_allocation_whose_answer_is_lost_is_released_and_made_again() -> None:
    scene = Scene(*pods("p"))
    scene.licenses.faults[ALLOCATE] = [Fault(reply_lost="the connection was lost")]
    assert await scene.bind() == f"node n: controller {NAME}: the connection was lost"
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}
    await released(scene)
    scene.seconds += 2.0
    assert await scene.bind() == ""
    assert scene.licenses.held == {"uid-p-c": ("n", 3)}


@in_virtual_time
async def test_allocation_for_other_nodes_is_released() -> None:
    other = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]}
    scene = Scene(*pods("p"))
    wrong = {"claims": [{"uid": "uid-p-c", "allocation": {"nodeSelector": other}}]}
    scene.licenses.faults[ALLOCATE] = [Fault(answer=wrong)]
    error = f"node n: controller {NAME} has allocated claim ns/p-c for other nodes than n"
    assert await scene.bind() == error
    await released(scene)


@in_virtual_time
async def test_slow_allocation_goes_on_and_the_next_call_gets_its_answer() -> None:
    scene = Scene(*pods("p"))
    done = asyncio.Event()
    scene.licenses.faults[ALLOCATE] = [Fault(until=done)]
    assert await scene.bind() == "the bind of this pod is still running"
    await scene.tick(60.0)
    assert scene.licenses.asked(DEALLOCATE) == []
    done.set()
    await virtualtime.elapse(1)
    assert await scene.bind() == ""
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}


async def killed_in_bind(scene: Scene) -> None:
    """A process ends after the controller has allocated, and before it writes the claim's status."""
    never = asyncio.Event()

    async def wait() -> None:
        await never.wait()

    scene.transport.script("update_status resourceclaims", ApiFault(before=wait))
    await scene.bind()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await virtualtime.elapse(1)
    scene.cluster.state.forget("uid-p-c")
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}
    assert await scene.allocation() is None


@in_virtual_time
async def test_next_process_releases_what_a_killed_one_has_left_once_its_time_is_over() -> None:
    scene = Scene(*pods("p"))
    await killed_in_bind(scene)
    successor = scene.replica()
    assert await scene.reasons(by=successor) == [f"claim p-c waits until controller {NAME} has released it"]
    await scene.tick(31.0, by=successor)
    assert scene.licenses.asked(DEALLOCATE) == []
    scene.seconds += 1.0
    await scene.tick(by=successor)
    assert scene.licenses.held == {}
    assert await scene.bind(by=successor) == ""


@in_virtual_time
async def test_claim_whose_status_was_written_by_a_killed_process_is_bound_by_the_next() -> None:
    scene = Scene(*pods("p"))
    scene.transport.script("bind pods", *[ApiFault(lost=True)] * 5)
    assert await scene.bind() != ""
    assert await scene.bind(by=scene.replica()) == ""
    assert scene.licenses.held.keys() == {"uid-p-c"}


@in_virtual_time
async def test_claim_whose_status_cannot_be_written_is_released() -> None:
    scene = Scene(*pods("p"))
    scene.transport.script("update_status resourceclaims", ApiFault(refused=ApiError(403, "Forbidden", "no")))
    assert await scene.bind() == "claim ns/p-c: no"
    await released(scene)


@in_virtual_time
async def test_claim_that_is_deleted_meanwhile_stays_until_it_is_released() -> None:
    scene = Scene(*pods("p"))

    async def delete() -> None:
        await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "p-c"))

    scene.transport.script("update_status resourceclaims", ApiFault(before=delete))
    assert await scene.bind() == "claim p-c is being deleted"
    await scene.tick()
    assert scene.licenses.held == {}
    await scene.cluster.settle()
    assert not await scene.exists()


@in_virtual_time
async def test_pod_that_is_deleted_meanwhile_leaves_nothing() -> None:
    scene = Scene(*pods("p"))

    async def delete() -> None:
        await scene.cluster.api.delete(PODS, ObjectKey("ns", "p"))

    scene.transport.script("bind pods", ApiFault(before=delete))
    assert await scene.bind() != ""
    await released(scene)


@in_virtual_time
async def test_two_replicas_do_not_allocate_one_claim_twice() -> None:
    scene = Scene(*pods("p"), pod("q", "p-c"), licenses=Licenses(left=2))
    other, _ = scene.second()
    answers = await asyncio.gather(scene.bind("p"), scene.bind("q", "m", by=other))
    assert sorted(map(bool, answers)) == [False, True]
    assert len(scene.licenses.asked(ALLOCATE)) == 1
    assert len(scene.licenses.held) == 1


@in_virtual_time
async def test_replica_that_has_not_heard_of_an_allocation_does_not_ask_for_another() -> None:
    scene = Scene(*pods("p"), pod("q", "p-c"), licenses=Licenses(left=2))
    other, _ = scene.second()
    assert await scene.bind("p") == ""
    assert await scene.bind("q", "m", by=other) == "node m: claim ns/p-c was changed by others meanwhile"
    assert len(scene.licenses.asked(ALLOCATE)) == 1
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}


@pytest.mark.parametrize("heard", ["before the mark", "the mark"])
@in_virtual_time
async def test_replica_does_not_release_what_another_allocates_within_its_time(heard: str) -> None:
    scene = Scene(*pods("p"))
    other, watch = scene.second()
    done = asyncio.Event()
    scene.licenses.faults[ALLOCATE] = [Fault(until=done)]
    assert await scene.bind() == "the bind of this pod is still running"
    if heard == "the mark":
        watch.tell("claims", len(watch.news["claims"]))
        assert await scene.reasons(by=other) == [f"claim p-c waits until controller {NAME} has released it"]
    await scene.tick(31.0, by=other)
    assert scene.licenses.asked(DEALLOCATE) == []
    done.set()
    await virtualtime.elapse(1)
    assert await scene.bind() == ""
    await scene.tick(60.0, by=other)
    assert scene.licenses.asked(DEALLOCATE) == []
    assert scene.licenses.held == {"uid-p-c": ("n", 1)}


@in_virtual_time
async def test_claims_of_a_controller_that_is_away_are_released_when_it_is_back() -> None:
    scene = Scene(*pods("p"))
    await scene.bind()
    scene.licenses.faults[DEALLOCATE] = [Fault("no connection")] * 3
    await scene.end()
    for _ in range(3):
        await scene.tick(60.0)
    assert await scene.mark() == f"{NAME} 2 releasing"
    assert scene.licenses.held.keys() == {"uid-p-c"}
    await scene.tick(60.0)
    await released(scene)


@in_virtual_time
async def test_controller_that_is_out_of_the_settings_keeps_its_claims_marked() -> None:
    scene = Scene(*pods("p"))
    await scene.bind()
    await scene.cluster.api.delete(CLAIMS, ObjectKey("ns", "p-c"))
    await scene.end()
    without = scene.replica(controllers=[])
    await scene.tick(60.0, by=without)
    assert await scene.exists()
    await scene.tick()
    assert not await scene.exists()
