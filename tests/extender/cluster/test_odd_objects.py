"""Objects with anything in any field: none keeps the others from being known, and what can't be read is listed."""

import copy
from typing import Any

import orjson
import pytest

from allocator.tools.jsontext import Verbatim
from extender.cluster.cluster_state import ClusterState
from extender.cluster.kinds import all_kinds
from extender.cluster.snapshot import Unreadable
from extender.cluster.snapshot_edit import read
from extender.kube.api import Event, EventType, RawObject, key_of
from extender.kube.encoding import dumps, loads
from extender.kube.resources import RESOURCES
from tests.allocator.test_parse_robustness import OBJECTS, places, put

CONTAINER = {
    "name": "c",
    "restartPolicy": "Always",
    "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": 1}},
}
POD = {
    "spec": {
        "nodeName": "n",
        "priority": 1,
        "schedulerName": "s",
        "resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "y"}],
        "initContainers": [CONTAINER],
        "containers": [CONTAINER],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "w"}}],
    },
    "status": {
        "phase": "Pending",
        "nominatedNodeName": "n",
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "z"}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "e",
            "requestMappings": [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}],
        },
    },
}
BUDGET = {
    "spec": {
        "selector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
        }
    },
    "status": {"disruptionsAllowed": 1, "disruptedPods": {"p": "2025-01-01T00:00:00Z"}},
}
NODE = {"status": {"allocatable": {"example.com/gpu": "8"}, "declaredFeatures": ["a"]}}
DEVICE_QUOTA = {
    "spec": {
        "limits": [
            {
                "name": "all",
                "deviceClassName": "gpu",
                "selectors": [{"cel": {"expression": "true"}}],
                "devices": 8,
                "capacity": {"memory": "160Gi"},
            }
        ],
        "cohort": "c",
        "borrowing": True,
    },
    "status": {"observedGeneration": 1, "limits": [{"name": "all", "used": {"devices": "1"}}]},
}
RESOURCE_CLASS = {
    "spec": {
        "resourceName": "example.com/gpu",
        "resourceSelector": [{"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["15G"]}]}],
    },
    "status": {"deviceClassName": "x", "conditions": [{"type": "Accepted", "status": "True"}]},
}
CONTEXT = {
    "spec": {"selectedNode": "n", "potentialNodes": ["n"]},
    "status": {"resourceClaims": [{"name": "c", "unsuitableNodes": ["n"]}]},
}
POD_GROUP = {
    "spec": {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
}
ADMISSION_CHECK = {
    "spec": {"controllerName": "dra-extender.dev/devices"},
    "status": {"conditions": [{"type": "Active", "status": "True", "observedGeneration": 1}]},
}
FLAVOR = {"spec": {"nodeLabels": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]}}
WORKLOAD = {
    "spec": {
        "active": True,
        "priority": 1,
        "priorityClassRef": {"kind": "PriorityClass", "name": "p"},
        "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}],
    },
    "status": {
        "conditions": [{"type": "QuotaReserved", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}],
        "admission": {"podSetAssignments": [{"name": "main", "count": 1, "flavors": {"gpus": "any"}}]},
        "admissionChecks": [
            {
                "name": "devices",
                "state": "Ready",
                "message": "m",
                "lastTransitionTime": "2025-01-01T00:00:00Z",
                "podSetUpdates": [{"name": "main", "nodeSelector": {"a": "b"}}],
            }
        ],
    },
}
PARTS: dict[str, dict[str, Any]] = {
    **{kind: parts for kind, (_, parts) in OBJECTS.items()},
    "Node": NODE,
    "Pod": POD,
    "PodDisruptionBudget": BUDGET,
    "DeviceQuota": DEVICE_QUOTA,
    "ResourceClass": RESOURCE_CLASS,
    "PodSchedulingContext": CONTEXT,
    "PodGroup": POD_GROUP,
    "AdmissionCheck": ADMISSION_CHECK,
    "ResourceFlavor": FLAVOR,
    "Workload": WORKLOAD,
}
METADATA = {
    "name": "x",
    "namespace": "y",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "2025-01-01T00:00:00Z",
    "deletionTimestamp": "2025-01-01T00:00:00Z",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "ownerReferences": [{"controller": True, "kind": "Pod", "name": "p", "uid": "o"}],
    "managedFields": [{"fieldsV1": {"f:spec": {}}}],
}
ODD: dict[str, object] = {
    "null": None,
    "nothing": "",
    "a flag": True,
    "a negative number": -1,
    "a fraction": 1.5,
    "more than 64 bits": 10**30,
    "more than a float": Verbatim("1e999"),
    "more digits than Python reads": Verbatim("9" * 5000),
    "digits": "9" * 5000,
    "half a character": "\ud800",
    "a long text": "x" * 100_000,
    "a quantity without end": "1e999999999",
    "an empty list": [],
    "an empty object": {},
    "a list of many": [1] * 2000,
    "an object in a list": [{"a": [{}]}],
    "an object with odd keys": {"": 1, "\ud800": 2, "a" * 2000: "b"},
    "1,100 levels": loads(b"[" * 1100 + b"]" * 1100),
    "1,100 levels of objects": loads(b'{"a":' * 1100 + b"1" + b"}" * 1100),
}


def whole(kind: str) -> RawObject:
    resource = RESOURCES[kind]
    metadata = METADATA if resource.namespaced else {k: v for k, v in METADATA.items() if k != "namespace"}
    return copy.deepcopy({"apiVersion": resource.api_versions()[0], "kind": kind, "metadata": metadata, **PARTS[kind]})


def test_all_kinds_are_here() -> None:
    assert PARTS.keys() == RESOURCES.keys()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", RESOURCES)
def test_what_cannot_be_read_is_a_problem_of_its_object_alone(kind: str, odd: str) -> None:
    resource, reader = RESOURCES[kind], all_kinds()[kind]
    other = whole(kind)
    other["metadata"] |= {"name": "other", "uid": "v", "resourceVersion": "6"}
    if kind == "ResourceSlice":
        other["spec"]["pool"] = {**other["spec"]["pool"], "name": "other"}
    # Each value in every fourth place: all places get several, and the test stays quick.
    for place in places(whole(kind))[[*ODD].index(odd) % 4 :: 4]:
        changed = whole(kind)
        put(changed, place, ODD[odd])
        obj = loads(dumps(changed))
        is_bad = isinstance(read(reader, obj), Unreadable)
        watched, listed = ClusterState(), ClusterState()
        watched.apply(Event(EventType.ADDED, resource, other))
        watched.apply(Event(EventType.MODIFIED, resource, obj))
        assert listed.replace(resource, [obj, other], 8)
        for state in (watched, listed):
            assert (list(state.snapshot.problems) == [(kind, key_of(obj))]) == is_bad, place
            assert all(len(orjson.dumps(problem.problem)) < 10_000 for problem in state.snapshot.problems.values())
            assert reader.find(state.snapshot, key_of(other)) is not None, place
        assert not listed.doubt_of(resource)
        watched.apply(Event(EventType.DELETED, resource, obj))
        assert not watched.snapshot.problems
