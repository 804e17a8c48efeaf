"""Pods that ask for extended resources, and the claims that are made for them."""

from typing import Any, Final

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import Client
from tests.kit.objects.manifests import pod

SPECIAL: Final = "resource.kubernetes.io/extended-resource-claim"


def box(name: str, **resources: str) -> RawObject:
    return {"name": name, "image": "none", "resources": {"requests": resources, "limits": resources}}


async def add_pod(
    client: Client, namespace: str, name: str, *containers: RawObject, on: str = "", **spec: Any
) -> RawObject:
    """A pod of these containers.

    Args:
        on: the node that it must go to.
    """
    there: RawObject = {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    made = pod(namespace, name, **spec, **there)
    made["spec"]["containers"] = [
        {**each, "resources": {**each["resources"], **made["spec"]["containers"][0]["resources"]}}
        for each in containers
    ]
    return await client.create(PODS, made)


async def special_claims(client: Client, namespace: str) -> list[RawObject]:
    claims = (await client.list(CLAIMS, namespace)).items
    return [each for each in claims if each["metadata"].get("annotations", {}).get(SPECIAL) == "true"]


async def mapped(client: Client, key: ObjectKey) -> tuple[RawObject, list[str]]:
    """The special claim of a pod that is bound, after a look at all of it; and its mappings."""
    got = await client.get(PODS, key)
    status = got["status"]["extendedResourceClaimStatus"]
    found = await client.get(CLAIMS, ObjectKey(key.namespace, status["resourceClaimName"]))
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", got["metadata"]["uid"], True)
    assert found["metadata"]["annotations"] == {SPECIAL: "true"}
    assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert [user["uid"] for user in found["status"]["reservedFor"]] == [got["metadata"]["uid"]]
    names = {each["name"] for each in found["spec"]["devices"]["requests"]}
    assert {each["requestName"] for each in status["requestMappings"]} <= names
    shown = [f"{m['containerName']} {m['resourceName']} {m['requestName']}" for m in status["requestMappings"]]
    return found, shown
