"""Devices that take CPU or memory of their node (KEP-5517): the same answers as from upstream's own plugin."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from allocator.model.validation import validate
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import WAIT_SECONDS, Client
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.scenario import bound, rejection
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, claim, device_class, pod, resource_slice
from tests.kit.waiting import wait_for_answer

pytestmark = pytest.mark.usefixtures("schedulers", "places")

GATE: Final = "DRANodeAllocatableResources"
FLAG: Final = f"--feature-gates={GATE}=true"
OURS: Final = "dra-scheduler"
STATUS: Final = "nodeAllocatableResourceClaimStatuses"

CORES: Final = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}
BOTH: Final = {
    "cpu": {"mapping": {"deviceMultiplier": "2500m"}, "overhead": {"perPod": "100m"}},
    "memory": {"overhead": {"perPod": "1Gi", "perContainer": "512Mi"}},
}
SHARED: Final[RawObject] = {
    "allowMultipleAllocations": True,
    "capacity": {
        "cores": {"value": "8", "requestPolicy": {"default": "3", "validRange": {"min": "1", "step": "1"}}},
        "memory": {"value": "8Gi"},
    },
    "nodeAllocatableResources": {
        "cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "1500m"}},
        "memory": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "0.5"}},
    },
}


@dataclass(frozen=True)
class Case:
    """A pod on a node with 8 cores, 16Gi of memory and two devices of one kind.

    Attributes:
        requests: of each container.
        containers: how many use the claims.
        spec: further fields of the pod.
        claims: how many claims of one device each.
        refused: what the extender says against the node, and what upstream's plugin says; None: the pod fits.
    """

    device: RawObject
    requests: RawObject = field(default_factory=dict)
    containers: int = 1
    spec: RawObject = field(default_factory=dict)
    claims: int = 1
    refused: tuple[str, str] | None = None


def taking(resources: RawObject) -> RawObject:
    return {"nodeAllocatableResources": resources}


CPU: Final = ("too little cpu for the pod and its devices", "Insufficient cpu")
MEMORY: Final = ("too little memory for the pod and its devices", "Insufficient memory")
WHOLE: Final = ("spec.resources.requests[cpu] of the pod does not cover", "pod level request for cpu is insufficient")

CASES: Final[dict[str, Case]] = {
    "fits": Case(taking(CORES), {"cpu": "4"}),
    "too-little": Case(taking(CORES), {"cpu": "4001m"}, refused=CPU),
    "two-claims": Case(taking(CORES), claims=2),
    "two-claims-too-much": Case(taking(CORES), {"cpu": "1m"}, claims=2, refused=CPU),
    "overhead": Case(taking(BOTH), {"cpu": "1"}, containers=2),
    "overhead-too-much": Case(taking(BOTH), {"memory": "7200Mi"}, containers=2, refused=MEMORY),
    "no-container": Case(taking(BOTH), containers=0),
    "shared-capacity": Case(SHARED, {"cpu": "3500m"}),
    "shared-too-much": Case(SHARED, {"cpu": "3501m"}, refused=CPU),
    "whole-pod": Case(taking(CORES), {"cpu": "1"}, spec={"resources": {"requests": {"cpu": "7"}}}),
    "whole-pod-small": Case(taking(CORES), {"cpu": "1"}, spec={"resources": {"requests": {"cpu": "4"}}}, refused=WHOLE),
}


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane with the gate on."""
    options = Options(feature_gates={GATE: True})
    with own_plane(binaries, logs, "node-resources", options) as running:
        yield running


@pytest.fixture
async def schedulers(client: Client, plane: ControlPlane, kubernetes: str) -> AsyncIterator[None]:
    """Upstream's scheduler with its plugin, and one that asks the extender; both have the gate on."""
    if kubernetes == "1.36":
        pytest.skip("the first alpha of 1.36 has other fields")
    await grant_rights(client)
    await client.create(CLASSES, device_class())
    text = SHIPPED.read_text()
    async with running_extender(plane) as extender, AsyncExitStack() as stack:
        config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
        await stack.enter_async_context(scheduler(plane, config, (*shipped_flags(text), FLAG)))
        await stack.enter_async_context(in_tree(plane, FLAG))
        yield
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


@pytest.fixture
async def places(client: Client) -> AsyncIterator[None]:
    """For each case a node for each of the schedulers."""
    names = [f"{name}-{each}" for name in CASES for each in ("ours", "theirs")]
    for place in names:
        case = CASES[place.rpartition("-")[0]]
        await add_node(client, place, cpu="8", memory="16Gi")
        key = ObjectKey("", place)
        await client.patch(NODES, key, {"metadata": {"labels": {"kubernetes.io/hostname": place}}})
        await client.patch_status(NODES, key, {"status": {"declaredFeatures": [GATE]}})
        devices = [{"name": f"d-{number}", **case.device} for number in range(2)]
        made = resource_slice(place, place, devices)
        await wait_for_answer(partial(_published, client, made), bool, f"slice {place}", within=WAIT_SECONDS)
    yield
    for place in names:
        await client.delete(SLICES, ObjectKey("", place))
        await client.delete(NODES, ObjectKey("", place))


async def _published(client: Client, made: RawObject) -> bool:
    """Whether a slice could be made: admission has to hear of its node first."""
    try:
        await client.create(SLICES, made)
    except ApiError as error:
        if "does not support" not in str(error):
            raise
        return False
    return True


async def scheduled(client: Client, namespace: str, name: str, by: str) -> Any:
    """What the pod of a case takes by its claims, once it is bound; None once it is refused."""
    case, place = CASES[name], f"{name}-{'ours' if by == OURS else 'theirs'}"
    claims = [f"{place}-{number}" for number in range(case.claims)]
    for each in claims:
        await client.create(CLAIMS, claim(namespace, each))
    made = pod(
        namespace,
        place,
        claims=[{"name": each, "resourceClaimName": each} for each in claims],
        scheduler=by,
        nodeSelector={"kubernetes.io/hostname": place},
        **case.spec,
    )
    (container,) = made["spec"]["containers"]
    container["resources"]["requests"] = case.requests
    if case.containers:
        made["spec"]["containers"] = [container | {"name": f"c{index}"} for index in range(case.containers)]
    else:
        del container["resources"]["claims"]
    await client.create(PODS, made)
    key = ObjectKey(namespace, place)
    if case.refused:
        await rejection(client, key, about=case.refused[by == IN_TREE])
        return None
    await bound(client, key)
    entries = (await client.get(PODS, key))["status"].get(STATUS, [])
    return [{**each, "resourceClaimName": each["resourceClaimName"].removeprefix(place)} for each in entries]


async def test_pods_get_what_upstreams_own_plugin_gives_them(client: Client, namespace: str) -> None:
    async def both(name: str) -> tuple[Any, Any]:
        ours, theirs = await asyncio.gather(*(scheduled(client, namespace, name, by) for by in (OURS, IN_TREE)))
        return ours, theirs

    answers = dict(zip(CASES, await asyncio.gather(*map(both, CASES)), strict=True))
    assert {name: ours for name, (ours, _) in answers.items()} == {
        name: theirs for name, (_, theirs) in answers.items()
    }
    assert answers["shared-capacity"][0][0]["mapping"] == [
        {"name": "cpu", "quantity": "4500m"},
        {"name": "memory", "quantity": "4Gi"},
    ]


async def test_what_claims_take_counts_for_pods_without_claims(client: Client, namespace: str) -> None:
    """kube-scheduler counts it by the status of the pod, and so do we; a pod that is gone gives it back."""
    here = {"kubernetes.io/hostname": "fits-ours"}
    assert await scheduled(client, namespace, "fits", OURS)
    plain = pod(namespace, "plain", nodeSelector=here)
    plain["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    await client.create(PODS, plain)
    assert "Insufficient cpu" in await rejection(client, ObjectKey(namespace, "plain"), about="Insufficient cpu")
    await client.create(CLAIMS, claim(namespace, "late"))
    late = pod(namespace, "late", claims=[{"name": "late", "resourceClaimName": "late"}], nodeSelector=here)
    await client.create(PODS, late)
    reason = "too little cpu for the pod and its devices"
    assert reason in await rejection(client, ObjectKey(namespace, "late"), about=reason)
    await client.delete(PODS, ObjectKey(namespace, "fits-ours"))
    assert await bound(client, ObjectKey(namespace, "plain")) == "fits-ours"
    assert await bound(client, ObjectKey(namespace, "late")) == "fits-ours"


REFUSED: Final[list[RawObject]] = [
    {"example.com/gpu": {"mapping": {"deviceMultiplier": "1"}}},
    {"cpu": {}},
    {"cpu": {"mapping": {}}},
    {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "1", "deviceMultiplier": "1"}}},
    {"cpu": {"mapping": {"capacityKey": "cores"}}},
    {"cpu": {"mapping": {"deviceMultiplier": "1", "capacityMultiplier": "1"}}},
    {"cpu": {"mapping": {"capacityKey": "threads", "capacityMultiplier": "1"}}},
    {"cpu": {"mapping": {"deviceMultiplier": "0"}}},
    {"memory": {"overhead": {}}},
    {"memory": {"overhead": {"perPod": "-1"}}},
]


async def test_the_server_refuses_what_we_find_wrong(client: Client) -> None:
    for entries in REFUSED:
        device = {"name": "d", "capacity": {"cores": {"value": "8"}}, **taking(entries)}
        bad = resource_slice("bad", "fits-ours", [device])
        assert validate(bad), entries
        with pytest.raises(ApiError, match="nodeAllocatableResources"):
            await client.create(SLICES, bad)
