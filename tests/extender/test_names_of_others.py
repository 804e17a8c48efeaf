"""What a tenant reads has no name of another tenant's objects: pods, claims, quotas and Events of its namespace.

Random clusters with two namespaces: pods run, wait, and hold devices twice; kube-scheduler's verbs are called, and the
background tasks have their turns.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from httpx import ASGITransport, AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.answers.explain.explanation_service import LEFT_OUT, names_within, namespaces_of
from extender.cluster.objects.pods import Pod
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings, make_extender
from extender.faces.http.app import Listener
from extender.faces.http.callers import Guard, Refusals
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.access import Clocks, Gate, Reviews
from extender.kube.api import ObjectKey, RawObject
from extender.kube.encoding import dumps, loads
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, EVENTS, PODS
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.extender.kube.access_scenes import ApiServer
from tests.kit.clusters import GPU, NOW, Cluster, Object, app_over, claim, local_slice, node, pod, solver
from tests.kit.objects.quotas import limited, quota
from tests.kit.virtualtime import elapse, in_virtual_time

ONE_GPU = limited(devices=1)
LYNX, IBEX = "lynx", "ibex"
OTHER = {LYNX: IBEX, IBEX: LYNX}
NODES = ("n0", "n1")
DEVICES = [f"{name}/gpu-{number}" for name in NODES for number in range(2)]
READ = (PODS, CLAIMS, EVENTS, DEVICE_QUOTAS)
EXAMPLES = int(os.environ.get("NAMES_EXAMPLES", "15"))


def of(namespace: str, obj: Object) -> Object:
    """The object in a namespace. Its name begins with the namespace; its uid does not, because others may read uids."""
    made: Object = loads(dumps(obj).decode().replace(f"uid-{namespace}", f"uid-{namespace[0]}").encode())
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


@dataclass(frozen=True)
class Tenant:
    """A pod and its claim.

    Attributes:
        devices: those that the claim has; the pod runs on the node of the first of them. Empty: the pod waits.
        users: whether the claim is reserved for the pod.
    """

    namespace: str
    number: int
    priority: int
    devices: tuple[str, ...] = ()

    @property
    def objects(self) -> Iterator[Object]:
        name, own = f"{self.namespace}-pod-{self.number}", f"{self.namespace}-claim-{self.number}"
        on = self.devices[0].partition("/")[0] if self.devices else ""
        held = claim(own, allocated=self.devices, at=on, users=[name] if self.devices else [])
        for each in (pod(name, own, on=on, priority=self.priority), held):
            yield of(self.namespace, each)


tenants = st.builds(
    lambda namespace, priority, held: (namespace, priority, held),
    st.sampled_from([LYNX, IBEX]),
    st.sampled_from([0, 10, 100]),
    st.one_of(st.just(()), st.sampled_from(DEVICES).map(lambda device: (device,))),
)
clusters = st.lists(tenants, min_size=2, max_size=7).map(
    lambda drawn: [Tenant(namespace, n, priority, held) for n, (namespace, priority, held) in enumerate(drawn)]
)


def quota_of(namespace: str) -> Object:
    made = quota(ONE_GPU, name=f"{namespace}-quota", namespace=namespace, cohort="zoo")
    made["metadata"]["uid"] = namespace[0]
    return made


@dataclass
class Scene:
    """A service over a cluster, and what it has answered about pods: namespace and text."""

    cluster: Cluster
    extender: Extender
    answers: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, found: list[Tenant], *, has_quotas: bool = False) -> "Scene":
        pools = [each for name in NODES for each in (node(name), local_slice(name, 2))]
        quotas = [quota_of(each) for each in OTHER] if has_quotas else []
        cluster = Cluster.of(GPU, *pools, *quotas, *(each for tenant in found for each in tenant.objects))
        loop = asyncio.get_running_loop()
        timed = replace(solver(), clock=loop.time)
        around = Surroundings(now=lambda: NOW + timedelta(seconds=loop.time()))
        return cls(
            cluster,
            make_extender(cluster.api, cluster.state, timed, Settings(), around=around, off_loop=at_once),
        )

    async def schedule(self) -> None:
        """Filter, bind and prioritize are called for each pod that waits; then the background tasks have turns."""
        for each in list(self.cluster.state.snapshot.pods.values()):
            if not each.node_name and not each.deleting:
                await self._try(each)
        for _ in range(4):
            await self.extender.service.background.tick()
            await elapse(0.5)

    async def _try(self, asked: Pod) -> None:
        result = await self.extender.service.filter(FilterArgs(asked, NODES))
        self.answers += [
            (asked.namespace, reason)
            for reason in (*result.failed.in_words().values(), *result.unresolvable.in_words().values())
        ]
        # A scheduler may also bind to a node that filter has not named: the pod may have changed since.
        for name in result.passed or NODES[:1]:
            if not (error := await self._bind(asked, name)):
                return
            self.answers.append((asked.namespace, error))

    async def _bind(self, asked: Pod, name: str) -> str:
        try:
            await self.extender.service.bind(BindArgs(asked.namespace, asked.name, asked.uid, name))
        except RefusedError as error:
            return str(error)
        return ""

    async def texts(self) -> list[tuple[str, str]]:
        """All that tenants may read: the objects of each namespace, and the answers about its pods."""
        await elapse(30)
        objects: list[RawObject] = [each for kind in READ for each in (await self.cluster.api.list(kind)).items]
        return [*((each["metadata"]["namespace"], dumps(each).decode()) for each in objects), *self.answers]


def told_of_others(texts: list[tuple[str, str]]) -> list[str]:
    return [text for namespace, text in texts if OTHER[namespace] in text]


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters, st.booleans())
@in_virtual_time
async def test_nothing_that_is_written_or_answered_names_an_object_of_another_namespace(
    found: list[Tenant],
    limited: bool,
) -> None:
    scene = Scene.of(found, has_quotas=limited)
    for _ in range(3):
        await scene.schedule()
    assert told_of_others(await scene.texts()) == []


TWICE = [Tenant(LYNX, 0, 0, (DEVICES[0],)), Tenant(IBEX, 1, 0, (DEVICES[0],))]
FULL = [Tenant(LYNX, number, 0, (device,)) for number, device in enumerate(DEVICES)]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (TWICE, "device held twice: claim ibex/ibex-claim-1, 1 of other namespaces, device"),
        ([*FULL, Tenant(IBEX, 9, 100)], "preempted by a pod of another namespace of priority 100"),
    ],
    ids=["a device is held twice", "a pod is evicted for another"],
)
@in_virtual_time
async def test_others_are_counted_or_named_by_their_kind(found: list[Tenant], told: str) -> None:
    scene = Scene.of(found)
    for _ in range(3):
        await scene.schedule()
    texts = await scene.texts()
    assert any(told in text for _, text in texts), texts
    assert told_of_others(texts) == []


# --- explanations -------------------------------------------------------------------------------------------


def explained_pod() -> list[Tenant]:
    """A pod of lynx that waits; ibex has all devices."""
    return [Tenant(LYNX, 9, 100), *(Tenant(IBEX, number, 0, (device,)) for number, device in enumerate(DEVICES))]


@asynccontextmanager
async def caller(server: ApiServer, found: list[Tenant]) -> AsyncIterator[AsyncClient]:
    """A caller at the port for callers off the node, with bob's token."""
    scene = Scene.of(found)
    guard = Guard(
        app_over(scene.extender, listener=Listener.API),
        Gate(Reviews(server), Clocks(lambda: 0.0, lambda: 0.0)),
        Refusals(),
    )
    headers = {"Authorization": "Bearer bobs", "Accept": "text/plain"}
    async with AsyncClient(transport=ASGITransport(guard), base_url="https://dra", headers=headers) as client:
        yield client


@pytest.mark.parametrize(
    ("paths", "sees"),
    [(["/explain/lynx/*"], False), (["/explain/*"], False), (["/explain/*", "/pods"], True)],
    ids=["explanations of a namespace", "all explanations", "and the table of all pods"],
)
async def test_an_explanation_names_others_only_for_who_may_read_them(paths: list[str], *, sees: bool) -> None:
    server = ApiServer()
    server.allow("bob", *paths)
    async with caller(server, explained_pod()) as client:
        text = (await client.get("/explain/lynx/lynx-pod-9")).raise_for_status().text
    assert ("ibex" in text) is sees
    assert (LEFT_OUT in text) is not sees


async def test_a_pod_in_a_body_shows_no_names_of_a_namespace_that_the_caller_may_not_read() -> None:
    server = ApiServer()
    server.allow("bob", "/explain", "/explain/lynx/*")
    (asked, _) = Tenant(IBEX, 9, 100).objects
    async with caller(server, [*explained_pod(), Tenant(IBEX, 9, 100)]) as client:
        text = (await client.post("/explain", json=asked)).raise_for_status().text
        assert "ibex-claim-0" not in text
        missing = await client.get("/explain/lynx/ibex-pod-1")
    assert (missing.status_code, "ibex/" in missing.text) == (404, False)


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters)
async def test_no_explanation_within_a_namespace_names_an_object_of_another(found: list[Tenant]) -> None:
    scene = Scene.of(found)
    snapshot = scene.cluster.state.snapshot
    keys = [ObjectKey(each.namespace, f"{each.namespace}-pod-{each.number}") for each in found]
    said = [(key, await scene.extender.explanations.of_pod(key)) for key in keys]
    texts = [
        (key.namespace, repr(names_within(each, key.namespace, namespaces_of(snapshot))))
        for key, each in said
        if not isinstance(each, str)
    ]
    assert told_of_others(texts) == []
