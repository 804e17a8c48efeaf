"""A restart: what a process has in memory only is lost at the worst moment, and the next one goes on within 5 s.

The scheduler asks about a pod once, and again only when the pod changes, as kube-scheduler does for five minutes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from extender.cluster.objects.pods import Pod
from extender.framework.service import Service
from extender.framework.wire import FilterArgs
from extender.kube.api import ObjectKey, revision
from extender.kube.resources import LEASES, RESOURCES
from extender.plugins.immediate_claims import IMMEDIATE_CLAIMS
from tests.extender.plugins.gangs.scenes import members
from tests.extender.plugins.immediate_claims.test_immediate_claims import immediate
from tests.extender.plugins.negotiation.scenes import LICENSE, Scene, negotiated_class
from tests.kit.clusters import GPU, Object, claim, local_slice, node, pod, rejected
from tests.kit.controllers import Licenses
from tests.kit.objects.quotas import limited, quota
from tests.kit.virtualtime import in_virtual_time

READY_SECONDS = 5.0
TURN_SECONDS = 0.2
NODES = ("n", "m")
NAMES = ("p0", "p1", "p2", "p3")

WORLD = (GPU, negotiated_class(), *map(node, NODES))
TWO_EACH = [local_slice(name, 2) for name in NODES]
NONE = [local_slice(name, 0) for name in NODES]
WAITING = rejected(*(each for name in NAMES for each in (pod(name, f"{name}-c", priority=100), claim(f"{name}-c"))))
HOLDING = [
    each
    for index, name in enumerate(("x0", "x1", "x2", "x3"))
    for on, device in [(NODES[index // 2], f"gpu-{index % 2}")]
    for each in (
        pod(name, f"{name}-c", on=on, priority=1),
        claim(f"{name}-c", allocated=[f"{on}/{device}"], users=[name], at=on),
    )
]
LICENSED = rejected(*(each for name in NAMES for each in (pod(name, f"{name}-c"), claim(f"{name}-c", LICENSE))))
IMMEDIATE = [immediate(name) for name in NAMES]


@dataclass
class Story:
    """A cluster, and the process that runs now.

    Attributes:
        asked: by name, the version of the pod when its scheduler asked.
        passed: the pods that filter left a node.
    """

    scene: Scene
    service: Service
    asked: dict[str, int] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)

    async def ask(self) -> None:
        """The scheduler asks about each pod that is new or has changed."""
        for each in list(self.scene.cluster.state.snapshot.pods.values()):
            version = revision(each.resource_version)
            if each.is_pending and self.asked.get(each.name) != version:
                self.asked[each.name] = version
                if (await self.service.filter(FilterArgs(each, list(NODES)))).passed:
                    self.passed.add(each.name)

    async def turn(self) -> None:
        await self.scene.tick(TURN_SECONDS, by=self.service)
        await self.ask()

    async def put(self, obj: Object) -> None:
        api, resource, metadata = self.scene.cluster.api, RESOURCES[obj["kind"]], obj["metadata"]
        old = await api.get(resource, ObjectKey(metadata.get("namespace", ""), metadata["name"]))
        kept = {name: old["metadata"][name] for name in ("uid", "resourceVersion")}
        await api.update(resource, {**obj, "metadata": {**metadata, **kept}})

    def pod(self, name: str) -> Pod | None:
        return self.scene.cluster.state.snapshot.pods.get(ObjectKey("ns", name))


@dataclass(frozen=True)
class Case:
    """What waits.

    Attributes:
        objects: at the time when the process ends.
        happens: while no process runs.
        goes_on: whether the next process has done its part for all that waits.
        left: licenses of the controller, before and after.
    """

    objects: Sequence[Object]
    happens: Sequence[Object]
    goes_on: Callable[[Story], bool]
    left: tuple[int, int] = (9, 9)


def are_woken(story: Story) -> bool:
    return story.passed >= {*NAMES}


def are_evicted(story: Story) -> bool:
    found = (story.pod(name) for name in ("x0", "x1", "x2", "x3"))
    return all(each is None or each.deleting for each in found)


def are_kept(story: Story) -> bool:
    found = (story.pod(name) for name in NAMES)
    return all(each is not None and each.kept.node for each in found)


def are_allocated(story: Story) -> bool:
    claims = story.scene.cluster.state.snapshot.claims
    return all(claims[ObjectKey("ns", name)].claim.allocation is not None for name in NAMES)


CASES = {
    "pods whose victims were to be chosen": Case([*TWO_EACH, *HOLDING, *WAITING], [], are_evicted),
    "pods that wait for devices": Case([*NONE, *WAITING], TWO_EACH, are_woken),
    "pods over their quota": Case(
        [*TWO_EACH, *WAITING, quota(limited(devices=0))], [quota(limited(devices=4))], are_woken
    ),
    "pods that wait for a controller": Case([*TWO_EACH, *LICENSED], [], are_woken, left=(0, 9)),
    "a gang whose plan was to be made": Case([*TWO_EACH, *rejected(*members("p", 4))], [], are_kept),
    "immediate claims": Case([*NONE, *IMMEDIATE], TWO_EACH, are_allocated),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@in_virtual_time
async def test_the_next_process_goes_on_within_five_seconds(case: Case) -> None:
    scene = Scene(*case.objects, world=WORLD, licenses=Licenses(left=case.left[0]))
    told = Story(scene, scene.service)
    await told.ask()  # and the process is killed before its tasks have a turn
    assert not case.goes_on(told)
    scene.licenses.left = case.left[1]
    for each in case.happens:
        await told.put(each)
    told = replace(told, service=scene.replica())
    began = scene.seconds
    while not case.goes_on(told):
        assert scene.seconds < began + READY_SECONDS, "the next process has forgotten somebody"
        await told.turn()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@in_virtual_time
async def test_another_scheduler_leads_and_its_replica_goes_on_within_five_seconds(case: Case) -> None:
    """The other replica has run all the time, and was asked about nothing. Its scheduler asks about one pod first."""
    scene = Scene(*case.objects, world=WORLD, licenses=Licenses(left=case.left[0]))
    told = Story(scene, scene.service)
    await told.ask()
    other = scene.replica()
    for _ in range(100):
        await scene.tick(TURN_SECONDS, by=other)
    asked_before = dict(told.asked)
    scene.licenses.left = case.left[1]
    for each in case.happens:
        await told.put(each)
    told = replace(told, service=other, asked=asked_before)
    first = told.pod("p0")
    if first is not None:
        told.asked.pop("p0")
    began = scene.seconds
    while not case.goes_on(told):
        assert scene.seconds < began + READY_SECONDS, "the other replica does not know of somebody"
        await told.turn()


@pytest.mark.parametrize(("stops", "most"), [(False, READY_SECONDS), (True, 1.0)], ids=["is killed", "stops"])
@in_virtual_time
async def test_immediate_claims_go_on_although_the_last_process_had_their_lease(stops: bool, most: float) -> None:
    scene = Scene(*NONE, *IMMEDIATE, world=WORLD)
    told = Story(scene, scene.service)
    for _ in range(3):
        await told.turn()
    assert (await scene.cluster.api.get(LEASES, IMMEDIATE_CLAIMS))["spec"]["holderIdentity"]
    if stops:
        await told.service.finish(1.0)
    for each in TWO_EACH:
        await told.put(each)
    told = replace(told, service=scene.replica())
    began = scene.seconds
    while not are_allocated(told):
        assert scene.seconds < began + most, "the next process waits for the lease"
        await told.turn()
