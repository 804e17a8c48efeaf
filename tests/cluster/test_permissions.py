"""Which rights the API server asks for when a claim is allocated, reserved and freed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from extender.kube.api import ApiError, RawObject
from extender.kube.resources import CLAIMS, Resource
from tests.kit.controlplane.client import WAIT_SECONDS, Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.objects.manifests import allocation, claim, consumer

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = Resource("ClusterRole", "clusterroles", RBAC, ("v1",), namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource("ClusterRoleBinding", "clusterrolebindings", RBAC, ("v1",), namespaced=False)
ACCESS_REVIEWS = Resource(
    "SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", ("v1",), namespaced=False
)

STATUS = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["update", "patch"]}
RESERVED: RawObject = {"allocation": allocation("gpu-0"), "reservedFor": [consumer("job")]}
DEVICE = {"driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}


def binding(*verbs: str) -> RawObject:
    """The right to change allocation and reservedFor, per verb of the request that does it."""
    return {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": list(verbs)}


@pytest.fixture
async def made(client: Client, namespace: str) -> RawObject:
    """A claim that is not allocated."""
    return await client.create(CLAIMS, claim(namespace, "claim"))


@pytest.fixture
async def writer(client: Client, plane: ControlPlane, namespace: str, rights: list[RawObject]) -> AsyncIterator[Client]:
    """A user of this test alone, with these rights and no others."""
    metadata = {"name": namespace}
    role = await client.create(CLUSTER_ROLES, {"metadata": metadata, "rules": rights})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": namespace}
    subject = {"apiGroup": RBAC, "kind": "User", "name": namespace}
    bound = await client.create(
        CLUSTER_ROLE_BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    )
    async with connect(plane.access(), user=namespace) as connected:
        await _until_allowed(connected)
        yield connected
    await client.delete(CLUSTER_ROLE_BINDINGS, key_of(bound))
    await client.delete(CLUSTER_ROLES, key_of(role))


@pytest.mark.parametrize("rights", [[STATUS], [STATUS, binding("patch")]], ids=["none", "for the other verb"])
async def test_allocating_needs_the_right_to_bind_claims(writer: Client, made: RawObject) -> None:
    """It is refused as invalid, not as forbidden: the field is, not the request."""
    with pytest.raises(ApiError, match='requires resource="resourceclaims/binding", verb="update"') as refusal:
        await writer.update_status(CLAIMS, {**made, "status": RESERVED})
    assert (refusal.value.status, refusal.value.reason) == (422, "Invalid")


@pytest.mark.parametrize("rights", [[STATUS, binding("update")]], ids=["update"])
async def test_with_it_a_claim_is_allocated_and_freed(writer: Client, made: RawObject) -> None:
    held = await writer.update_status(CLAIMS, {**made, "status": RESERVED})
    assert held["status"] == RESERVED
    freed = await writer.update_status(CLAIMS, {**held, "status": {}})
    assert not freed.get("status")


@pytest.mark.parametrize("rights", [[STATUS, binding("update")]], ids=["update"])
async def test_freeing_needs_no_right_for_the_drivers_of_its_devices(
    client: Client, writer: Client, made: RawObject
) -> None:
    held = await client.update_status(CLAIMS, {**made, "status": RESERVED | {"devices": [DEVICE]}})
    with pytest.raises(ApiError, match="resourceclaims/driver"):
        await writer.update_status(CLAIMS, {**held, "status": RESERVED})
    freed = await writer.update_status(CLAIMS, {**held, "status": {}})
    assert not freed.get("status")


@pytest.mark.parametrize("rights", [[STATUS, binding("patch")]], ids=["patch"])
async def test_a_patch_is_another_verb(writer: Client, made: RawObject) -> None:
    held = await writer.patch_status(CLAIMS, key_of(made), {"status": RESERVED})
    assert held["status"] == RESERVED


async def _until_allowed(client: Client) -> None:
    """Ask until the authorizer has seen the new role, which takes it a moment."""
    asked = {"group": "resource.k8s.io", "resource": "resourceclaims", "subresource": "status", "verb": "update"}
    review: RawObject = {"metadata": {}, "spec": {"resourceAttributes": asked}}
    async with asyncio.timeout(WAIT_SECONDS):
        while not (await client.create(ACCESS_REVIEWS, review))["status"]["allowed"]:
            pass
