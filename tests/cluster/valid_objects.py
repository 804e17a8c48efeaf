"""Valid objects of every kind that we read, with the fields that we read."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

Object = dict[str, Any]

DRIVER: Final = "gpu.example.com"
_DRA: Final = "resource.k8s.io/v1"
_OURS: Final = "dra-extender.dev/v1alpha1"


def valid_objects(namespace: str) -> Mapping[str, Sequence[Object]]:
    """By kind; objects of kinds with namespaces are in that one."""
    return {
        "Node": (_node(),),
        "Pod": (_pod(namespace), _asking_pod(namespace), _placed_pod(namespace)),
        "ResourceClaim": (_claim(namespace), _first_available(namespace), _old_claim(namespace)),
        "ResourceClaimTemplate": (_template(namespace),),
        "ResourceSlice": (_slice(), _counters(), _old_slice()),
        "DeviceClass": (_device_class(),),
        "DeviceTaintRule": (_taint_rule(),),
        "PodDisruptionBudget": (_budget(namespace),),
        "ResourceQuota": (_quota(namespace), _scoped_quota(namespace)),
        "Namespace": (_object("v1", "Namespace", {"labels": {"a": "b"}}),),
        "DeviceQuota": (_device_quota(namespace),),
        "ResourceClass": (_resource_class(), _group_resource()),
        "PodSchedulingContext": (_context(namespace),),
        "PodGroup": (_pod_group(namespace),),
    }


def _object(version: str, kind: str, metadata: Object | None = None, **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "tried", **(metadata or {})}, **fields}


def _in(namespace: str, **more: Any) -> Object:
    return {"namespace": namespace, "labels": {"app": "a"}, "annotations": {"example.com/note": "Any text"}, **more}


def _node() -> Object:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"}
    taints = [{"key": "example.com/gpu", "value": "a100", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    labels = {"topology.kubernetes.io/zone": "a", "kubernetes.io/hostname": "tried"}
    status = {"allocatable": amounts, "capacity": dict(amounts)}
    return _object("v1", "Node", {"labels": labels}, spec={"unschedulable": False, "taints": taints}, status=status)


def _container(name: str, **more: Any) -> Object:
    limits = {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}
    requests = {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "1"}
    resources = {"limits": limits, "requests": requests, "claims": [{"name": "gpu"}]}
    return {"name": name, "image": "i", "resources": resources, **more}


def _pod(namespace: str) -> Object:
    spec = {
        "containers": [_container("main", ports=[{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}])],
        "initContainers": [_container("side", restartPolicy="Always")],
        "resourceClaims": [
            {"name": "gpu", "resourceClaimName": "some-claim"},
            {"name": "made", "resourceClaimTemplateName": "some-template"},
        ],
        "schedulerName": "dra-scheduler",
        "preemptionPolicy": "PreemptLowerPriority",
        "restartPolicy": "Never",
    }
    return _object("v1", "Pod", _in(namespace), spec=spec)


def _asking_pod(namespace: str) -> Object:
    """A pod with extended resources in limits alone, resources of the whole pod, gates and volumes."""
    resources = {"limits": {"example.com/gpu": "2", "cpu": "2", "hugepages-2Mi": "4Mi"}}
    spec = {
        "containers": [{"name": "main", "image": "i", "resources": resources}],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "2Gi"}},
        "schedulingGates": [{"name": "example.com/wait"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "priorityClassName": "system-node-critical",
    }
    return _object("v1", "Pod", _in(namespace), spec=spec)


def _placed_pod(namespace: str) -> Object:
    """A pod with a say in where it runs."""
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "topology.kubernetes.io/zone"}
    expressions = [
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "cores", "operator": "Gt", "values": ["4"]},
        {"key": "gpu", "operator": "Exists"},
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    preference = {"weight": 5, "preference": {"matchExpressions": [{"key": "ssd", "operator": "DoesNotExist"}]}}
    between = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": dict(term)}],
    }
    spread = {
        "maxSkew": 1,
        "minDomains": 2,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]},
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore",
    }
    spec = {
        "containers": [{"name": "main", "image": "i"}],
        "nodeSelector": {"example.com/gpu": "a100"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions, "matchFields": fields}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [preference],
            },
            "podAffinity": between,
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "namespaces": ["other"]}]},
        },
        "topologySpreadConstraints": [spread],
        "tolerations": [
            {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5},
            {"operator": "Exists"},
        ],
    }
    return _object("v1", "Pod", _in(namespace), spec=spec)


def _cel(expression: str) -> Object:
    return {"cel": {"expression": expression}}


def _exactly() -> Object:
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": [_cel(f'device.attributes["{DRIVER}"].model == "a100"')],
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}],
        "capacity": {"requests": {"memory": "1Gi"}},
    }


def _opaque() -> Object:
    return {"opaque": {"driver": DRIVER, "parameters": {"kind": "Config", "value": [1, {"a": None}]}}}


def _claim_spec() -> Object:
    requests = [{"name": "a", "exactly": _exactly()}, {"name": "b", "exactly": {"deviceClassName": "nic"}}]
    constraints = [
        {"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/numa"},
        {"requests": ["a"], "distinctAttribute": f"{DRIVER}/slot"},
    ]
    config = [{"requests": ["a"], **_opaque()}]
    return {"devices": {"requests": requests, "constraints": constraints, "config": config}}


def _claim(namespace: str) -> Object:
    return _object(_DRA, "ResourceClaim", _in(namespace), spec=_claim_spec())


def _first_available(namespace: str) -> Object:
    ways = [{"name": "large", **_exactly()}, {"name": "small", "deviceClassName": "gpu", "count": 1}]
    every = {"name": "all", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}}
    requests = [{"name": "a", "firstAvailable": ways}, every]
    constraints = [{"requests": ["a/large"], "matchAttribute": f"{DRIVER}/numa"}]
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    return _object(_DRA, "ResourceClaim", _in(namespace), spec=spec)


def _old_claim(namespace: str) -> Object:
    spec = {"devices": {"requests": [{"name": "a", **_exactly()}]}}
    return _object("resource.k8s.io/v1beta1", "ResourceClaim", _in(namespace), spec=spec)


def _template(namespace: str) -> Object:
    spec = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": _claim_spec()}
    return _object(_DRA, "ResourceClaimTemplate", _in(namespace), spec=spec)


def _selector() -> Object:
    requirement = {"key": "zone", "operator": "In", "values": ["a"]}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


def _pool() -> Object:
    return {"name": "pool", "generation": 1, "resourceSliceCount": 2}


def _device(name: str) -> Object:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
    choice = {"default": "1", "validValues": ["1", "2"]}
    return {
        "name": name,
        "attributes": {
            "model": {"string": "a100"},
            "slot": {"int": 3},
            "ecc": {"bool": True},
            "driverVersion": {"version": "1.2.3"},
            "resource.kubernetes.io/numaNode": {"int": 0},
        },
        "capacity": {
            "memory": {"value": "8Gi", "requestPolicy": policy},
            "cores": {"value": "2", "requestPolicy": choice},
        },
        "consumesCounters": [{"counterSet": "set", "counters": {"parts": {"value": "1"}}}],
        "taints": [{"key": "k", "effect": "NoSchedule", "value": "v"}],
        "allowMultipleAllocations": True,
        "bindsToNode": True,
        "bindingConditions": ["example.com/Ready"],
        "bindingFailureConditions": ["example.com/Failed"],
    }


def _slice() -> Object:
    spec = {"driver": DRIVER, "pool": _pool(), "nodeName": "n", "devices": [_device("gpu-0"), {"name": "gpu-1"}]}
    return _object(_DRA, "ResourceSlice", spec=spec)


def _counters() -> Object:
    counters = [{"name": "set", "counters": {"parts": {"value": "7"}}}]
    spec = {"driver": DRIVER, "pool": _pool(), "nodeSelector": _selector(), "sharedCounters": counters}
    return _object(_DRA, "ResourceSlice", spec=spec)


def _old_slice() -> Object:
    basic = {"attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "8Gi"}}}
    spec = {"driver": DRIVER, "pool": _pool(), "allNodes": True, "devices": [{"name": "gpu-0", "basic": basic}]}
    return _object("resource.k8s.io/v1beta1", "ResourceSlice", spec=spec)


def _device_class() -> Object:
    spec = {
        "selectors": [_cel(f'device.driver == "{DRIVER}"')],
        "config": [_opaque()],
        "extendedResourceName": "example.com/tried",
    }
    return _object(_DRA, "DeviceClass", spec=spec)


def _taint_rule() -> Object:
    taint = {"key": "broken", "effect": "NoSchedule", "value": "v"}
    spec = {"deviceSelector": {"driver": DRIVER, "pool": "pool", "device": "gpu-0"}, "taint": taint}
    return _object("resource.k8s.io/v1beta2", "DeviceTaintRule", spec=spec)


def _budget(namespace: str) -> Object:
    expressions = [{"key": "app", "operator": "In", "values": ["a"]}]
    spec = {"selector": {"matchLabels": {"app": "a"}, "matchExpressions": expressions}, "minAvailable": 1}
    return _object("policy/v1", "PodDisruptionBudget", _in(namespace), spec=spec)


def _quota(namespace: str) -> Object:
    hard = {
        "pods": "4",
        "requests.cpu": "10",
        "requests.example.com/gpu": "4",
        "gpu.deviceclass.resource.k8s.io/devices": "4",
        "count/resourceclaims.resource.k8s.io": "8",
        "requests.deviceclass.resource.kubernetes.io/gpu": "2",
    }
    return _object("v1", "ResourceQuota", _in(namespace), spec={"hard": hard})


def _scoped_quota(namespace: str) -> Object:
    expressions = [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
        {"scopeName": "NotBestEffort", "operator": "Exists"},
    ]
    spec = {
        "hard": {"pods": "4", "requests.cpu": "1"},
        "scopeSelector": {"matchExpressions": expressions},
        "scopes": ["NotTerminating"],
    }
    return _object("v1", "ResourceQuota", _in(namespace), spec=spec)


def _device_quota(namespace: str) -> Object:
    limits = [
        {"name": "all", "deviceClassName": "gpu", "devices": 8, "capacity": {"memory": "160Gi"}},
        {"name": "some", "selectors": [_cel(f'device.driver == "{DRIVER}"')], "capacity": {f"{DRIVER}/memory": "80Gi"}},
    ]
    return _object(_OURS, "DeviceQuota", _in(namespace), spec={"limits": limits, "cohort": "c", "borrowing": True})


def _resource_class() -> Object:
    requirements = [
        {"key": "memory", "operator": "Gt", "values": ["40Gi"]},
        {"key": f"{DRIVER}/model", "operator": "NotIn", "values": ["a100", "true", "1.2.3"]},
        {"key": "ecc", "operator": "Exists"},
    ]
    spec = {"resourceName": "example.com/gpu", "resourceSelector": [{"matchExpressions": requirements}]}
    return _object(_OURS, "ResourceClass", spec=spec)


def _group_resource() -> Object:
    spec = {"members": {"gpu": 2, "nic": 1}, "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    return _object(_OURS, "ResourceClass", spec=spec)


def _context(namespace: str) -> Object:
    spec = {"selectedNode": "n", "potentialNodes": ["n", "m"]}
    return _object(_OURS, "PodSchedulingContext", _in(namespace), spec=spec)


def _pod_group(namespace: str) -> Object:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "topology.kubernetes.io/zone"}]},
    }
    return _object("scheduling.k8s.io/v1beta1", "PodGroup", _in(namespace), spec=spec)
