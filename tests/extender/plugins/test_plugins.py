"""The table of plugins: each can be left out, and a new one refuses pods in every verb and explains why."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import orjson
import pytest

from allocator import Reason
from allocator.reason import Cause
from extender.answers.explain.explainer import Explainer
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.filter import Code, filter_nodes
from extender.framework.plugin import NodeCheck, NodeOffer, Plugin, Plugins, Refusal
from extender.framework.pods.claims import PodClaims
from extender.framework.service import Service
from extender.framework.victims import NO_BORROWERS, JoinedOrder, VictimOrder, Victims
from extender.framework.wire import decode_bind, decode_filter, decode_preempt
from extender.kube.api import ObjectKey
from extender.planning.queue import shapes_of, waiting_pods
from extender.plugins.preemption.plugin import PreemptionPlugin
from extender.plugins.scheduling_gates.task import SchedulingGatesPlugin
from extender.plugins.table import TABLE
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.extender.plugins.gangs.scenes import Scene as GangScene
from tests.extender.plugins.gangs.scenes import member, members, nodes
from tests.extender.plugins.preemption.scenes import Scene as PreemptionScene
from tests.extender.plugins.preemption.scenes import full, runs, waits
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    asking,
    binding,
    claim,
    local_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.objects.parts import api_object

REFUSE_NOBODY = {PreemptionPlugin.name, SchedulingGatesPlugin.name}

_NO_TEAM = Cause("no-team", "the pod has no label team")


_FROZEN = Cause("frozen", "nothing is kept in namespace {detail}")


class FreezePlugin(Plugin):
    """Lets nothing be kept for pods."""

    name = "freeze"

    def nominate(self, pods: Sequence[Pod], snapshot: Snapshot, solver: Solver) -> Refusal | None:
        return Refusal(Reason(_FROZEN, detail=pods[0].namespace))


@dataclass(frozen=True)
class GuestsFirst(VictimOrder):
    """Evicts guests before others."""

    def may_borrow(self, _namespace: str) -> bool:
        return True

    def entitled(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        return [each for each in pods if "guest" not in each.labels]

    def kind(self, pod: Pod) -> bool:
        return "guest" in pod.labels


class GuestPlugin(Plugin):
    """Tells which pods are guests."""

    name = "guest"

    def victim_order(self, pods: Iterable[Pod], snapshot: Snapshot, solver: Solver) -> VictimOrder:
        return GuestsFirst()


class OwnerPlugin(Plugin):
    """Refuses pods as long as somebody holds a device; whose device it is counts, and not where it is."""

    name = "owner"

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> Refusal | None:
        return Refusal(Reason(_FROZEN, detail=pod.namespace)) if snapshot.holders else None

    def counts_holders(self, pod: Pod, snapshot: Snapshot) -> bool:
        return True


class LoanPlugin(Plugin):
    """Keeps devices for pods with a label."""

    name = "loan"

    def keeps_devices(self, pod: Pod, snapshot: Snapshot) -> bool:
        return "lent" in pod.labels


class TeamPlugin(Plugin):
    """Refuses pods without a label."""

    name = "team"
    waits_for = PendingReason.CLAIMS
    of_pod = ("claims",)

    def pre_enqueue(self, pod: Pod, snapshot: Snapshot) -> Refusal | None:
        return None if "team" in pod.labels else Refusal(Reason(_NO_TEAM), advice="label the pod")


LIMITS: list[Object] = [{"name": "gpu", "deviceClassName": "gpu", "devices": 0}]
UNREADY: Object = {
    "devices": {
        "results": [
            {
                "request": "gpu",
                "driver": "gpu.example.com",
                "pool": "n",
                "device": "gpu-0",
                "bindingConditions": ["ready"],
                "bindingFailureConditions": ["failed"],
            }
        ]
    }
}
REFUSED: dict[str, tuple[Object, ...]] = {
    "gang": (
        {**pod("p", "c"), "metadata": {**pod("p", "c")["metadata"], "annotations": {GROUP: "g", GROUP_SIZE: "2"}}},
        claim("c"),
    ),
    "binding-conditions": (pod("p", "c"), {**claim("c"), "status": {"allocation": UNREADY}}),
    "quota": (pod("p", "c"), claim("c"), api_object("DeviceQuota", "none", namespace="ns", spec={"limits": LIMITS})),
}
"""For each plugin of the table, a pod that it refuses, and what the pod needs."""


def service_with(plugins: Plugins, *objects: Object) -> tuple[Cluster, Service]:
    cluster = Cluster.of(GPU, node("n"), local_slice("n", 2), *objects)
    by = replace(solver(), plugins=plugins)
    return cluster, make_extender(cluster.api, cluster.state, by, Settings(), off_loop=at_once).service


def question(asked: Object) -> bytes:
    return orjson.dumps(asking(asked, "n"))


def test_each_plugin_of_the_table_that_refuses_pods_has_its_case_here() -> None:
    assert [each.name for each in TABLE if each.name not in REFUSE_NOBODY] == list(REFUSED)


@pytest.mark.parametrize("name", REFUSED)
async def test_a_plugin_refuses_its_pod_and_without_it_the_service_serves(name: str) -> None:
    asked, *others = REFUSED[name]
    _, service = service_with(Plugins(TABLE), asked, *others)
    result = await service.filter(decode_filter(question(asked)))
    assert (result.passed, list(result.by)) == ((), [name])
    cluster, service = service_with(Plugins([each for each in TABLE if each.name != name]), asked, *others)
    result = await service.filter(decode_filter(question(asked)))
    assert result.passed == ("n",)
    if name != "binding-conditions":  # bind itself waits for the devices
        await service.bind(decode_bind(orjson.dumps(binding("p", "n"))))
        assert await cluster.node_of("p") == "n"


@pytest.mark.parametrize("left_out", REFUSED)
@pytest.mark.parametrize("name", REFUSED)
async def test_the_others_refuse_as_before_when_one_is_left_out(name: str, left_out: str) -> None:
    asked, *others = REFUSED[name]
    _, service = service_with(Plugins([each for each in TABLE if each.name != left_out]), asked, *others)
    result = await service.filter(decode_filter(question(asked)))
    assert list(result.by) == ([] if name == left_out else [name])


async def test_a_new_plugin_refuses_in_filter_in_bind_and_in_preempt_and_explains_why() -> None:
    asked, labeled = pod("p", "c", priority=1), pod("q", "d", labels={"team": "blue"})
    _, service = service_with(Plugins((*TABLE, TeamPlugin())), asked, labeled, claim("c"), claim("d"))
    refused = await service.filter(decode_filter(question(asked)))
    assert refused.by == {"team": Code.NOWHERE}
    assert refused.pending_reason is PendingReason.CLAIMS
    assert refused.unresolvable.in_words() == {"n": "the pod has no label team"}
    assert (await service.filter(decode_filter(question(labeled)))).passed == ("n",)
    with pytest.raises(RefusedError, match="the pod has no label team"):
        await service.bind(decode_bind(orjson.dumps(binding("p", "n"))))
    victims = {"Pod": asked, "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "uid-q"}]}}}
    assert await service.preempt(decode_preempt(orjson.dumps(victims))) == {}


async def test_without_preemption_the_victims_are_those_of_the_scheduler() -> None:
    """It would leave out the node: nobody there holds the devices that the pod lacks."""
    asked, needed = pod("p", "c", priority=1), claim("c", request(count=9))
    named = orjson.dumps({"Pod": asked, "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "uid-q"}]}}})
    for plugins, victims in ((TABLE, {}), (TABLE[:-1], {"n": Victims(("uid-q",))})):
        _, service = service_with(Plugins(plugins), asked, needed, pod("q", on="n"))
        assert await service.preempt(decode_preempt(named)) == victims


@pytest.mark.parametrize(("more", "victim"), [((), "young"), ((GuestPlugin(),), "old")])
async def test_a_new_plugin_says_who_is_evicted_first(more: tuple[Plugin, ...], victim: str) -> None:
    """The pod of lower priority goes, unless the other one is a guest."""
    running = [*runs("young", "n/gpu-0", on="n", priority=1), *runs("old", "n/gpu-1", on="n", priority=2)]
    running[2]["metadata"]["labels"] = {"guest": "yes"}
    scene = PreemptionScene(full("n", *running, *waits("p"), devices=2), plugins=Plugins((*TABLE, *more)))
    scene.filter("p")
    await scene.turns()
    assert list(scene.preemptors) == [victim]


async def test_a_new_plugin_keeps_preemption_from_keeping_devices() -> None:
    running = runs("q", "n/gpu-0", on="n", priority=1)
    scene = PreemptionScene(full("n", *running, *waits("p")), plugins=Plugins((*TABLE, FreezePlugin())))
    scene.filter("p")
    await scene.turns()
    assert (scene.preemptors, scene.known("p").kept.node) == ({}, "")


async def test_a_new_plugin_keeps_gangs_from_keeping_devices() -> None:
    for plugins, kept in ((Plugins(TABLE), "n"), (Plugins((*TABLE, FreezePlugin())), "")):
        scene = GangScene(*nodes("n", 2), *members("x", 2), plugins=plugins)
        await scene.run()
        assert {scene.known(f"x{number}").kept.node for number in range(2)} == {kept}


def lent(raw: list[Object]) -> list[Object]:
    """The pod has the label for which a plugin keeps devices."""
    raw[0]["metadata"]["labels"] = {"lent": "yes"}
    return raw


@pytest.mark.parametrize("is_free", [True, False])
def test_a_pod_for_which_a_new_plugin_keeps_devices_goes_to_the_node_that_the_plugin_has_chosen(is_free: bool) -> None:
    snapshot = snapshot_of(*nodes("ab"), *lent(waits("p")), *([] if is_free else runs("q", "a/gpu-0", on="a")))
    by = replace(solver(), plugins=Plugins((*TABLE, LoanPlugin())))
    asked = replace(snapshot.pods[ObjectKey("ns", "p")], kept=Keeping("a"), nominated_node="a")
    result = filter_nodes(asked, ["a", "b"], snapshot, by)
    assert result.passed == (("a",) if is_free else ())
    assert ("loan" in result.by) is not is_free
    assert result.unresolvable.in_words()["b"] == "devices are kept for the pod on node a"


async def test_nobody_is_evicted_for_a_pod_for_which_a_new_plugin_keeps_devices() -> None:
    running = runs("q", "n/gpu-0", on="n", priority=1)
    scene = PreemptionScene(full("n", *running, *lent(waits("p"))), plugins=Plugins((*TABLE, LoanPlugin())))
    assert not scene.filter("p").passed
    await scene.turns()
    assert (scene.preemptors, scene.searches) == ({}, 0)


@pytest.mark.parametrize(("more", "number"), [((), 1), ((OwnerPlugin(),), 2)])
def test_pods_of_two_namespaces_have_one_shape_unless_it_counts_who_holds_devices(
    more: tuple[Plugin, ...], number: int
) -> None:
    there = [{**each, "metadata": {**each["metadata"], "namespace": "other"}} for each in waits("q")]
    by = replace(solver(), plugins=Plugins((*TABLE, *more)))
    _, queue = waiting_pods(snapshot_of(*nodes("n"), *waits("p"), *there), by, ())
    assert len(shapes_of(queue)) == number


async def test_nobody_is_evicted_for_a_pod_that_room_does_not_help() -> None:
    running = runs("q", "n/gpu-0", on="n", priority=1)
    scene = PreemptionScene(full("n", *running, *waits("p")), plugins=Plugins((*TABLE, OwnerPlugin())))
    assert list(scene.filter("p").by) == ["owner"]
    await scene.turns()
    assert (scene.preemptors, scene.searches) == ({}, 0)


def test_several_orders_of_victims_count_together() -> None:
    host, guest = parsed(pod("h")), parsed(pod("g", labels={"guest": "yes"}))
    both = JoinedOrder((NO_BORROWERS, GuestsFirst()))
    assert list(both.entitled([host, guest])) == [host]
    assert both.kind(host) != both.kind(guest)
    assert both.may_borrow("ns")
    assert not JoinedOrder((NO_BORROWERS,)).may_borrow("ns")


def test_the_explanation_of_a_refused_pod_has_the_reason_and_the_advice() -> None:
    asked = pod("p", "c")
    cluster, _ = service_with(Plugins(TABLE), asked, claim("c"))
    by = replace(solver(), plugins=Plugins((*TABLE, TeamPlugin())))
    snapshot = cluster.state.snapshot
    found = Explainer.alone(snapshot, by).explain(next(iter(snapshot.pods.values())))
    assert (found.cause, found.advice) == ("the pod has no label team", "label the pod")


@pytest.mark.parametrize(("asked", "cause"), [("x0", ""), ("x2", "the pod has no label team")])
def test_a_pod_whose_gang_has_devices_is_told_who_else_refuses_it(asked: str, cause: str) -> None:
    """The gang is complete without the pod."""
    mates = [each for n in range(2) for each in member(f"x{n}", "x", 2, labels={"team": "blue"})]
    snapshot = snapshot_of(*nodes("n", 3), *mates, *member("x2", "x", 2))
    by = replace(solver(), plugins=Plugins((*TABLE, TeamPlugin())))
    assert Explainer.alone(snapshot, by).explain(snapshot.pods[ObjectKey("ns", asked)]).cause == cause


class NotePlugin(Plugin):
    """Has a note on each pod."""

    name = "note"

    def notes(self, pod: Pod, snapshot: Snapshot) -> Sequence[str]:
        return (f"team of {pod.name}",)


@pytest.mark.parametrize("pods", [waits("p"), runs("p", "n/gpu-0", on="n")])
def test_the_notes_of_a_new_plugin_are_told_of_pods_that_fit_and_of_bound_ones(pods: list[Object]) -> None:
    snapshot = snapshot_of(*nodes("n"), *pods)
    by = replace(solver(), plugins=Plugins((*TABLE, NotePlugin())))
    found = Explainer.alone(snapshot, by).explain(snapshot.pods[ObjectKey("ns", "p")])
    assert list(found.notes) == ["team of p"]


_CLOSED = Cause("closed", "the node is closed to pods with devices")


class ClosedPlugin(Plugin):
    """Refuses nodes with a label."""

    name = "closed"

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> NodeCheck:
        return self.refusal

    def reserve(
        self, pod: Pod, claims: PodClaims, offer: NodeOffer, snapshot: Snapshot, solver: Solver
    ) -> Refusal | None:
        return self.refusal(offer)

    def refusal(self, offer: NodeOffer) -> Refusal | None:
        return Refusal(Reason(_CLOSED)) if "closed" in offer.node.node.labels else None


async def test_a_new_plugin_refuses_a_node_in_filter_in_bind_and_in_explanations() -> None:
    shut = [node("shut", labels={"closed": "yes"}), local_slice("shut", 2)]
    asked = pod("p", "c")
    cluster, service = service_with(Plugins((*TABLE, ClosedPlugin())), *shut, asked, claim("c"))
    result = await service.filter(decode_filter(orjson.dumps(asking(asked, "n", "shut"))))
    assert (result.passed, result.unresolvable.in_words()) == (("n",), {"shut": _CLOSED.text})
    with pytest.raises(RefusedError, match=_CLOSED.text):
        await service.bind(decode_bind(orjson.dumps(binding("p", "shut"))))
    by = replace(solver(), plugins=Plugins((*TABLE, ClosedPlugin())))
    snapshot = cluster.state.snapshot
    found = Explainer.alone(snapshot, by).explain(next(iter(snapshot.pods.values())))
    assert [(list(each.nodes), each.reason) for each in found.nodes] == [(["shut"], _CLOSED.text)]


class DevicesPlugin(Plugin):
    """Refuses a pod on each node by the devices that it would get there, and knows what would help."""

    name = "devices-of-node"

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> NodeCheck:
        return lambda _offer: Refusal(Reason(_FROZEN, detail=pod.namespace), "it is frozen", "thaw the namespace")


def test_a_node_that_a_new_plugin_refuses_does_not_lack_devices() -> None:
    """An explanation names no requests that exclude each other there, and tells the plugin's advice."""
    snapshot = snapshot_of(*nodes("n", 2), *waits("p", request("a"), request("b")))
    by = replace(solver(), plugins=Plugins((*TABLE, DevicesPlugin())))
    found = Explainer.alone(snapshot, by).explain(snapshot.pods[ObjectKey("ns", "p")])
    assert [each.reason for each in found.nodes] == ["nothing is kept in namespace ns"]
    assert (found.clashes, found.headline, found.advice) == ((), "it is frozen", "thaw the namespace")
