"""What the verbs look like to a reader of ``/openapi.json``: one request and one reply each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from allocator import JSON

_POD: JSON = {
    "metadata": {"name": "plain", "namespace": "default", "uid": "5495d63f-aea3-4a67-8d6c-66a1f5e7a09f"},
    "spec": {"containers": [{"name": "main", "image": "example.com/app"}]},
}


@dataclass(frozen=True, slots=True)
class VerbDoc:
    """A verb's documentation. Every verb also answers ``{"Error": "..."}``, with status 200.

    Attributes:
        headers: name to meaning, of those that may be sent.
        is_small: a request is a few names.
    """

    summary: str
    request: JSON
    reply: JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    is_small: bool = False

    def as_openapi(self) -> dict[str, object]:
        """The parts of an OpenAPI operation that FastAPI can't know: the body is decoded by `extender.verbs.wire`."""
        ok = {"description": 'The answer, or {"Error": "..."}.', "content": _content(self.reply)}
        return {
            "parameters": [
                {"name": name, "in": "header", "description": meaning, "schema": {"type": "string"}}
                for name, meaning in self.headers.items()
            ],
            "requestBody": {"required": True, "content": _content(self.request)},
            "responses": {"200": ok},
        }


def _content(example: JSON) -> Mapping[str, object]:
    return {"application/json": {"schema": {"title": "extender/v1"}, "example": example}}


_ASKED: JSON = {"Pod": _POD, "Nodes": None, "NodeNames": ["node-0", "node-1"]}
_VICTIMS: JSON = {"node-0": {"Pods": [{"UID": "b6aaf8a2-b536-4f56-b606-dcc6d0957570"}], "NumPDBViolations": 0}}

VERBS: Mapping[str, VerbDoc] = {
    "filter": VerbDoc(
        "Which of these nodes can have the pod, as far as its devices go? (ExtenderArgs)",
        _ASKED,
        {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "NodeNames": ["node-0", "node-1"]},
    ),
    "prioritize": VerbDoc(
        "How well does each node suit, from 0 to 10? (ExtenderArgs)",
        _ASKED,
        [{"Host": "node-0", "Score": 0}, {"Host": "node-1", "Score": 0}],
    ),
    "preempt": VerbDoc(
        "Whom to evict for the pod, per node: nodes that would not help are left out. (ExtenderPreemptionArgs)",
        {"Pod": _POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": _VICTIMS},
        {"NodeNameToMetaVictims": _VICTIMS},
    ),
    "bind": VerbDoc(
        "Allocate and reserve the pod's claims, then bind it; may be repeated. (ExtenderBindingArgs)",
        {
            "PodName": "plain",
            "PodNamespace": "default",
            "PodUID": "5495d63f-aea3-4a67-8d6c-66a1f5e7a09f",
            "Node": "node-0",
        },
        {},
        is_small=True,
    ),
}

_SESSION: Mapping[str, str] = {"session": "The id that start gave; without it the latest snapshot answers."}
_TEMPLATE: JSON = {
    "metadata": {"name": "general-template", "labels": {"example.com/machine": "general"}},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}

AUTOSCALER_VERBS: Mapping[str, VerbDoc] = {
    "start": VerbDoc(
        "Begin a session on a snapshot of the cluster. Later calls carry its id as the header session.",
        {},
        {"Session": "lk6RqTZ8tR0BzQ8FmXyB4oTnJ1yZ0m7bYwG2cUeVh5s"},
        is_small=True,
    ),
    "filter": VerbDoc(
        "Which of these nodes, real or not, can have the pod? (ExtenderArgs)",
        {"Pod": _POD, "Nodes": {"items": [_TEMPLATE]}, "NodeNames": None},
        {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Nodes": {"items": [_TEMPLATE]}},
        _SESSION,
    ),
    "prioritize": VerbDoc(
        "How well does each node, real or not, suit, from 0 to 10? (ExtenderArgs)",
        {"Pod": _POD, "Nodes": {"items": [_TEMPLATE]}, "NodeNames": None},
        [{"Host": "general-template", "Score": 0}],
        _SESSION,
    ),
    "NodeSelected": VerbDoc(
        "Book a pod on a node: it holds its devices there for the rest of the session.",
        {"Pod": _POD, "Node": _TEMPLATE},
        {},
        {"session": "The id that start gave; required."},
    ),
    "NodeReady": VerbDoc(
        "Are the slices of a new node all there?",
        {"NodeName": "not-there"},
        {"Ready": False, "Reason": "node not yet known"},
        _SESSION,
        is_small=True,
    ),
    "estimate": VerbDoc(
        "Which nodes of which groups to add for pending pods?",
        {
            "Pods": {"items": [_POD]},
            "NodeGroups": [{"Name": "general", "Template": _TEMPLATE, "Limit": 10, "Priority": 0}],
            "Expander": "least-waste",
        },
        {
            "NodeGroups": [{"Name": "general", "Add": 1, "Nodes": [{"Pods": ["default/plain"]}], "Devices": ""}],
            "FailedPods": {},
        },
        _SESSION,
    ),
}
