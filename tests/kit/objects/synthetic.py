"""Made-up objects of a big cluster, about as large as real ones, managed fields included."""

from typing import Any, Final

import orjson

from tests.kit.objects.parts import DRIVER, allocation, api_object, claim_spec, exactly, of_driver, slice_spec

RawObject = dict[str, Any]

_TIME: Final = "2026-01-01T00:00:00Z"
_DIGEST: Final = "a" * 64
DEVICES_PER_NODE: Final = 8


def node(number: int, revision: int) -> RawObject:
    """A node, with the images that kubelets report."""
    name = node_name(number)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    conditions = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    images = [{"names": [f"registry.example.com/image-{i}@sha256:{_DIGEST}"], "sizeBytes": 12345678} for i in range(30)]
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [_condition(kind) | {"lastHeartbeatTime": _TIME} for kind in conditions],
        "images": images,
    }
    more = {"labels": labels}
    return _object("Node", name, revision, fields=10, more=more, spec={"podCIDR": "10.0.0.0/24"}, status=status)


def resource_slice(number: int, revision: int) -> RawObject:
    """The slice of a node: its devices, each with a uuid of its own."""
    name = node_name(number)
    devices = [_device(number, index) for index in range(DEVICES_PER_NODE)]
    spec = slice_spec(name, devices, nodeName=name)
    return _object("ResourceSlice", f"{name}-{DRIVER}-abcde", revision, fields=10, spec=spec)


def device_class(number: int, revision: int) -> RawObject:
    """A device class; the first one is that of all claims."""
    name = DRIVER if number == 0 else f"class-{number}.example.com"
    return _object("DeviceClass", name, revision, fields=3, spec={"selectors": of_driver()})


def claim_template(number: int, revision: int) -> RawObject:
    """A template: the first one is that of all claims, and the second one asks for more devices than a node has."""
    name, devices = (("gpu", 1), ("many", DEVICES_PER_NODE + 1))[number]
    spec = {"spec": _claim_spec(devices)}
    return _object("ResourceClaimTemplate", name, revision, fields=3, namespace="default", spec=spec)


def claim(number: int, revision: int) -> RawObject:
    """A claim, allocated and reserved: device by device, node by node."""
    more = {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "controller": True, **_pod_reference(number)}],
    }
    at = node_name(number // DEVICES_PER_NODE)
    held = allocation([(at, f"gpu-{number % DEVICES_PER_NODE}")], at=at) | {"allocationTimestamp": _TIME}
    status = {"allocation": held, "reservedFor": [{"resource": "pods", **_pod_reference(number)}]}
    name = _claim_name(number)
    spec = _claim_spec(1)
    return _object("ResourceClaim", name, revision, fields=20, namespace="default", more=more, spec=spec, status=status)


def pod(number: int, revision: int, *, claims: bool) -> RawObject:
    """A running pod, with or without a claim from a template."""
    last_applied = orjson.dumps({"spec": {"padding": "x" * 200}}).decode()
    name, uid = _pod_reference(number).values()
    more: RawObject = {
        "uid": uid,
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": last_applied},
    }
    container: RawObject = {
        "name": "main",
        "image": "registry.example.com/image:1",
        "env": [{"name": f"VARIABLE_{index}", "value": "value"} for index in range(10)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True}],
    }
    spec = {
        "nodeName": node_name(number // DEVICES_PER_NODE % 5000),
        "schedulerName": "dra-scheduler",
        "containers": [container],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}] * 2,
        "volumes": [
            {"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        ],
    }
    ready = [_condition(kind) for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]
    status: RawObject = {
        "phase": "Running",
        "conditions": ready,
        "containerStatuses": [{"name": "main", "image": container["image"], "imageID": f"sha256:{_DIGEST}"}],
    }
    if claims:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        container["resources"]["claims"] = [{"name": "gpu"}]
        status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": _claim_name(number)}]
    return _object("Pod", name, revision, fields=40, namespace="default", more=more, spec=spec, status=status)


def waiting_pod(number: int, revision: int) -> RawObject:
    """A pod that asks for more devices than a node has."""
    spec: RawObject = {
        "schedulerName": "dra-scheduler",
        "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "many"}],
    }
    more = {"uid": f"00000000-0000-0000-0002-{number:012d}"}
    name = f"waiting-{number}"
    return _object(
        "Pod", name, revision, fields=5, namespace="default", more=more, spec=spec, status={"phase": "Pending"}
    )


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:05d}"


def _claim_spec(devices: int) -> RawObject:
    expression = f"device.attributes['{DRIVER}'].productName.startsWith('Example A')"
    return claim_spec([exactly("gpu", DRIVER, devices, expression)])


def _claim_name(number: int) -> str:
    return f"pod-{number:06d}-gpu-abcde"


def _pod_reference(number: int) -> dict[str, str]:
    return {"name": f"pod-{number:06d}", "uid": f"00000000-0000-0000-0001-{number:012d}"}


def _device(number: int, index: int) -> RawObject:
    texts = {
        "uuid": f"GPU-{number:08x}-{index:04x}-0000-0000",
        "type": "gpu",
        "productName": "Example A100 80GB",
        "brand": "Example",
        "architecture": "Ampere",
        "pcieRoot": f"pci0000:0{index // 2}",
    }
    versions = {"cudaComputeCapability": "8.0.0", "driverVersion": "550.54.15", "cudaDriverVersion": "12.4.0"}
    attributes: RawObject = {name: {"string": value} for name, value in texts.items()}
    attributes |= {name: {"version": value} for name, value in versions.items()}
    attributes |= {name: {"int": index} for name in ("minor", "index")}
    capacity = {"memory": {"value": "80Gi"}, "multiprocessors": {"value": "108"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": capacity}


def _condition(kind: str) -> RawObject:
    return {"type": kind, "status": "True", "lastTransitionTime": _TIME, "reason": "Reported", "message": "as expected"}


def _object(
    kind: str,
    name: str,
    revision: int,
    *,
    fields: int,
    namespace: str = "",
    more: RawObject | None = None,
    **parts: RawObject,
) -> RawObject:
    """An object with managed fields; ``more`` is what else its metadata has."""
    names: RawObject = {f"f:field-{index}": {} for index in range(fields)}
    entry = {
        "manager": "manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, **names}}, "f:spec": names},
    }
    metadata = {
        "uid": f"00000000-0000-0000-0000-{revision:012d}",
        "resourceVersion": str(revision),
        "generation": 1,
        "creationTimestamp": _TIME,
        "labels": {f"example.com/label-{index}": "value" for index in range(5)},
        "managedFields": [entry],
        **(more or {}),
    }
    return api_object(kind, name, namespace=namespace, metadata=metadata, **parts)
