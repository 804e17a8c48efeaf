"""Pods that wait for claims, on a real control plane: from templates, of one PodGroup, and of one shared claim.

``python -m loadtest.waiting_bench [--scene NAME ...] [--repetitions N]``. Subjects take turns in one run: the scheduler
with its own plugin, and the scheduler with dra-extender as we ship it. ``KUBERNETES`` names the version.

| scene | what is measured |
|---|---|
| templates | 70 pods with claims from templates, created at once: seconds from creation to node |
| in a row | the same, created one after the other by one client, as kubectl creates what is in a file |
| one by one | the same, each created when the one before has a node: no pod waits for another |
| group | 1,000 pods of one PodGroup that share its claim: seconds until all have a node (Kubernetes 1.37) |
| shared | 250 pods that share a claim by name: seconds until all have a node |
| memory | kube-scheduler with 40,000 devices, with and without the plugin at preEnqueue: bytes in memory |
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, EVENTS, POD_GROUPS, PODS, SLICES, TEMPLATES
from loadtest.endtoend.processor import spent, used
from loadtest.endtoend.subjects import CALLS_PER_SECOND, Processes
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import find_binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.in_tree import IN_TREE
from tests.kit.controlplane.pair import SHIPPED_NAME
from tests.kit.controlplane.scenario import by_name, by_template
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.measure import MEGABYTE, resident
from tests.kit.objects import synthetic
from tests.kit.objects.manifests import add_node, claim, device_class, is_bound, namespace, pod, template
from tests.kit.objects.parts import api_object, slice_spec
from tests.kit.waiting import wait_for_answer

GATES: Final = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
_NODES: Final = 20
_WITHIN: Final = 1200.0
_MANY_DEVICES: Final = 40_000
_SETTLE_SECONDS: Final = 10.0
_AT_ONCE: Final = 50
"""Objects that are created at the same time."""

Running = Callable[[Client, ControlPlane], AbstractAsyncContextManager[Processes]]


def _config(plane: ControlPlane, config: RawObject) -> RawObject:
    """With no limit of calls, so that the client's own is not what is measured."""
    connection = {"kubeconfig": str(plane.kubeconfig(SCHEDULER)), "qps": CALLS_PER_SECOND, "burst": CALLS_PER_SECOND}
    return config | {"clientConnection": connection}


@asynccontextmanager
async def _ours(client: Client, plane: ControlPlane, *, holds_pods: bool = True) -> AsyncIterator[Processes]:
    await grant_rights(client)
    text = SHIPPED.read_text()
    async with running_extender(plane) as running:
        config = localize(text, running.url, plane.kubeconfig(SCHEDULER))
        if not holds_pods:
            del config["profiles"][0]["plugins"]["preEnqueue"]
        async with scheduler(plane, _config(plane, config), _flags(shipped_flags(text))) as process:
            yield {process.name: process, "extender": running.process}


@asynccontextmanager
async def _in_tree(_client: Client, plane: ControlPlane) -> AsyncIterator[Processes]:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": IN_TREE, "percentageOfNodesToScore": 100}],
    }
    async with scheduler(plane, _config(plane, config), _flags(())) as process:
        yield {process.name: process}


def _without_gate(client: Client, plane: ControlPlane) -> AbstractAsyncContextManager[Processes]:
    return _ours(client, plane, holds_pods=False)


def _flags(shipped: Sequence[str]) -> tuple[str, ...]:
    """The flags of a scheduler, with the gates of the control plane."""
    if not _has_groups():
        return tuple(shipped)
    switches = ",".join(f"{gate}=true" for gate in GATES)
    if not shipped:
        return (f"--feature-gates={switches}",)
    return tuple(f"{flag},{switches}" if "gates" in flag else flag for flag in shipped)


def _has_groups() -> bool:
    return os.environ.get("KUBERNETES", "") != "1.36"


@dataclass(frozen=True, slots=True)
class Scene:
    """Pods to be scheduled.

    Attributes:
        pods: how many.
        prepare: makes what the pods need, in a namespace.
        entry: the entry of each pod in ``spec.resourceClaims``.
        spec: more of the spec of each pod.
        at_once: how many are created at the same time.
        waits: each is created when the one before has a node.
    """

    pods: int
    prepare: Callable[[Client, str], Awaitable[None]]
    entry: RawObject
    spec: RawObject
    at_once: int = _AT_ONCE
    waits: bool = False


async def _make_template(client: Client, place: str) -> None:
    await client.create(TEMPLATES, template(place, "one"))


async def _make_group(client: Client, place: str) -> None:
    await _make_template(client, place)
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [by_template("one")]}
    metadata = {"name": "team", "namespace": place}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    await client.create(POD_GROUPS, group)
    await client.wait_for(
        POD_GROUPS, ObjectKey(place, "team"), lambda obj: obj and obj.get("status", {}).get("resourceClaimStatuses")
    )


async def _make_claim(client: Client, place: str) -> None:
    await client.create(CLAIMS, claim(place, "shared"))


SCENES: Final = {
    "templates": Scene(70, _make_template, by_template("one"), {}),
    "in a row": Scene(70, _make_template, by_template("one"), {}, at_once=1),
    "one by one": Scene(70, _make_template, by_template("one"), {}, at_once=1, waits=True),
    "group": Scene(1000, _make_group, by_template("one"), {"schedulingGroup": {"podGroupName": "team"}}),
    "shared": Scene(250, _make_claim, by_name("shared"), {}),
}
SUBJECTS: Final[dict[str, tuple[str, Running]]] = {
    "in-tree": (IN_TREE, _in_tree),
    "dra-extender": (SHIPPED_NAME, _ours),
    "dra-extender, without the gate": (SHIPPED_NAME, _without_gate),
}


async def _bound(client: Client, place: str, since: int) -> AsyncGenerator[str, None]:
    """The names of pods that have a node, without end."""
    while True:  # an API server may end a watch at any time
        async with aclosing(client.watch(PODS, ObjectKey(place, ""), since=since)) as events:
            async for event in events:
                since = int(event.object["metadata"]["resourceVersion"])
                if event.type != "BOOKMARK" and is_bound(event.object):
                    yield event.object["metadata"]["name"]


async def _play(client: Client, plane: ControlPlane, scene: Scene, subject: str, number: int) -> str:
    """One turn of a subject; the figures in words."""
    name, running = SUBJECTS[subject]
    place = f"turn-{number}"
    await client.create(NAMESPACES, namespace(place))
    await scene.prepare(client, place)
    since = (await client.list(PODS, place)).revision
    made: dict[str, float] = {}
    seen: dict[str, float] = {}
    news = asyncio.Event()

    async def create(numbers: Sequence[int]) -> None:
        for each in numbers:
            key = f"p-{each}"
            await client.create(PODS, pod(place, key, claims=[scene.entry], scheduler=name, **scene.spec))
            made[key] = time.monotonic()
            while scene.waits and key not in seen:
                news.clear()
                await news.wait()

    async def follow() -> None:
        async with aclosing(_bound(client, place, since)) as names:
            async for key in names:
                if key not in seen:
                    seen[key] = time.monotonic()
                    news.set()
                if len(seen) == scene.pods:
                    return

    async with running(client, plane) as started, asyncio.timeout(_WITHIN):
        processes = {name: each.pid for name, each in (*plane.components.items(), *started.items())}
        before, begun = used(processes), time.monotonic()
        following = asyncio.create_task(follow())
        try:
            await asyncio.gather(*(create(range(part, scene.pods, scene.at_once)) for part in range(scene.at_once)))
            await following
        finally:
            following.cancel()
        work = spent(before, used(processes))
        waits = sorted(seen[key] - made[key] for key in seen)
        notes = [str(each.get("note") or "") for each in (await client.list(EVENTS, place)).items]
    failed = sum("Scheduled" not in note and "assigned" not in note for note in notes)
    await _clear(client, place)
    return (
        f"all bound {max(seen.values()) - begun:.2f} s; creation to node: median {statistics.median(waits):.3f} s, "
        f"longest {waits[-1]:.2f} s; {failed} other Events; processor time for a pod, ms: "
        + ", ".join(f"{name} {1000 * seconds / scene.pods:.1f}" for name, seconds in work.items())
    )


async def _clear(client: Client, place: str) -> None:
    for each in (await client.list(PODS, place)).items:
        await client.delete(PODS, ObjectKey(place, each["metadata"]["name"]))
    for each in (await client.list(CLAIMS, place)).items:
        with suppress(ApiError):  # the claim of a pod goes with it
            await client.patch(CLAIMS, ObjectKey(place, each["metadata"]["name"]), {"metadata": {"finalizers": None}})
    if _has_groups():
        for each in (await client.list(POD_GROUPS, place)).items:
            await client.delete(POD_GROUPS, ObjectKey(place, each["metadata"]["name"]))
    # The controller manager deletes what is left, such as Events. That must not be work of the next subject's turn.
    await client.delete(NAMESPACES, ObjectKey("", place))
    await client.wait_gone(NAMESPACES, ObjectKey("", place), within=_WITHIN)


async def _memory(client: Client, plane: ControlPlane) -> None:
    """Print what a scheduler has in memory once it knows many devices."""
    slices = _MANY_DEVICES // synthetic.DEVICES_PER_NODE
    for first in range(0, slices, _AT_ONCE):
        numbers = range(first, min(slices, first + _AT_ONCE))
        await asyncio.gather(*(client.create(SLICES, _slice(number)) for number in numbers))
    for turn in range(2):
        for subject in ("dra-extender", "dra-extender, without the gate", "in-tree"):
            async with SUBJECTS[subject][1](client, plane) as started:
                process, sizes = started["kube-scheduler"], list[int]()

                async def grown(pid: int = process.pid, into: list[int] = sizes) -> int:
                    into.append(resident(pid))
                    return len(into)

                await wait_for_answer(grown, lambda n: n > _SETTLE_SECONDS, "memory", within=60, every=1.0)
                print(f"memory, turn {turn + 1}, {subject}: kube-scheduler {sizes[-1] / MEGABYTE:.0f} MB")


def _slice(number: int) -> RawObject:
    made = synthetic.resource_slice(number, 1)
    return made | {"metadata": {"name": made["metadata"]["name"]}}


async def _furnish(client: Client) -> None:
    """Nodes with eight devices each, and one pool with a device that all nodes reach."""
    await client.create(CLASSES, device_class())
    for number in range(_NODES):
        await add_node(client, f"node-{number}")
        devices = [{"name": f"gpu-{index}"} for index in range(8)]
        spec = slice_spec(f"node-{number}", devices, allNodes=True)
        await client.create(SLICES, api_object("ResourceSlice", f"node-{number}", spec=spec))


async def _run(scenes: Sequence[str], repetitions: int, plane: ControlPlane) -> None:
    async with connect(plane.access()) as client:
        if "memory" in scenes:
            await _memory(client, plane)
        await _furnish(client)
        number = 0
        for name in (each for each in scenes if each != "memory"):
            for turn in range(repetitions):
                for subject in SUBJECTS if name in {"templates", "one by one"} else ("in-tree", "dra-extender"):
                    number += 1
                    load = os.getloadavg()[0]
                    figures = await _play(client, plane, SCENES[name], subject, number)
                    print(f"{name}, turn {turn + 1}, {subject} (load {load:.1f}): {figures}", flush=True)


def main() -> None:
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", action="append", choices=[*SCENES, "memory"], help="all, if none is named")
    parser.add_argument("--repetitions", type=int, default=2)
    asked = parser.parse_args()
    # By default, the controller manager makes 10 claims a second, and nothing else would be measured.
    options = Options(controller_flags=(f"--kube-api-qps={CALLS_PER_SECOND}", f"--kube-api-burst={CALLS_PER_SECOND}"))
    if _has_groups():
        versions = {"scheduling.k8s.io/v1beta1": True}
        more = ("podgroup-protection-controller",)
        options = replace(options, feature_gates=GATES, runtime_config=versions, more_controllers=more)
    scenes = asked.scene or [each for each in (*SCENES, "memory") if each != "group" or _has_groups()]
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        logs = Path(folder) / "logs"
        logs.mkdir()
        with control_plane(find_binaries(os.environ), Path(folder), logs, options) as plane:
            asyncio.run(_run(scenes, asked.repetitions, plane))


if __name__ == "__main__":
    main()
