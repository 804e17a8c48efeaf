"""Compares the model of kube-scheduler's default filters with a real kube-scheduler, on random clusters.

The scheduler has its default plugins without DynamicResources, and an extender that refuses all nodes: so it tells
which nodes pass its own filters, and no pod gets a node. The condition of a pod counts the reasons of the other nodes.
"""

import argparse
import asyncio
import os
import re
import secrets
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from extender.cluster.objects.pods import parse_whole_pod
from extender.faces.simulation.cluster import Cluster
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import NODES, PODS
from extender.planning.kube_scheduler import SchedulerChecks
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import find_binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ALL_VERSIONS, ControlPlane, control_plane
from tests.kit.controlplane.recorder import Recorder, recording_extender
from tests.kit.controlplane.scheduler import scheduler
from tests.kit.filter_worlds import FilterWorld, filter_world

NAME: Final = "filters"
_REFUSED: Final = "refused by the test"
_REASONS: Final = re.compile(r"nodes are available: (.*?)\.(?: |$)")
_TRIES: Final = 3
"""A scheduler may try a pod before its watches have shown all other objects; then the pod is made anew."""

_OWN_WORDS: Final = (
    ("node is unschedulable", "node(s) were unschedulable"),
    ("untolerated taint", "node(s) had untolerated taint(s)"),
    ("node does not match", "node(s) didn't match Pod's node affinity/selector"),
)
"""Reasons in which the model says more than kube-scheduler: how each begins, and kube-scheduler's words."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of the nodes of a cluster for one pod.

    Attributes:
        passing: names of nodes.
        reasons: how often each reason counts against the others; None: the names of nodes alone are compared.
    """

    passing: frozenset[str]
    reasons: Counter[str] | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A pod of a cluster about which the model and kube-scheduler differ."""

    seed: int
    pod: str
    model: Verdict
    real: Verdict

    def __str__(self) -> str:
        return f"cluster {self.seed}, pod {self.pod}: the model says {self.model}, kube-scheduler says {self.real}"


def config_for(kubeconfig: Path, url: str) -> RawObject:
    """A scheduler with all default filters, whose extender is asked about the nodes that pass them."""
    plugins = {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": NAME, "percentageOfNodesToScore": 100, "plugins": plugins}],
        "extenders": [{"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}],
    }


@asynccontextmanager
async def filtering_scheduler(plane: ControlPlane, client: Client) -> AsyncIterator[Recorder]:
    """Such a scheduler; the recorder has the names of the nodes that pass."""
    async with recording_extender(client) as recorder:
        recorder.refusal = _REFUSED
        async with scheduler(plane, config_for(plane.kubeconfig(SCHEDULER), recorder.url), ()):
            yield recorder


async def differences(
    client: Client, recorder: Recorder, seeds: Iterable[int], progress: Callable[[int], object]
) -> list[Difference]:
    """The differences in the clusters of some seeds; ``progress`` hears the number of pods that were compared."""
    found, compared = [], 0
    for seed in seeds:
        world = filter_world(seed, f"w{seed}", NAME)
        async with _there(client, world):
            each = await asyncio.gather(*(_compared(client, recorder, world, seed, pod) for pod in world.waiting))
        found += [one for one in each if one is not None]
        compared += len(each)
        recorder.calls.clear()
        progress(compared)
    return found


async def _compared(
    client: Client, recorder: Recorder, world: FilterWorld, seed: int, pod: RawObject
) -> Difference | None:
    expected = real = of_model(world, pod)
    for _ in range(_TRIES):
        real = await _of_scheduler(client, recorder, pod)
        if expected.reasons is None:
            real = Verdict(real.passing, None)
        if real == expected:
            return None
    return Difference(seed, pod["metadata"]["name"], expected, real)


def of_model(world: FilterWorld, pod: RawObject) -> Verdict:
    """What the model says. If node names are in the affinity, upstream counts one reason for all other nodes."""
    snapshot = Cluster.from_objects(world.objects).snapshot
    rejected = SchedulerChecks(snapshot).rejections(parse_whole_pod(pod))
    passing = frozenset(name for name in snapshot.nodes if name not in rejected)
    if "matchFields" in str(pod):
        return Verdict(passing, None)
    reasons = Counter(_words(one) for each in rejected.values() for one in each.split(" and "))
    return Verdict(passing, reasons)


def _words(reason: str) -> str:
    return next((theirs for ours, theirs in _OWN_WORDS if reason.startswith(ours)), reason)


async def _of_scheduler(client: Client, recorder: Recorder, pod: RawObject) -> Verdict:
    made = await client.create(PODS, pod)
    key, uid = key_of(made), made["metadata"]["uid"]
    tried = await client.wait_for(PODS, key, _has_message)
    await client.delete(PODS, key)
    asked = [call.request for call in recorder.calls if call.request["Pod"]["metadata"]["uid"] == uid]
    passing = frozenset(asked[-1]["NodeNames"]) if asked else frozenset[str]()
    reasons = Counter[str]()
    found = _REASONS.search(_message(tried))
    for each in re.split(r", (?=\d+ )", found[1]) if found else ():
        count, _, reason = each.partition(" ")
        reasons[reason] += int(count)
    del reasons[_REFUSED]
    return Verdict(passing, reasons)


def _message(pod: RawObject | None) -> str:
    conditions = pod["status"].get("conditions", ()) if pod else ()
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def _has_message(pod: RawObject | None) -> bool:
    return bool(_message(pod))


@asynccontextmanager
async def _there(client: Client, world: FilterWorld) -> AsyncIterator[None]:
    """The objects of a cluster, apart from the pods that wait."""
    await asyncio.gather(*(client.create(NAMESPACES, each) for each in world.namespaces))
    await asyncio.gather(*(_add_node(client, each) for each in world.nodes))
    await asyncio.gather(*(client.create(PODS, each) for each in world.placed))
    try:
        yield
    finally:
        await asyncio.gather(*(client.delete(PODS, key_of(each)) for each in world.placed))
        await asyncio.gather(*(client.delete(NODES, key_of(each)) for each in world.nodes))
        await asyncio.gather(*(client.delete(NAMESPACES, key_of(each)) for each in world.namespaces))


async def _add_node(client: Client, node: RawObject) -> None:
    """Admission gives each new node the not-ready taint, which nobody takes off here."""
    key = ObjectKey("", node["metadata"]["name"])
    await client.create(NODES, {name: part for name, part in node.items() if name != "status"})
    await client.patch_status(NODES, key, {"status": node["status"]})
    await client.patch(NODES, key, {"spec": {"taints": node["spec"].get("taints")}})


def main(arguments: Sequence[str]) -> None:
    """Compare on a control plane of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the first cluster")
    given = parser.parse_args(arguments)
    seeds = range(given.seed, given.seed + given.clusters)
    _show(f"clusters {seeds.start} to {seeds.stop - 1}")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)  # what was started is stopped, as for Ctrl-C
    found = asyncio.run(_run_alone(seeds))
    if found:
        sys.exit("\n".join(map(str, found)))
    _show("no difference")


async def _run_alone(seeds: range) -> list[Difference]:
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        logs = Path(folder)
        with control_plane(find_binaries(os.environ), logs, logs, ALL_VERSIONS) as plane:
            async with connect(plane.access()) as client, filtering_scheduler(plane, client) as recorder:
                return await differences(client, recorder, seeds, _progress)


def _progress(compared: int) -> None:
    if compared % 400 == 0:
        _show(f"{compared} pods compared")


def _show(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
