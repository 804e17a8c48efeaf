"""A question "what if", as a value: what is to be different."""

from collections.abc import Mapping
from dataclasses import dataclass

from allocator import ClaimSpec, Problem
from extender.kube.api import ObjectKey


class QuestionError(Exception):
    """A question that cannot be asked; each problem has the path of its field.

    Attributes:
        problems: all that were found.
    """

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


@dataclass(frozen=True, slots=True)
class RequestEdit:
    """A request of a pending pod, with other values.

    Attributes:
        at: path of the edit in the question.
        claim: the entry in the pod's ``spec.resourceClaims``; empty: the only one that has the request.
        request: name of a request, or of a subrequest as ``request/subrequest``.
        values: fields of `allocator.DeviceRequest` to the new values.
    """

    at: str
    pod: ObjectKey
    claim: str
    request: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NewPods:
    """Equal pods that do not exist, each with a claim of its own.

    Attributes:
        name: of the pod; of several pods, the beginning of the name.
    """

    at: str
    namespace: str
    name: str
    priority: int
    count: int
    spec: ClaimSpec


@dataclass(frozen=True, slots=True)
class NewNodes:
    """Nodes that do not exist: by a node template, or like a node of the cluster; one of the names is empty.

    Attributes:
        labels: more labels than the template or the node has.
    """

    at: str
    template: str
    like: str
    count: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be different from the cluster as it is.

    Attributes:
        drained: nodes that are cordoned, and whose pods leave.
    """

    edits: tuple[RequestEdit, ...] = ()
    pods: tuple[NewPods, ...] = ()
    nodes: tuple[NewNodes, ...] = ()
    drained: tuple[str, ...] = ()
