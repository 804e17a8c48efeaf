"""One verdict: explain, simulate, filter and bind say the same of a pod in the same cluster, whatever the cluster is.

AGREEMENT_EXAMPLES is the number of clusters; `make test-laws` takes many more.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import Cluster
from extender.answers.explain.explanation import as_json
from extender.cluster.objects.pods import parse_pod
from extender.config.sources import load
from extender.faces.assembly import Extender, make_extender
from extender.faces.simulation.scheduling import schedule
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import load_objects
from extender.tools.faults import RefusedError
from tests.extender.faces.simulation.worlds import OURS, World, worlds
from tests.kit.clusters import solver

T = TypeVar("T")
EXAMPLES = int(os.environ.get("AGREEMENT_EXAMPLES", "60"))
SETTINGS = load(f"scheduling: {{schedulerNames: [{OURS}]}}")
PLACES = {"fits", "needs no devices"}
"""The verdicts that promise a node."""


def over(world: World, job: Callable[[Extender, EmbeddedCluster], Awaitable[T]]) -> T:
    async def run() -> T:
        cluster = EmbeddedCluster(load_objects(world.objects, "objects").objects)
        async with cluster.running():
            extender = make_extender(cluster.api, cluster.state, solver(), SETTINGS)
            return await job(extender, cluster)

    return asyncio.run(run())


def fitting(document: Any, nodes: set[str]) -> set[str]:
    """The nodes on which a pod fits, by its explanation."""
    if document["verdict"] == "needs no devices":
        return nodes
    return {place["node"] for place in document["places"]}


@settings(max_examples=EXAMPLES)
@given(worlds(), st.data())
def test_explain_promises_a_node_exactly_if_simulate_gives_one(world: World, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(world.pods))
    placed = {each.pod: each.node for each in Cluster.from_objects(world.objects, settings=SETTINGS).schedule()}
    nodes = {each["metadata"]["name"] for each in world.objects if each["kind"] == "Node"}
    cluster = Cluster.from_objects(world.objects, settings=SETTINGS)
    cluster.schedule(before=f"ns/{name}")
    document: Any = as_json(cluster.explain(f"ns/{name}"))
    node = placed[f"ns/{name}"]
    assert (document["verdict"] in PLACES) == bool(node), document["text"]
    assert not node or node in fitting(document, nodes), document["text"]


@settings(max_examples=EXAMPLES)
@given(worlds(), st.data())
def test_filter_and_bind_take_the_nodes_that_explain_names(world: World, data: st.DataObject) -> None:
    key = ObjectKey("ns", data.draw(st.sampled_from(world.pods)))

    async def compare(extender: Extender, cluster: EmbeddedCluster) -> None:
        service = extender.service
        await schedule(extender, cluster, [OURS], before=key)
        document: Any = as_json(await extender.explanations.explain(parse_pod(await cluster.api.get(PODS, key))))
        pod = cluster.state.snapshot.pods.get(key)
        if document["verdict"] not in {"fits", "fits nowhere"} or pod is None:
            return
        rejected = document["rejectedByScheduler"]
        by_scheduler = {name for group in rejected["nodes"] for name in group["nodes"]}
        fits = fitting(document, set())
        left = [name for name in cluster.state.snapshot.nodes if name not in by_scheduler]
        assert set((await service.filter(FilterArgs(pod, left))).passed) == fits, document["text"]
        for node in left:
            if node not in fits:
                with pytest.raises(RefusedError):
                    await service.bind(BindArgs(key.name, key.namespace, pod.uid, node))
        if fits:
            await service.bind(BindArgs(key.name, key.namespace, pod.uid, data.draw(st.sampled_from(sorted(fits)))))

    over(world, compare)
