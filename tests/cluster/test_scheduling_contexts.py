"""The transitions of KEP-3063 on a real API server, with two controllers in processes of their own.

The states of a claim and of a PodSchedulingContext are what a watch shows, so no transition is missed.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
import yaml

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, CONTEXTS, PODS
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.context_controller import Fabric, context_controller
from tests.kit.controlplane.definitions import CONTEXT
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.scenario import bound, rejection
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import SERVE, SETTINGS, grant_rights, running_extender
from tests.kit.objects.manifests import add_node, claim, claim_spec, pod
from tests.kit.objects.parts import api_object
from tests.kit.waiting import wait_for_answer

OPTIONS: Final = Options(more_controllers=("garbage-collector-controller",))
ONE, TWO = "one.example.com", "two.example.com"
HERE, THERE = "there-0", "there-1"
SECONDS: Final = 60.0
"""Several tries of a scheduler, each after a longer pause."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that has the kind before the extender starts."""
    with own_plane(binaries, logs, "scheduling-contexts", OPTIONS, definition=CONTEXT) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fabrics(plane: ControlPlane) -> AsyncIterator[Mapping[str, Fabric]]:
    """Two controllers, two nodes, an extender that knows the controllers, and a scheduler."""
    settings = yaml.safe_load(SETTINGS.read_text())
    controllers = [{"name": each, "transport": "PodSchedulingContext", "allocationSeconds": 10} for each in (ONE, TWO)]
    file = plane.folder / "extender.yaml"
    file.write_text(yaml.safe_dump({**settings, "controllers": controllers}))
    async with connect(plane.access()) as admin:
        await grant_rights(admin)
        for name in (HERE, THERE):
            await add_node(admin, name)
        for name in (ONE, TWO):
            made = api_object("DeviceClass", name, spec={})
            made["metadata"]["annotations"] = {"dra-extender.dev/controller": name}
            await admin.create(CLASSES, made)
        text = SHIPPED.read_text()
        with ExitStack() as stack:
            found = {name: stack.enter_context(context_controller(plane, name)) for name in (ONE, TWO)}
            async with running_extender(plane, serve=_serve(file)) as extender:
                config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
                async with scheduler(plane, config, shipped_flags(text)):
                    yield found


def _serve(settings: Path) -> tuple[str, ...]:
    return (*SERVE[:-1], str(settings))


@pytest.fixture(autouse=True)
async def orders(fabrics: Mapping[str, Fabric]) -> AsyncIterator[Mapping[str, Fabric]]:
    """The controllers without orders."""
    yield fabrics
    for each in fabrics.values():
        each.order()


# --- what is seen -------------------------------------------------------------------------------------------


def claim_state(obj: RawObject) -> str:
    """The state of a claim: its marks and finalizers, then what its status says."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    mark = annotations.get("dra-extender.dev/negotiation", "").rpartition(" ")[2]
    told = {
        "deleted": "deletionTimestamp" in metadata,
        "marked": bool(mark) and mark not in {"releasing", "released"},
        mark: mark in {"releasing", "released"},
        "finalizer": any(each.endswith("/allocated") for each in metadata.get("finalizers") or ()),
        "allocated": "allocation" in status,
        "reserved": bool(status.get("reservedFor")),
        "requested": "dra-extender.dev/deallocation-requested" in annotations,
    }
    return " ".join(name for name, holds in told.items() if holds)


def context_state(obj: RawObject) -> str:
    """The state of a context: the selected node, the number of potential nodes, and the claims with an answer."""
    spec, status = obj["spec"], obj.get("status") or {}
    answers = [
        f"{each['name']}:{','.join(sorted(each.get('unsuitableNodes') or ()))}"
        for each in sorted(status.get("resourceClaims") or (), key=lambda each: str(each["name"]))
    ]
    selected = f"selected {spec['selectedNode']}" if spec.get("selectedNode") else "open"
    return " ".join((selected, str(len(spec.get("potentialNodes") or ())), *answers))


class Seen:
    """The states of one object, each once in a row, as a watch shows them."""

    def __init__(self) -> None:
        self.states: list[str] = []

    def add(self, state: str) -> None:
        if not self.states or self.states[-1] != state:
            self.states.append(state)

    def __repr__(self) -> str:
        return "\n".join(self.states)

    def passed_through(self, *wanted: str) -> bool:
        """Whether the states came in this order, perhaps with others between."""
        left = iter(self.states)
        return all(state in left for state in wanted)


@asynccontextmanager
async def watched(client: Client, namespace: str) -> AsyncIterator[tuple[Mapping[str, Seen], Seen]]:
    """The states of the claims of a namespace, by name, and of its only context, from now on."""
    claims: defaultdict[str, Seen] = defaultdict(Seen)
    contexts = Seen()
    since = {each: (await client.list(each, namespace)).revision for each in (CLAIMS, CONTEXTS)}

    async def follow_claims() -> None:
        async for event in client.watch(CLAIMS, ObjectKey(namespace, ""), since=since[CLAIMS]):
            if event.type != "BOOKMARK":
                gone = event.type == "DELETED"
                claims[event.object["metadata"]["name"]].add("gone" if gone else claim_state(event.object))

    async def follow_contexts() -> None:
        async for event in client.watch(CONTEXTS, ObjectKey(namespace, ""), since=since[CONTEXTS]):
            if event.type != "BOOKMARK":
                contexts.add("gone" if event.type == "DELETED" else context_state(event.object))

    tasks = [asyncio.create_task(follow_claims()), asyncio.create_task(follow_contexts())]
    try:
        yield claims, contexts
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool], seen: object) -> None:
    """Wait until something is seen."""

    async def ask() -> bool:
        return holds()

    await wait_for_answer(ask, bool, f"that is seen: {seen}", within=SECONDS)


async def add_claims(client: Client, namespace: str, *classes: str) -> list[RawObject]:
    """A claim for each class, and the entries of a pod for them."""
    for number, name in enumerate(classes):
        await client.create(CLAIMS, claim(namespace, f"c{number}", claim_spec(device_class=name)))
    return [{"name": f"c{number}", "resourceClaimName": f"c{number}"} for number in range(len(classes))]


# --- the transitions ----------------------------------------------------------------------------------------

PROGRESS: Final = ("marked", "marked finalizer", "marked finalizer allocated", "marked finalizer allocated reserved")
"""From the extender's mark over the controller's finalizer and allocation to the reservation."""

RELEASE: Final = ("releasing finalizer", "releasing finalizer requested", "releasing", "released")
"""From the end of an allocation over the request to the controller's answer."""


async def test_two_controllers_allocate_for_a_pod_and_give_back(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric]
) -> None:
    """Potential nodes, answers of both, selected node, allocations, reservations, Binding; and back."""
    async with watched(client, namespace) as (claims, contexts):
        entries = await add_claims(client, namespace, ONE, TWO)
        made = await client.create(PODS, pod(namespace, "p", claims=entries))
        node = await bound(client, key_of(made))
        await until(lambda: contexts.states[-1:] == ["gone"], contexts)
        answered = "open 2 c0: c1:"
        assert contexts.passed_through("open 2", answered, f"selected {node} 2 c0: c1:", "gone"), contexts
        for name in ("c0", "c1"):
            assert claims[name].passed_through(*PROGRESS), claims
        assert [list(each.outside.values()) for each in fabrics.values()] == [[node], [node]]
        await client.delete(PODS, key_of(made))
        await until(lambda: all(each.passed_through(*PROGRESS, *RELEASE) for each in claims.values()), claims)
        assert [dict(each.outside) for each in fabrics.values()] == [{}, {}]


async def test_refused_node_is_avoided_and_what_the_other_controller_has_allocated_is_deallocated(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric]
) -> None:
    """One controller allocates for the selected node, the other refuses there at the last moment, and then always."""
    fabrics[TWO].order(refuses=[HERE, THERE])
    async with watched(client, namespace) as (claims, contexts):
        entries = await add_claims(client, namespace, ONE, TWO)
        made = await client.create(PODS, pod(namespace, "p", claims=entries))
        await until(lambda: bool(fabrics[ONE].outside), contexts)
        (first,) = fabrics[ONE].outside.values()
        other = THERE if first == HERE else HERE
        fabrics[TWO].order(unsuitable=[first])
        assert await bound(client, key_of(made), within=SECONDS) == other
        assert contexts.passed_through(f"selected {first} 2 c0: c1:{first}", f"open 2 c0: c1:{first}"), contexts
        assert contexts.passed_through(f"selected {first} 2 c0: c1:{first}", f"selected {other} 2 c0: c1:{first}"), (
            contexts
        )
        blocked = ("marked finalizer allocated", "marked finalizer allocated requested", "marked", "released")
        assert claims["c0"].passed_through(*blocked, *PROGRESS), claims
        assert [list(each.outside.values()) for each in fabrics.values()] == [[other], [other]]
        await client.delete(PODS, key_of(made))
        await until(lambda: not any(each.outside for each in fabrics.values()), claims)


async def test_deleted_claim_is_deallocated_before_it_goes(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric]
) -> None:
    async with watched(client, namespace) as (claims, _):
        entries = await add_claims(client, namespace, ONE)
        made = await client.create(PODS, pod(namespace, "p", claims=entries))
        await bound(client, key_of(made))
        await client.delete(CLAIMS, ObjectKey(namespace, "c0"))
        await until(lambda: "deleted marked finalizer allocated reserved" in claims["c0"].states, claims)
        await client.delete(PODS, key_of(made))
        await until(lambda: claims["c0"].states[-1:] == ["gone"], claims)
        assert not fabrics[ONE].outside


async def test_immediate_claim_is_allocated_by_its_controller_alone(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric]
) -> None:
    async with watched(client, namespace) as (claims, contexts):
        fabrics[ONE].order(unsuitable=[HERE])
        made = claim(namespace, "c0", claim_spec(device_class=ONE))
        made["metadata"]["annotations"] = {"dra-extender.dev/allocation-mode": "Immediate"}
        await client.create(CLAIMS, made)
        await until(lambda: "finalizer allocated" in claims["c0"].states, claims)
        assert claims["c0"].passed_through("", "finalizer", "finalizer allocated"), claims
        entries = [{"name": "c0", "resourceClaimName": "c0"}]
        created = await client.create(PODS, pod(namespace, "p", claims=entries))
        assert await bound(client, key_of(created)) == THERE
        assert contexts.states == []
        await client.delete(PODS, key_of(created))
        await client.delete(CLAIMS, key_of(made))
        await until(lambda: claims["c0"].states[-1:] == ["gone"] and not fabrics[ONE].outside, claims)


async def test_pod_that_has_a_node_is_served_by_the_selected_node_alone(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric]
) -> None:
    async with watched(client, namespace) as (claims, contexts):
        entries = await add_claims(client, namespace, ONE)
        made = await client.create(PODS, pod(namespace, "p", claims=entries, nodeName=THERE))
        await until(lambda: claims["c0"].passed_through(*PROGRESS), claims)
        await until(lambda: contexts.states[-1:] == ["gone"], contexts)
        assert contexts.states == [f"selected {THERE} 0", "gone"]
        await client.delete(PODS, key_of(made))
        await until(lambda: not fabrics[ONE].outside, claims)


async def test_controller_that_dies_after_it_has_allocated_goes_on_with_what_it_has(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric]
) -> None:
    fabric = fabrics[ONE]
    fabric.order(dies=True)
    async with watched(client, namespace) as (claims, _):
        entries = await add_claims(client, namespace, ONE)
        made = await client.create(PODS, pod(namespace, "p", claims=entries))
        await until(lambda: bool(fabric.outside), claims)
        fabric.order()
        fabric.start()
        node = await bound(client, key_of(made), within=SECONDS)
        assert list(fabric.outside.values()) == [node]
        await client.delete(PODS, key_of(made))
        await until(lambda: not fabric.outside, claims)


async def test_pod_says_for_whom_it_waits(client: Client, namespace: str, fabrics: Mapping[str, Fabric]) -> None:
    fabrics[ONE].order(unsuitable=[HERE, THERE])
    entries = await add_claims(client, namespace, ONE)
    made = await client.create(PODS, pod(namespace, "p", claims=entries))
    assert await rejection(client, key_of(made), about=f"controller {ONE}: the node is not suitable")
    fabrics[ONE].order()
    assert await bound(client, key_of(made), within=SECONDS) in {HERE, THERE}
    await client.delete(PODS, key_of(made))
    await until(lambda: not fabrics[ONE].outside, made)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"potentialNodes": [f"n{number}" for number in range(257)]}, "must have at most 256 items"),
        ({"potentialNodes": "n"}, "potentialNodes"),
        ({"selectedNode": 7}, "selectedNode"),
    ],
)
async def test_definition_refuses(
    client: Client, namespace: str, fabrics: Mapping[str, Fabric], spec: RawObject, problem: str
) -> None:
    assert fabrics
    with pytest.raises(ApiError, match=problem):
        await client.create(CONTEXTS, api_object("PodSchedulingContext", "p", namespace=namespace, spec=spec))
