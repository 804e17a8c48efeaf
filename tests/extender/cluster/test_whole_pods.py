"""All pods of a live cluster, listed for an answer: what of them is known, for how long, and what if they can't be."""

import asyncio
from typing import Any

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.whole_pods import ListedPods, WholePods, read_listed_pod
from extender.kube.api import ObjectKey
from extender.kube.discovery import Served
from extender.kube.encoding import dumps
from extender.kube.remote import RemoteApi, RequestTiming
from extender.kube.resources import NAMESPACES, NODES, PODS
from extender.planning.kube_scheduler import SchedulerChecks, not_modeled
from extender.tools.offload import at_once
from tests.extender.kube.live_scenes import SERVED, half
from tests.kit.clusters import Object, node, pod, snapshot_of, state_of
from tests.kit.servers.transport import FakeApi, Fault
from tests.kit.virtualtime import elapse, in_virtual_time

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "10"}
NODES_THERE = (node("a", allocatable=ROOM), node("b", allocatable=ROOM))
KEEPS_AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "p"}},
                "namespaceSelector": {"matchLabels": {"team": "a"}},
            }
        ]
    }
}


def plain(name: str, on: str = "", *, cpu: str = "1", **spec: Any) -> Object:
    """A pod without devices."""
    found = pod(name, on=on)
    found["spec"] |= {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}
    return found


def fake_of(*pods: Object) -> FakeApi:
    fake = FakeApi()
    for each in pods:
        fake.put(PODS, each)
    return fake


def lister(fake: FakeApi, most: int = 100) -> WholePods:
    served = Served({**SERVED.versions, NAMESPACES.kind: "v1"})
    api = RemoteApi(fake, served, random=half, timing=RequestTiming(page_size=2))
    return WholePods(api, most, at_once)


async def listed(fake: FakeApi, most: int = 100) -> ListedPods:
    return await lister(fake, most).listed(lambda: None)


def rejections(asked: Object, snapshot: Snapshot) -> dict[str, str]:
    return dict(SchedulerChecks(snapshot).rejections(parse_whole_pod(asked)))


@in_virtual_time
async def test_pods_without_devices_take_cpu_of_their_nodes() -> None:
    live = snapshot_of(*NODES_THERE, pod("p"))
    pods = await listed(fake_of(plain("web", "a", cpu="3"), plain("db", "b", cpu="1"), plain("more", "b")))
    assert rejections(plain("p", cpu="2"), live) == {}
    assert rejections(plain("p", cpu="2"), pods.beside(live)) == {"a": "Insufficient cpu"}


@in_virtual_time
async def test_pods_that_the_service_follows_are_as_it_has_them_with_the_conditions_of_the_list() -> None:
    port: Object = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    moved, gone = plain("moved", "a", **port), plain("gone", "b", cpu="4", resourceClaims=[])
    for each in (moved, gone):
        each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    fake = fake_of({**moved, "spec": {**moved["spec"], "nodeName": ""}}, gone)
    live = snapshot_of(*NODES_THERE, moved)
    whole = (await listed(fake)).beside(live)
    assert whole.pods[ObjectKey("ns", "moved")].conditions.ports
    assert rejections(plain("p", **port), whole) == {"a": "node(s) didn't have free ports for the requested pod ports"}
    assert not_modeled(whole.pods.values(), whole) == ()


@in_virtual_time
async def test_labels_of_namespaces_are_read_where_a_pod_selects_by_them() -> None:
    fake = fake_of(plain("shy", "a", affinity=KEEPS_AWAY))
    for name, labels in (("ns", {"team": "a"}), ("other", {})):
        fake.put(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    hosts = (node(name, labels={"kubernetes.io/hostname": name}, allocatable=ROOM) for name in "ab")
    whole = (await listed(fake)).beside(snapshot_of(*hosts))
    asked = plain("p")
    asked["metadata"]["labels"] = {"app": "p"}
    assert rejections(asked, whole) == {"a": "node(s) didn't satisfy existing pods anti-affinity rules"}
    asked["metadata"]["namespace"] = "other"
    assert rejections(asked, whole) == {}


@in_virtual_time
async def test_namespaces_that_can_not_be_read_are_told() -> None:
    fake = fake_of(plain("shy", "a", affinity=KEEPS_AWAY))
    fake.fault_for = lambda request: Fault(403, reason="Forbidden") if request.path.endswith("namespaces") else Fault()
    found = await listed(fake)
    assert found.placed is not None
    assert found.problems == ("labels of namespaces, which affinity between pods selects, can't be read: fault",)


@in_virtual_time
async def test_those_who_ask_at_once_share_a_list_and_the_next_one_sees_what_is_new() -> None:
    fake = fake_of(plain("web", "a"))
    pods = lister(fake)
    await asyncio.gather(pods.listed(lambda: None), pods.listed(lambda: None))
    assert len(fake.lists(PODS)) == 1
    await elapse(0.3)
    fake.put(PODS, plain("db", "a"))
    placed = (await pods.listed(lambda: None)).placed
    assert placed is not None
    assert {str(each) for each in placed.at("a")} == {"ns/web", "ns/db"}


@in_virtual_time
async def test_finished_pods_are_not_asked_for() -> None:
    fake = fake_of(plain("web", "a"))
    await listed(fake)
    assert fake.lists(PODS)[0].query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


@pytest.mark.parametrize(
    ("fault", "most", "problem"),
    [
        (Fault(403, reason="Forbidden"), 100, "pods without devices can't be read: fault"),
        (Fault(), 2, "pods without devices can't be read: the cluster has more than 2 (cluster.podsForAnswers)"),
    ],
)
def test_pods_that_can_not_be_read_leave_the_cluster_as_it_is(fault: Fault, most: int, problem: str) -> None:
    @in_virtual_time
    async def ask() -> None:
        fake = fake_of(*(plain(name, "a") for name in "abc"))
        fake.fault_for = lambda _: fault
        found = await listed(fake, most)
        live = snapshot_of(*NODES_THERE)
        assert (found.beside(live), found.problems) == (live, (problem,))

    ask()


@in_virtual_time
async def test_no_pods_are_listed_where_the_settings_say_so() -> None:
    fake = fake_of(plain("web", "a"))
    found = await listed(fake, 0)
    assert (found.placed, found.problems, fake.requests) == (None, (), [])


@in_virtual_time
async def test_a_pod_that_can_not_be_read_is_told_and_counts_for_nothing() -> None:
    broken = plain("broken", "a")
    broken["spec"]["topologySpreadConstraints"] = 7
    found = await listed(fake_of(broken, plain("web", "a")))
    assert found.problems == (
        "pods that can't be read do not count: broken: spec.topologySpreadConstraints: 7 is not a list",
    )


def test_a_cluster_that_has_whole_pods_stays_as_it_is() -> None:
    state = ClusterState(has_whole_pods=True)
    state.replace(NODES, NODES_THERE, 1)
    assert ListedPods(state.snapshot.placed).beside(state.snapshot) is state.snapshot
    assert ListedPods().beside(live := state_of(NODES_THERE).snapshot) is live


def counted(found: Pod) -> object:
    """What counts of a pod that has a node."""
    parts = (found.key, found.uid, found.node_name, found.phase, found.deleting, found.labels)
    return *parts, found.conditions, found.resources, found.containers, found.needs_devices


def test_what_is_read_of_a_listed_pod_is_what_is_read_of_the_pod() -> None:
    given = plain("p", "a", affinity=KEEPS_AWAY, volumes=[{"name": "v", "emptyDir": {}}], overhead={"cpu": "100m"})
    given["spec"]["initContainers"] = [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 1}]}]
    given["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    given["metadata"] |= {"labels": {"app": "p"}, "managedFields": [{"manager": "kubelet"}]}
    given["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    assert counted(read_listed_pod(dumps(given))) == counted(parse_whole_pod(given))
