"""kube-scheduler takes the configuration that we ship, and asks an extender as it says."""

from collections.abc import AsyncIterator

import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import NODES, PODS
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.client import LEASES, Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.recorder import Recorder, recording_extender
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.objects.manifests import add_node, is_bound, pod

NODE_NAMES = [f"scheduled-{number}" for number in range(3)]


@pytest.fixture
async def nodes(client: Client) -> AsyncIterator[list[str]]:
    for name in NODE_NAMES:
        await add_node(client, name)
    yield NODE_NAMES
    for name in NODE_NAMES:
        await client.delete(NODES, ObjectKey("", name))


@pytest.fixture
async def recorder(client: Client, plane: ControlPlane) -> AsyncIterator[Recorder]:
    """A recording extender beside a scheduler with the shipped configuration."""
    text = SHIPPED.read_text()
    async with recording_extender(client) as recorder:
        config = localize(text, recorder.url, plane.kubeconfig(SCHEDULER))
        async with scheduler(plane, config, shipped_flags(text)):
            yield recorder


async def test_the_extender_is_asked_by_names_and_binds(
    client: Client, namespace: str, nodes: list[str], recorder: Recorder
) -> None:
    key = ObjectKey(namespace, "pod")
    recorder.favourite = nodes[1]
    made = await client.create(PODS, pod(namespace, key.name))

    bound = await client.wait_for(PODS, key, is_bound)

    assert bound
    assert bound["spec"]["nodeName"] == nodes[1], "ten points of ours outweigh the others"
    assert recorder.verbs_for(key.name) == ["filter", "prioritize", "bind"]
    asked, _, binding = (call.request for call in recorder.calls)
    assert sorted(asked["NodeNames"]) == nodes
    assert asked["Nodes"] is None
    assert asked["Pod"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert binding == {
        "PodName": key.name,
        "PodNamespace": namespace,
        "PodUID": made["metadata"]["uid"],
        "Node": nodes[1],
    }


async def test_one_node_needs_no_score(client: Client, namespace: str, nodes: list[str], recorder: Recorder) -> None:
    key = ObjectKey(namespace, "pod")
    selector = {"kubernetes.io/hostname": nodes[2]}
    await client.patch(NODES, ObjectKey("", nodes[2]), {"metadata": {"labels": selector}})
    await client.create(PODS, pod(namespace, key.name, nodeSelector=selector))
    await client.wait_for(PODS, key, is_bound)
    assert recorder.verbs_for(key.name) == ["filter", "bind"]
    assert recorder.calls[0].request["NodeNames"] == [nodes[2]], "what others have ruled out is not asked"


async def test_pods_of_other_schedulers_are_left_alone(
    client: Client, namespace: str, nodes: list[str], recorder: Recorder
) -> None:
    other, ours = ObjectKey(namespace, "other"), ObjectKey(namespace, "ours")
    await client.create(PODS, pod(namespace, other.name, scheduler="default-scheduler"))
    await client.create(PODS, pod(namespace, ours.name))
    await client.wait_for(PODS, ours, is_bound)
    assert recorder.verbs_for(other.name) == []
    assert not is_bound(await client.get(PODS, other))
    assert nodes


async def test_it_leads_by_a_lease_of_its_own(client: Client, recorder: Recorder) -> None:
    key = ObjectKey("kube-system", "dra-scheduler")
    lease = await client.wait_for(LEASES, key, lambda lease: lease and lease["spec"]["holderIdentity"])
    assert lease
    assert recorder.calls == [], "nothing to schedule, nothing to ask"
