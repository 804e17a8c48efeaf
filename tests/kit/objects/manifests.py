"""Objects as a user would write them: as small as the API server allows."""

from collections.abc import Sequence
from typing import Any, Final

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import NODES
from tests.kit.controlplane.client import Client
from tests.kit.objects import parts
from tests.kit.objects.parts import api_object, exactly, of_driver, slice_spec

DRIVER: Final = parts.DRIVER
DEVICE_CLASS: Final = parts.DRIVER


async def add_node(client: Client, name: str, **capacity: str) -> RawObject:
    """A node that is ready, and has room: what its kubelet and the node controller would have done.

    Args:
        capacity: resources beyond CPU, memory and pods.
    """
    await client.create(NODES, api_object("Node", name))
    resources = {"cpu": "32", "memory": "64Gi", "pods": "110"} | capacity
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    key = ObjectKey("", name)
    await client.patch_status(
        NODES, key, {"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}}
    )
    # Admission gives each new node the not-ready taint. The controller that would take it off does not run here.
    return await client.patch(NODES, key, {"spec": {"taints": None}})


def namespace(name: str) -> RawObject:
    return api_object("Namespace", name)


def pod(
    namespace: str, name: str, *, claims: Sequence[RawObject] = (), scheduler: str = "dra-scheduler", **spec: Any
) -> RawObject:
    """A pod of one container, which uses all of the pod's claims.

    Args:
        claims: entries of spec.resourceClaims.
        spec: further fields of the pod's spec.
    """
    used = [{"name": claim["name"]} for claim in claims]
    container = {"name": "main", "image": "none", "resources": {"claims": used}}
    whole = {"schedulerName": scheduler, "containers": [container], "resourceClaims": list(claims), **spec}
    return api_object("Pod", name, namespace=namespace, spec=whole)


def is_bound(pod: RawObject | None) -> bool:
    """Has it got a node?"""
    return bool(pod and pod["spec"].get("nodeName"))


def priority_class(name: str, value: int) -> RawObject:
    return api_object("PriorityClass", name, apiVersion="scheduling.k8s.io/v1", value=value)


def device_class(name: str = DEVICE_CLASS, driver: str = DRIVER) -> RawObject:
    """All devices of one driver."""
    return api_object("DeviceClass", name, spec={"selectors": of_driver(driver)})


def claim_spec(count: int = 1, device_class: str = DEVICE_CLASS) -> RawObject:
    """One request, named ``gpu``."""
    return requests(exactly("gpu", device_class, count))


def request(name: str, device_class: str, **exactly: Any) -> RawObject:
    """One request of a claim.

    Args:
        exactly: further fields beside the class, e.g. ``count``.
    """
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def requests(*requests: RawObject, **devices: Any) -> RawObject:
    """The spec of a claim.

    Args:
        devices: further fields beside the requests, e.g. ``constraints``.
    """
    return parts.claim_spec(requests, **devices)


def claim(namespace: str, name: str, spec: RawObject | None = None) -> RawObject:
    return api_object("ResourceClaim", name, namespace=namespace, spec=spec or claim_spec())


def template(namespace: str, name: str, spec: RawObject | None = None) -> RawObject:
    return api_object("ResourceClaimTemplate", name, namespace=namespace, spec={"spec": spec or claim_spec()})


def resource_slice(name: str, node: str, devices: Sequence[RawObject], *, driver: str = DRIVER) -> RawObject:
    """The whole pool of one node: the only slice of its first generation."""
    return api_object("ResourceSlice", name, spec=slice_spec(node, devices, driver=driver, nodeName=node))


def allocation(*devices: str, node: str = "node-0", driver: str = DRIVER) -> RawObject:
    """What a scheduler writes for the request ``gpu``: devices of a node's pool."""
    return parts.allocation([(node, device) for device in devices], driver=driver, at=node)


def as_version(obj: RawObject, version: str) -> RawObject:
    """A claim, class or slice as a user of another version of resource.k8s.io writes it.

    Args:
        obj: of v1.
        version: the oldest has no layer ``exactly`` in requests, and one more, ``basic``, in devices.
    """
    obj = {**obj, "apiVersion": f"resource.k8s.io/{version}"}
    if version != "v1beta1":
        return obj
    spec = dict(obj["spec"])
    match obj["kind"]:
        case "ResourceClaim":
            flat = [{**r, **r.get("exactly", {})} for r in spec["devices"]["requests"]]
            requests = [{name: value for name, value in r.items() if name != "exactly"} for r in flat]
            spec["devices"] = spec["devices"] | {"requests": requests}
        case "ResourceSlice":
            spec["devices"] = [
                {"name": d["name"], "basic": {name: value for name, value in d.items() if name != "name"}}
                for d in spec["devices"]
            ]
    return obj | {"spec": spec}


def consumer(name: str) -> RawObject:
    """An entry of reservedFor which is no pod: the controller that releases claims for absent pods leaves it alone."""
    return {"apiGroup": "example.com", "resource": "jobs", "name": name, "uid": f"uid-of-{name}"}
