"""The library schedules as somebody does who asks the service pod by pod, and who remembers nothing in between."""

import asyncio
import os
from typing import Any

from hypothesis import given, settings

from extender import Cluster
from extender.cluster.objects.pods import Pod, parse_pod
from extender.config.sources import load
from extender.faces.assembly import make_extender, make_solver
from extender.faces.simulation.scheduling import devices_of
from extender.framework.service import Service
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import NODES, PODS
from extender.lab.cluster import ClaimController, EmbeddedCluster
from extender.lab.manifests import load_objects
from extender.planning.kube_scheduler import SchedulerChecks, no_attempt
from extender.tools.faults import RefusedError
from tests.extender.faces.simulation.worlds import OURS, World, worlds

EXAMPLES = int(os.environ.get("AGREEMENT_EXAMPLES", "40"))
SETTINGS = load(f"scheduling: {{schedulerNames: [{OURS}]}}")


async def bound_one_by_one(world: World) -> dict[str, tuple[str, Any]]:
    cluster = EmbeddedCluster(load_objects(world.objects, "objects").objects)
    nodes = [node["metadata"]["name"] for node in (await cluster.api.list(NODES)).items]
    # One service for all pods: it learns what pods ask for, and its policy weighs that for the next ones.
    service = make_extender(cluster.api, cluster.state, make_solver(SETTINGS), SETTINGS).service
    for name in world.pods:
        await ClaimController(cluster.api).reconcile()
        pod = parse_pod(await cluster.api.get(PODS, ObjectKey("ns", name)))
        if not no_attempt(pod, [OURS]):
            await bind(service, cluster, pod, nodes)
    found = [parse_pod(await cluster.api.get(PODS, ObjectKey("ns", name))) for name in world.pods]
    return {str(pod): (pod.node_name, devices_of(pod, cluster.state.snapshot)) for pod in found}


async def bind(service: Service, cluster: EmbeddedCluster, pod: Pod, nodes: list[str]) -> None:
    snapshot = cluster.state.snapshot
    rejected = SchedulerChecks(snapshot).rejections(pod)
    passed = (await service.filter(FilterArgs(pod, [name for name in nodes if name not in rejected]))).passed
    if not passed:
        return
    scores = await service.prioritize(FilterArgs(pod, passed))
    try:
        await service.bind(BindArgs(pod.name, pod.namespace, pod.uid, passed[scores.index(max(scores))]))
    except RefusedError:
        return


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_schedule_gives_what_the_verbs_give_one_by_one(world: World) -> None:
    cluster = Cluster.from_objects(world.objects, settings=SETTINGS)
    found = {each.pod: (each.node, each.devices if each.node else ()) for each in cluster.schedule()}
    expected = asyncio.run(bound_one_by_one(world))
    assert found == {pod: (node, devices if node else ()) for pod, (node, devices) in expected.items()}


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_pods_added_one_by_one_get_what_they_get_together(world: World) -> None:
    pods = [each for each in world.objects if each["metadata"]["name"] in world.pods]
    cluster = Cluster.from_objects([each for each in world.objects if each not in pods], settings=SETTINGS)
    found = []
    for pod in pods:
        cluster.add(pod)
        found += [each for each in cluster.schedule() if each.pod == f"ns/{pod['metadata']['name']}"]
    together = Cluster.from_objects(world.objects, settings=SETTINGS).schedule()
    assert [(each.pod, each.node) for each in found] == [(each.pod, each.node) for each in together]
