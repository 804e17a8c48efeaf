"""A verb as one entry: how a request is read, answered and encoded, and what documents, traces and logs say of it.

HTTP, OpenAPI, metrics and traces are made from these entries; see `extender.faces.http.endpoints.scheduler_verbs` and
`extender.autoscaler.verbs`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

from allocator.tools import JSON
from extender.cluster.objects.pods import Pod
from extender.framework.decision_log import Draft
from extender.framework.filter import FilterResult

_By = TypeVar("_By")
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")

Facts: TypeAlias = Mapping[str, str | int]
"""Attributes of a span, by OpenTelemetry's names where it has names."""


@dataclass(frozen=True, slots=True)
class Doc:
    """A verb's documentation. Every verb also answers ``{"Error": "..."}``, with status 200.

    Attributes:
        request, reply: examples.
        headers: name to meaning, of those that may be sent.
    """

    summary: str
    request: JSON
    reply: JSON
    headers: Mapping[str, str] = field(default_factory=dict)


EXAMPLE_POD: Final[JSON] = {
    "metadata": {"name": "plain", "namespace": "default", "uid": "5495d63f-aea3-4a67-8d6c-66a1f5e7a09f"},
    "spec": {"containers": [{"name": "main", "image": "example.com/app"}]},
}
"""A pod for documentation."""


def no_facts(_: object) -> Facts:
    """There is nothing to tell."""
    return {}


NO_ENTRY: Final[AbstractContextManager[None]] = nullcontext()
"""The decision log has no entry for a call."""


def not_logged(_by: object, _asked: object) -> AbstractContextManager[None]:
    """The decision log has no entry for the call."""
    return NO_ENTRY


def nothing_found(_draft: Draft, _asked: object, _answer: object) -> None:
    """The entry of the decision log says nothing of nodes."""


@dataclass(frozen=True, slots=True)
class Verb(Generic[_By, _Asked, _Answer]):
    """One verb.

    Attributes:
        name: in its path, messages, metrics and traces.
        decode: the request's body to its value. Raises WireError or InvalidObjectError.
        answer: the answer of the service to a request.
        encode: the answer, and what was asked, to the reply's body.
        is_small: a request is a few names.
        has_whole_objects: a request holds many whole Pods or Nodes, and is decoded in a thread even if it is short.
        asked, answered: what a trace tells of the request and of the answer.
        deciding: the entry of the decision log for a call, open until the call is answered; None: there is none.
        found: puts the answer into that entry.
    """

    name: str
    decode: Callable[[bytes], _Asked]
    answer: Callable[[_By, _Asked], Awaitable[_Answer]]
    encode: Callable[[_Asked, _Answer], bytes]
    doc: Doc
    is_small: bool = False
    has_whole_objects: bool = False
    asked: Callable[[_Asked], Facts] = no_facts
    answered: Callable[[_Answer], Facts] = no_facts
    deciding: Callable[[_By, _Asked], AbstractContextManager[Draft | None]] = not_logged
    found: Callable[[Draft, _Asked, _Answer], None] = nothing_found


def pod_facts(pod: Pod, node: str = "") -> Facts:
    """A pod, and the node that it goes to."""
    facts = {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name, "k8s.pod.uid": pod.uid}
    return {**facts, "k8s.node.name": node} if node else facts


def count_facts(what: str, **counts: int) -> Facts:
    """Count the nodes, or the pods, that were asked about, and what became of them."""
    return {f"dra_extender.{what}.{name}": count for name, count in counts.items()}


def filter_facts(result: FilterResult) -> Facts:
    """What became of nodes, and what it took to find out."""
    of_nodes = {"passed": result.passed, "failed": result.failed, "unresolvable": result.unresolvable}
    counts = count_facts("nodes", **{name: len(nodes) for name, nodes in of_nodes.items()})
    return {"dra_extender.steps": result.steps, **counts}
