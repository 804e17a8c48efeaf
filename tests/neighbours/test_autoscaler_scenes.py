"""The gRPC expander, asked round by round, and ``estimate``, asked once, bring the same nodes.

A Cluster Autoscaler asks the expander, adds nodes of one group, and asks again once they are there. Here its part is
played: each group is offered for each pod, and as many nodes come as the answer says.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from extender.client import AsyncSession, NodeGroup
from extender.kube.api import key_of
from extender.kube.resources import NODES, PODS
from tests.extender.autoscaler.http_scenes import app_of, book, passing, start
from tests.extender.autoscaler.scenes import autoscaler_over
from tests.extender.faces.grpc.scenes import call, serving
from tests.extender.plugins.gangs.scenes import Scene as Scheduling
from tests.kit.clusters import Object, client_of
from tests.kit.objects.parts import api_object
from tests.kit.protobuf import answer, request
from tests.neighbours.autoscaler_scenes import CLASSES, SCENES, Machines, Scene

Nodes = Mapping[str, int]
"""Group to the number of its new nodes, without groups that get none."""

SAID = "pods that get a place: "


class Played:
    """A scene in a cluster in memory. Its scheduler knows CPUs, node selectors and taints, and asks the service.

    Attributes:
        came: the nodes that have come.
    """

    def __init__(self, scene: Scene) -> None:
        self.came: Counter[str] = Counter()
        self._groups = scene.groups
        self._scheduling = Scheduling(*CLASSES, *scene.pods)
        self._cluster = self._scheduling.cluster
        templates = [group.template(name) for name, group in scene.groups.items()]
        self.autoscaler = autoscaler_over(self._cluster.state, *templates)

    async def estimated(self) -> tuple[Nodes, int]:
        """The nodes of a plan, and how many pods it does not help."""
        await self._cluster.settle()
        async with client_of(app_of(self._cluster, self.autoscaler)) as http:
            plan = await AsyncSession(http).estimate(
                await self.waiting(),
                [NodeGroup(name, group.node(name, f"{name}-template"), group.limit) for name, group in self._open()],
            )
        return {each.group: len(each.nodes) for each in plan.groups if each.nodes}, len(plan.failed)

    async def expanded(self) -> tuple[Nodes, int]:
        """The nodes that answers of the expander bring, one after the other, and how many pods wait in the end."""
        await self._cluster.settle()
        async with serving(self.autoscaler) as address:
            while found := await self._asked(address):
                [(group, number, reason)] = found
                assert reason.startswith(SAID)
                await self._come(group, number)
                await self._schedule()
        return dict(self.came), len(await self.waiting())

    async def waiting(self) -> list[Object]:
        """The pods that have no node, as the API server has them."""
        return [each for each in (await self._cluster.api.list(PODS)).items if not each["spec"].get("nodeName")]

    def _open(self) -> list[tuple[str, Machines]]:
        """The groups that may still grow."""
        return [(name, each) for name, each in self._groups.items() if self.came[name] < each.limit]

    async def _asked(self, address: str) -> list[tuple[str, int, str]]:
        pods, groups = await self._unhelped(), self._open()
        options = {name: (group.limit - self.came[name], pods) for name, group in groups}
        templates = {name: group.node(name, f"{name}-template") for name, group in groups}
        return answer(await call(address, request(options, templates)))

    async def _unhelped(self) -> list[Object]:
        """The pods that fit on no node, as the autoscaler finds out itself: one by one, without regard to gangs."""
        found = []
        async with client_of(app_of(self._cluster, self.autoscaler)) as http:
            session = await start(http)
            for raw in await self.waiting():
                nodes = (await self._cluster.api.list(NODES)).items
                names = await self._suiting(raw)
                suiting = [each for each in nodes if each["metadata"]["name"] in names]
                passed = await passing(http, raw, *suiting, session=session) if suiting else []
                if passed:
                    [node] = [each for each in suiting if each["metadata"]["name"] == passed[0]]
                    await book(http, raw, node, session)
                else:
                    found.append(raw)
        return found

    async def _come(self, group: str, number: int) -> None:
        """Nodes join, and their drivers publish."""
        for _ in range(number):
            name = f"{group}-{self.came[group]}"
            self.came[group] += 1
            self._cluster.load(self._groups[group].node(group, name))
            for index, published in enumerate(self._groups[group].slices):
                pool = {
                    "name": name,
                    "generation": 1,
                    "resourceSliceCount": self._slices_of(group, published["driver"]),
                }
                spec = {"devices": [], **published, "pool": pool, "nodeName": name}
                self._cluster.load(api_object("ResourceSlice", f"{name}-{index}", spec=spec))

    def _slices_of(self, group: str, driver: str) -> int:
        return sum(each["driver"] == driver for each in self._groups[group].slices)

    async def _schedule(self) -> None:
        """Try the pods in turns with the task for gangs, until two turns change nothing."""
        counts = [-2, -1]
        while len({*counts[-2:], len(waiting := await self.waiting())}) > 1:
            counts.append(len(waiting))
            for raw in waiting:
                await self._try(raw)
            await self._scheduling.turns()

    async def _try(self, raw: Object) -> None:
        """Bind the pod if a node suits; the service is asked if the pod needs devices."""
        suiting, key = await self._suiting(raw), key_of(raw)
        if key not in self._cluster.state.snapshot.pods:
            for name in suiting[:1]:
                await self._cluster.api.bind_pod(key, name, uid="")
        elif suiting and (passed := self._scheduling.filter(key.name, names=suiting).passed):
            assert await self._scheduling.bind(key.name, passed[0]) == ""

    async def _suiting(self, raw: Object) -> list[str]:
        """The nodes on which kube-scheduler's own checks pass."""
        pods = (await self._cluster.api.list(PODS)).items
        nodes = (await self._cluster.api.list(NODES)).items
        return [each["metadata"]["name"] for each in nodes if _suits(raw, each, pods)]


def _suits(raw: Object, node: Object, pods: Iterable[Object]) -> bool:
    labels, name = node["metadata"]["labels"].items(), node["metadata"]["name"]
    used = sum(_cpu(each) for each in pods if each["spec"].get("nodeName") == name)
    has_room = used + _cpu(raw) <= int(node["status"]["allocatable"]["cpu"])
    return has_room and not node["spec"]["taints"] and raw["spec"].get("nodeSelector", {}).items() <= labels


def _cpu(raw: Object) -> int:
    return int(raw["spec"]["containers"][0]["resources"]["requests"]["cpu"])


@pytest.mark.parametrize("name", SCENES)
async def test_the_expander_brings_the_nodes_that_are_needed(name: str) -> None:
    scene = SCENES[name]
    assert await Played(scene).expanded() == (scene.nodes, scene.waiting)


@pytest.mark.parametrize("name", SCENES)
async def test_estimate_says_the_nodes_that_are_needed(name: str) -> None:
    scene = SCENES[name]
    assert await Played(scene).estimated() == (scene.planned or scene.nodes, scene.waiting)
