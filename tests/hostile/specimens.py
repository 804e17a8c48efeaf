"""Valid objects of every watched kind, that between them have every field that is read.

All have names and pools of their own, so that no valid one changes what ordinary pods get.
"""

from collections.abc import Mapping
from typing import Any, Final

from allocator.model.optional import OPTIONAL_REQUESTS
from extender.cluster.objects.claims import ALLOCATION_MODE, PRIORITY, SPECIAL

Object = dict[str, Any]

DRIVER: Final = "hostile.example.com"
NAMESPACE: Final = "hostile"
_DRA: Final = "resource.k8s.io/v1"
_TIME: Final = "2026-01-01T00:00:00Z"
_ENTRY: Final = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": "v1",
    "time": _TIME,
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {".": {}}},
}


def specimens(name: str) -> Mapping[str, tuple[Object, ...]]:
    """Kind to valid objects of that name, always in the same order."""
    return {
        "Node": (node(name),),
        "ResourceSlice": (_devices_slice(name), _counters_slice(name), _old_slice(name)),
        "DeviceClass": (_device_class(name),),
        "DeviceTaintRule": (_taint_rule(name),),
        "Pod": (pod(name), _gated_pod(name)),
        "ResourceClaim": (claim(name), _old_claim(name)),
        "ResourceClaimTemplate": (_template(name),),
        "PodDisruptionBudget": (_budget(name),),
        "DeviceQuota": (_device_quota(name),),
        "ResourceClass": (_resource_class(name), _group_resource(name)),
        "PodGroup": (_pod_group(name),),
        "PodSchedulingContext": (_scheduling_context(name),),
        "AdmissionCheck": (_admission_check(name),),
        "ResourceFlavor": (_flavor(name),),
        "Workload": (_workload(name),),
    }


def _object(kind: str, name: str, api_version: str = _DRA, **fields: Any) -> Object:
    """An object with the metadata of its kind."""
    metadata: Object = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "labels": {"app": "hostile"},
        "annotations": {"note": "x"},
        "managedFields": [_ENTRY],
    }
    metadata |= fields.pop("metadata", {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def node(name: str) -> Object:
    """A node with extended resources."""
    taint = {"key": "k", "effect": "NoSchedule", "value": "v", "timeAdded": _TIME}
    spec = {"taints": [taint], "unschedulable": False}
    allocatable = {"cpu": "8", "pods": "110", "example.com/gpu": "2"}
    status = {"allocatable": allocatable, "capacity": allocatable, "declaredFeatures": ["Feature"]}
    metadata = {"labels": {"kubernetes.io/hostname": name, "zone": "a"}}
    return _object("Node", name, "v1", metadata=metadata, spec=spec, status=status)


def _pool(name: str) -> Object:
    return {"name": name, "generation": 1, "resourceSliceCount": 1}


def _selector() -> Object:
    requirement = {"key": "zone", "operator": "In", "values": ["a"]}
    field = {"key": "metadata.name", "operator": "In", "values": ["no-such-node"]}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement], "matchFields": [field]}]}


def _device() -> Object:
    policy = {
        "default": "1Gi",
        "validValues": ["1Gi", "2Gi"],
        "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"},
    }
    attributes = {
        "text": {"string": "a100"},
        "number": {"int": 3},
        "flag": {"bool": True},
        "version": {"version": "1.2.3"},
        "texts": {"strings": ["a", "b"]},
        "numbers": {"ints": [1, 2]},
        "flags": {"bools": [True]},
        "versions": {"versions": ["1.0.0"]},
    }
    return {
        "name": "device",
        "attributes": attributes,
        "capacity": {"memory": {"value": "8Gi", "requestPolicy": policy}},
        "consumesCounters": [
            {"counterSet": "set", "counters": {"parts": {"value": "1"}}, "compatibilityGroups": ["group"]}
        ],
        "taints": [{"key": "k", "effect": "NoSchedule", "value": "v", "timeAdded": _TIME}],
        "nodeName": "",
        "nodeSelector": _selector(),
        "allNodes": False,
        "allowMultipleAllocations": True,
        "bindsToNode": True,
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Failed"],
        "nodeAllocatableResources": {
            "cpu": {"mapping": {"capacityKey": "memory", "capacityMultiplier": "1"}},
            "memory": {"mapping": {"deviceMultiplier": "1"}, "overhead": {"perPod": "1", "perContainer": "1"}},
        },
    }


def _devices_slice(name: str) -> Object:
    spec = {
        "driver": DRIVER,
        "pool": _pool(name),
        "nodeName": "",
        "nodeSelector": None,
        "allNodes": False,
        "perDeviceNodeSelection": True,
        "partitionTypeAttribute": f"{DRIVER}/text",
        "devices": [_device()],
        "sharedCounters": None,
        "skipNodeOperations": ["NodePrepareResources"],
    }
    return _object("ResourceSlice", name, spec=spec)


def _counters_slice(name: str) -> Object:
    counters = [{"name": "set", "counters": {"parts": {"value": "7"}}}]
    spec = {"driver": DRIVER, "pool": _pool(name), "nodeSelector": _selector(), "sharedCounters": counters}
    return _object("ResourceSlice", name, spec=spec)


def _old_slice(name: str) -> Object:
    basic = {"attributes": {"text": {"string": "x"}}, "capacity": {"memory": {"value": "8Gi"}}}
    devices = [{"name": "device", "basic": basic}]
    spec = {"driver": DRIVER, "pool": _pool(name), "nodeName": "no-such-node", "devices": devices}
    return _object("ResourceSlice", name, "resource.k8s.io/v1beta1", spec=spec)


def _opaque() -> Object:
    return {"opaque": {"driver": DRIVER, "parameters": {"kind": "Config", "value": [1, {"a": None}]}}}


def _cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def _device_class(name: str) -> Object:
    selectors = [_cel(f'device.driver == "{DRIVER}"')]
    spec = {"selectors": selectors, "config": [_opaque()], "extendedResourceName": f"example.com/{name}"}
    return _object("DeviceClass", name, spec=spec)


def _taint_rule(name: str) -> Object:
    taint = {"key": "broken", "effect": "NoSchedule", "value": "v", "timeAdded": _TIME}
    selector = {"driver": DRIVER, "pool": "pool", "device": "device"}
    return _object("DeviceTaintRule", name, spec={"deviceSelector": selector, "taint": taint})


def _toleration() -> Object:
    return {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}


def _exactly() -> Object:
    return {
        "deviceClassName": "hostile",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [_cel('device.attributes["hostile.example.com"].number > 1')],
        "adminAccess": False,
        "tolerations": [_toleration()],
        "capacity": {"requests": {"memory": "1Gi"}},
        "derivedAttributes": [{"name": "derived", "expression": 'device.attributes["hostile.example.com"].text'}],
    }


def claim_spec() -> Object:
    """The spec of a claim, with every field."""
    constraint = {"requests": ["a"], "matchAttribute": f"{DRIVER}/text"}
    distinct = {"requests": ["b"], "distinctAttribute": f"{DRIVER}/number"}
    requests = [
        {"name": "a", "exactly": _exactly()},
        {"name": "b", "firstAvailable": [{"name": "first", **_exactly()}]},
    ]
    config = [{"requests": ["a"], **_opaque()}]
    return {"devices": {"requests": requests, "constraints": [constraint, distinct], "config": config}}


def claim(name: str) -> Object:
    """A claim that is allocated and reserved."""
    result = {
        "request": "a",
        "driver": DRIVER,
        "pool": name,
        "device": "device",
        "adminAccess": True,
        "tolerations": [_toleration()],
        "shareID": "00000000-0000-0000-0000-000000000000",
        "consumedCapacity": {"memory": "1Gi"},
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Failed"],
        "skipNodeOperations": ["NodePrepareResources"],
    }
    allocation = {
        "devices": {"results": [result], "config": [{"source": "FromClaim", "requests": ["a"], **_opaque()}]},
        "nodeSelector": _selector(),
        "allocationTimestamp": _TIME,
    }
    condition = {"type": "Ready", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": _TIME}
    device = {"driver": DRIVER, "pool": name, "device": "device", "conditions": [condition], "data": {"a": 1}}
    status = {
        "allocation": allocation,
        "reservedFor": [{"apiGroup": "", "resource": "pods", "name": "p", "uid": "u"}],
        "devices": [device],
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    metadata = {
        "namespace": NAMESPACE,
        "annotations": {
            SPECIAL: "true",
            "resource.kubernetes.io/pod-claim-name": "gpu",
            OPTIONAL_REQUESTS: "a",
            ALLOCATION_MODE: "Immediate",
            PRIORITY: "1",
        },
        "ownerReferences": [owner],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    return _object("ResourceClaim", name, metadata=metadata, spec=claim_spec(), status=status)


def _old_claim(name: str) -> Object:
    spec = {"devices": {"requests": [{"name": "a", **_exactly()}]}}
    return _object("ResourceClaim", name, "resource.k8s.io/v1beta1", metadata={"namespace": NAMESPACE}, spec=spec)


def _template(name: str) -> Object:
    spec = {"metadata": {"labels": {"a": "b"}, "annotations": {OPTIONAL_REQUESTS: "a"}}, "spec": claim_spec()}
    return _object("ResourceClaimTemplate", name, metadata={"namespace": NAMESPACE}, spec=spec)


def _container(**more: Any) -> Object:
    amounts = {"cpu": "1", "example.com/gpu": "1"}
    resources = {"requests": amounts, "limits": amounts, "claims": [{"name": "gpu"}]}
    ports = [{"containerPort": 80, "hostPort": 8080}]
    return {"name": "main", "image": "i", "resources": resources, "ports": ports, **more}


def pod(name: str) -> Object:
    """A pod with claims, extended resources, volumes and everything that an estimate looks at."""
    between = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    preferred = {"requiredDuringSchedulingIgnoredDuringExecution": _selector()}
    spec = {
        "nodeName": "no-such-node",
        "priority": 5,
        "preemptionPolicy": "Never",
        "schedulerName": "s",
        "resourceClaims": [
            {"name": "gpu", "resourceClaimName": "some-claim"},
            {"name": "made", "resourceClaimTemplateName": "some-template"},
        ],
        "containers": [_container()],
        "initContainers": [_container(restartPolicy="Always")],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
        ],
        "nodeSelector": {"zone": "a"},
        "affinity": {"nodeAffinity": preferred, "podAffinity": between, "podAntiAffinity": between},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "tolerations": [_toleration()],
        "overhead": {"cpu": "1"},
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
        "schedulingGroup": {"podGroupName": "group"},
    }
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"}
    node_resources = {
        "resourceClaimName": "made-claim",
        "containers": ["main"],
        "mapping": [{"name": "cpu", "quantity": "2"}],
        "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "1Mi"}],
    }
    status = {
        "phase": "Pending",
        "nominatedNodeName": "no-such-node",
        "startTime": "2026-01-01T00:00:00Z",
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "made-claim"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "special", "requestMappings": [mapping]},
        "nodeAllocatableResourceClaimStatuses": [node_resources],
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}],
    }
    metadata = {"namespace": NAMESPACE}
    return _object("Pod", name, "v1", metadata=metadata, spec=spec, status=status)


def _gated_pod(name: str) -> Object:
    """A pod that its gate keeps from all schedulers: such a pod has no node."""
    spec = {"containers": [_container()], "schedulingGates": [{"name": "example.com/wait"}]}
    return _object("Pod", name, "v1", metadata={"namespace": NAMESPACE}, spec=spec)


def _budget(name: str) -> Object:
    expressions = [{"key": "app", "operator": "In", "values": ["hostile"]}]
    selector = {"matchLabels": {"app": "hostile"}, "matchExpressions": expressions}
    status = {"disruptionsAllowed": 1, "disruptedPods": {"p": _TIME}}
    fields: Object = {"metadata": {"namespace": NAMESPACE}, "spec": {"selector": selector}, "status": status}
    return _object("PodDisruptionBudget", name, "policy/v1", **fields)


def _device_quota(name: str) -> Object:
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    limits: list[Object] = [
        {"name": "all", "deviceClassName": "gpu", "devices": 8, "capacity": {"memory": "160Gi"}},
        {"name": "some", "selectors": selectors, "capacity": {"gpu.example.com/memory": "80Gi"}},
    ]
    used = [{"name": "all", "hard": {"devices": "8"}, "used": {"devices": "1"}, "borrowed": {}}]
    spec = {"limits": limits, "cohort": "hostile", "borrowing": True}
    metadata = {"namespace": NAMESPACE, "generation": 1}
    status = {"limits": used, "observedGeneration": 1}
    return _object("DeviceQuota", name, "dra-extender.dev/v1alpha1", metadata=metadata, spec=spec, status=status)


def _resource_class(name: str) -> Object:
    requirements = [
        {"key": "memory", "operator": "Gt", "values": ["40Gi"]},
        {"key": "gpu.example.com/model", "operator": "NotIn", "values": ["a100", "true", "1.2.3"]},
        {"key": "ecc", "operator": "Exists"},
    ]
    spec = {"resourceName": "example.com/gpu", "resourceSelector": [{"matchExpressions": requirements}]}
    status = {"deviceClassName": name, "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted"}]}
    version = "dra-extender.dev/v1alpha1"
    return _object("ResourceClass", name, version, metadata={"generation": 1}, spec=spec, status=status)


def _group_resource(name: str) -> Object:
    spec = {"members": {"gpu": 2, "nic": 1}, "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    return _object("ResourceClass", name, "dra-extender.dev/v1alpha1", metadata={"generation": 1}, spec=spec)


def _scheduling_context(name: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
    metadata = {"namespace": NAMESPACE, "ownerReferences": [owner]}
    spec = {"selectedNode": "n", "potentialNodes": ["n", "m"]}
    status = {"resourceClaims": [{"name": "gpu", "unsuitableNodes": ["m"]}]}
    version = "dra-extender.dev/v1alpha1"
    return _object("PodSchedulingContext", name, version, metadata=metadata, spec=spec, status=status)


_KUEUE: Final = "kueue.x-k8s.io/v1beta2"


def _admission_check(name: str) -> Object:
    spec = {"controllerName": "hostile.example.com/check"}
    active = {"type": "Active", "status": "True", "observedGeneration": 1}
    return _object("AdmissionCheck", name, _KUEUE, spec=spec, status={"conditions": [active]})


def _flavor(name: str) -> Object:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    return _object("ResourceFlavor", name, _KUEUE, spec={"nodeLabels": {"zone": "a"}, "tolerations": [toleration]})


def _workload(name: str) -> Object:
    """It has quota, so that its pods are read."""
    template = {"metadata": {"labels": {"app": "hostile"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {
        "active": True,
        "priority": 10,
        "priorityClassRef": {"kind": "PriorityClass", "name": "high"},
        "podSets": [{"name": "main", "count": 2, "template": template}],
    }
    check = {
        "name": name,
        "state": "Ready",
        "message": "x",
        "lastTransitionTime": _TIME,
        "podSetUpdates": [{"name": "main", "labels": {"app": "hostile"}}],
    }
    status = {
        "conditions": [{"type": "QuotaReserved", "status": "True", "lastTransitionTime": _TIME}],
        "admission": {"podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": name}}]},
        "admissionChecks": [check],
    }
    metadata = {"namespace": NAMESPACE, "deletionTimestamp": None}
    return _object("Workload", name, _KUEUE, metadata=metadata, spec=spec, status=status)


def _pod_group(name: str) -> Object:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "priority": 10,
        "preemptionPolicy": "Never",
        "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]},
    }
    return _object("PodGroup", name, "scheduling.k8s.io/v1beta1", metadata={"namespace": NAMESPACE}, spec=spec)
