"""Edits: what a question can change, a class each: its value, how it is read, and what it does to the cluster.

A new edit is a class, its entry in `EDITS`, and its part of the console's form
(`extender/faces/console/page/what-if-form.js`). Requests are written as flat fields, and judged by the rules for
ResourceClaims.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as numbers
from typing import Any, ClassVar, Final, Self

from allocator import (
    AllocationMode,
    Claim,
    ClaimSpec,
    DeviceRequest,
    Features,
    InvalidObjectError,
    Node,
    Problem,
    Request,
    parse_claim,
)
from allocator.model.validation import schema_problems, validate
from allocator.tools import JSON, Fields, dns_label, dns_subdomain, hint, label_key, shown
from extender.answers.explain.explanation import unknown_pod
from extender.cluster.consumers import without_pods
from extender.cluster.objects.budgets import Budget
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import CORDON, Pod, PodClaim
from extender.cluster.priority_classes import CLASS_NAME, ONLY_BUILT_IN, PriorityClasses
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import named_claims
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import check_expression
from extender.planning.kube_scheduler import DEFAULT_SCHEDULER
from extender.planning.planner import TIED, unbound, with_claims
from extender.planning.templates import HOSTNAME, OF_KUBERNETES, Blueprint, Supply, learned, with_new_node
from extender.plugins.preemption.evictions import budgets_covering
from extender.tools.user_error import suggestion


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that does not exist, and where it is known from what it brings."""

    name: str
    origin: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that leaves a drained node.

    Attributes:
        caution: why that is not as simple as it looks; empty if it is.
    """

    pod: Pod
    caution: str


@dataclass(slots=True)
class Fork:
    """A cluster while edits change it.

    Attributes:
        supply: what new nodes bring.
        now: the time at which pods are made, as the API writes it.
        schedulers: names of the schedulers that call the extender; empty: not known.
        priorities: what new pods get of their priority classes.
        snapshot: the cluster as it is after the edits so far.
        nodes: those that do not exist.
        new: pods that do not exist.
        edited: pods with edited requests.
        drained: nodes.
        leaving: pods that leave drained nodes, and are pending in the snapshot.
        staying: pods that stay on drained nodes, each with the reason.
        problems: what is wrong with edits.
    """

    supply: Supply
    features: Features
    now: str
    schedulers: Sequence[str]
    priorities: PriorityClasses = ONLY_BUILT_IN
    snapshot: Snapshot = field(init=False)
    nodes: list[NewNode] = field(default_factory=list)
    new: list[ObjectKey] = field(default_factory=list)
    edited: list[ObjectKey] = field(default_factory=list)
    drained: list[str] = field(default_factory=list)
    leaving: list[Leaving] = field(default_factory=list)
    staying: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshot = self.before

    @property
    def before(self) -> Snapshot:
        """The cluster as it is."""
        return self.supply.snapshot


class Edit(ABC):
    """One thing that is to be different.

    Attributes:
        field: the field of the question that lists such edits.
        words: what the field lists, for people.
        example: an entry of the field.
    """

    __slots__ = ()

    field: ClassVar[str]
    words: ClassVar[str]
    example: ClassVar[JSON]

    @classmethod
    @abstractmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """The edits of this kind in a question. What is wrong with them is noted in the fields, each with its path."""

    @property
    def number(self) -> int:
        """The number of pods or nodes that the edit is about."""
        return 1

    @property
    def names(self) -> Sequence[str]:
        """What may be named only once in all edits of this kind."""
        return ()

    @abstractmethod
    def apply(self, fork: Fork) -> None:
        """Change the fork as the edit says, or note there what is wrong with the edit."""


def refuse_unknown(fields: Fields, known: frozenset[str]) -> None:
    """Note each field that is not known."""
    for key in fields.data:
        if key not in known:
            fields.problem(key if len(key) < 64 else f"{key[:60]}...", f"unknown field{suggestion(key, known)}")


def read_count(fields: Fields) -> int:
    """``count``: how many there are to be, 1 if it is not given."""
    count = fields.integer("count", 1)
    if count < 1:
        fields.problem("count", f"{count} is not 1 or more")
    return max(1, count)


_MOST_HINTS: Final = 10
"""Similar names are looked for: each look compares with all nodes."""


@dataclass(frozen=True, slots=True)
class Drain(Edit):
    """Nodes that are drained, all at once: a claim that pods of several nodes share is free when all of them leave."""

    field: ClassVar[str] = "drain"
    words: ClassVar[str] = "nodes whose pods leave"
    example: ClassVar[JSON] = "gpu-west-2"

    nodes: tuple[str, ...]

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """The names of the nodes."""
        names = question.texts(cls.field)
        return (cls(names),) if names else ()

    @property
    def number(self) -> int:
        """The nodes."""
        return len(self.nodes)

    @property
    def names(self) -> Sequence[str]:
        """The nodes."""
        return self.nodes

    def apply(self, fork: Fork) -> None:
        """Taint the nodes, and make the pods there pending, except for those that belong to their node."""
        leaving: list[Leaving] = []
        for index, name in enumerate(self.nodes):
            node = fork.snapshot.nodes.get(name)
            if node is None:
                known = hint(name, fork.snapshot.nodes) if len(fork.problems) < _MOST_HINTS else ""
                fork.problems.append(Problem(f"{self.field}[{index}]", f"node {name} does not exist{known}"))
                continue
            taints = (CORDON, *(each for each in node.taints if each != CORDON))
            fork.snapshot = fork.snapshot.with_node(replace(node, taints=taints))
            for pod in fork.before.pods_on(name):
                kind = "" if pod.controller is None else pod.controller.kind
                if kind in TIED:
                    fork.staying.append((str(pod), TIED[kind].format(pod.controller)))
                elif not pod.is_finished:
                    leaving.append(Leaving(pod, _caution(pod, fork.before)))
        fork.snapshot = without_pods(fork.snapshot, [each.pod for each in leaving])
        for each in leaving:
            fork.snapshot = fork.snapshot.with_pod(replace(unbound(each.pod), created=fork.now, deleting=False))
        fork.drained += self.nodes
        fork.leaving += leaving


def _caution(pod: Pod, snapshot: Snapshot) -> str:
    """Why `kubectl drain` does not move a pod as simply as this; empty if it does."""
    if pod.controller is None:
        return "no controller makes it again: kubectl drain needs --force, and somebody has to create it again"
    budgets = (key for key in budgets_covering(pod, snapshot) if snapshot.objects(Budget)[key].allowed <= 0)
    blocked = next(iter(sorted(budgets)), None)
    return "" if blocked is None else f"PodDisruptionBudget {blocked} allows no eviction: kubectl drain waits"


_OF_NODES: Final = frozenset({"template", "like", "count", "labels"})


@dataclass(frozen=True, slots=True)
class AddNodes(Edit):
    """Nodes that do not exist: by a node template, or like a node of the cluster; one of the names is empty.

    Attributes:
        at: path of the edit in the question.
        count: of the nodes.
        labels: more labels than the template or the node has.
    """

    field: ClassVar[str] = "nodes"
    words: ClassVar[str] = "nodes that do not exist"
    example: ClassVar[JSON] = {"template": "falcon", "count": 2}

    at: str
    template: str
    like: str
    count: int
    labels: Mapping[str, str]

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """An edit for each entry."""
        return [cls._read(each) for each in question.children(cls.field)]

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        refuse_unknown(fields, _OF_NODES)
        template, like = fields.text("template"), fields.text("like")
        if bool(template) == bool(like):
            fields.problem("", "needs template (the name of a node template) or like (the name of a node), one of them")
        labels = fields.text_mapping("labels")
        for key in labels:
            if wrong := label_key(key):
                fields.problem(f"labels[{shown(key)}]", wrong)
        return cls(fields.path, template, like, read_count(fields), labels)

    @property
    def number(self) -> int:
        """The nodes."""
        return self.count

    def apply(self, fork: Fork) -> None:
        """Add the nodes, with what such nodes bring."""
        start = self._start(fork)
        if start is None:
            return
        source = self.template or self.like
        names = (name for number in numbers(1) if (name := f"new-{source}-{number}") not in fork.snapshot.nodes)
        for name, _ in zip(names, range(self.count), strict=False):
            labels = {**start.node.labels, **self.labels, HOSTNAME: name}
            node = replace(start, node=replace(start.node, name=name, labels=labels), created=fork.now)
            blueprints = self._blueprints(node.node, start, fork)
            fork.snapshot = with_new_node(node, blueprints, fork.snapshot)
            fork.nodes.append(NewNode(name, ", ".join(each.origin for each in blueprints)))

    def _blueprints(self, node: Node, start: NodeObject, fork: Fork) -> Sequence[Blueprint]:
        if self.template:
            return fork.supply.blueprints(node)
        model = learned([start.node], fork.before, fork.features)
        return [] if model is None else [model]

    def _start(self, fork: Fork) -> NodeObject | None:
        """The node that new ones are like, without what is only its own; None if there is none, which is noted."""
        if self.like:
            node = fork.before.nodes.get(self.like)
            if node is None:
                known = hint(self.like, fork.before.nodes)
                fork.problems.append(Problem(f"{self.at}.like", f"node {self.like} does not exist{known}"))
                return None
            return replace(node, taints=tuple(t for t in node.taints if not t.key.startswith(OF_KUBERNETES)))
        templates = {each.name: each for each in fork.supply.catalog.templates}
        if self.template not in templates:
            known = hint(self.template, templates) or (
                "" if templates else ": there are none (setting autoscaler.nodeTemplates)"
            )
            text = f"node template {self.template} does not exist{known}"
            fork.problems.append(Problem(f"{self.at}.template", text))
            return None
        return NodeObject(Node(self.template, templates[self.template].labels))


_OF_REQUESTS: Final = {
    "deviceClassName": "device_class",
    "count": "count",
    "allocationMode": "mode",
    "selectors": "selectors",
    "capacity": "capacity",
}
"""Values of a request to the fields of `DeviceRequest`. They have the names and rules of a ResourceClaim."""

VALUES: Final = frozenset(_OF_REQUESTS)

_UNNAMED: Final = "request"
_ANY_CLASS: Final = "any"
_INNER: Final = re.compile(r"spec\.devices\.requests\[(\d+)\]\.?(?:exactly\.?)?")
_SHORTER: Final = ((".cel.expression", ""), (".cel", ""), ("capacity.requests", "capacity"))
_WHOLE: Final = "spec.devices.requests"


def read_spec(requests: Sequence[Fields], path: str) -> ClaimSpec:
    """The spec of a claim with these requests; problems are noted in their fields.

    Args:
        requests: each with a name.
        path: of the list of them.
    """
    return _judged([(each.data.get("name"), each) for each in requests], path)


def read_values(fields: Fields) -> Mapping[str, object]:
    """The new values of an edit, by the names of `DeviceRequest`; problems are noted in the fields."""
    given = {**fields.data} if fields.has("deviceClassName") else {**fields.data, "deviceClassName": _ANY_CLASS}
    spec = _judged([(_UNNAMED, Fields(given, fields.path, fields.problems))], "")
    alternatives = [each for request in spec.requests for each in request.alternatives]
    if not alternatives:
        return {}
    (new,) = alternatives
    found = {field: getattr(new, field) for name, field in _OF_REQUESTS.items() if fields.has(name)}
    return found | ({"mode": AllocationMode.EXACT_COUNT} if "count" in found and "mode" not in found else {})


def written(request: DeviceRequest) -> Mapping[str, object]:
    """The values of a request as a question has them."""
    is_all = request.mode is AllocationMode.ALL
    return {
        "deviceClassName": request.device_class,
        **({"allocationMode": AllocationMode.ALL.value} if is_all else {"count": request.count}),
        "selectors": list(request.selectors),
        "capacity": {name: str(amount) for name, amount in request.capacity or ()},
    }


def _judged(requests: Sequence[tuple[object, Fields]], path: str) -> ClaimSpec:
    claim: dict[str, object] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": name, "exactly": _exactly(each)} for name, each in requests]}},
    }
    try:
        found: Sequence[Problem] = ()
        spec = parse_claim(claim).spec
    except InvalidObjectError as error:
        found, spec = error.problems, ClaimSpec()
    known = {each.path: each for each in (*found, *schema_problems(claim))}
    for each in validate(claim, check_expression):
        known.setdefault(each.path, each)
    for problem in known.values():
        inner = _INNER.match(problem.path)
        place = requests[int(inner[1])][1].path if inner else path
        rest = problem.path[inner.end() :] if inner else problem.path.removeprefix(_WHOLE)
        for long, short in _SHORTER:
            rest = rest.replace(long, short)
        of = requests[0][1] if requests else None
        if of is not None:
            of.problems.append(Problem(".".join(filter(None, (place, rest))), problem.message))
    return spec


def _exactly(fields: Fields) -> dict[str, Any]:
    """A request as a ResourceClaim has it. A value of a wrong type stays what it is, so that it is told."""
    if fields.data.get("count") == 0:  # an API server takes this as 1
        fields.problem("count", "0 is not 1 or more")
    found = {name: fields.data[name] for name in _OF_REQUESTS if fields.has(name)}
    selectors = found.get("selectors")
    if isinstance(selectors, list):
        found["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    if "capacity" in found:
        found["capacity"] = {"requests": found["capacity"]}
    return found


_OF_EDITS: Final = VALUES | {"pod", "claim", "request"}


@dataclass(frozen=True, slots=True)
class EditRequest(Edit):
    """A request of a pending pod, with other values.

    Attributes:
        at: path of the edit in the question.
        claim: the entry in the pod's ``spec.resourceClaims``; empty: the only one that has the request.
        request: name of a request, or of a subrequest as ``request/subrequest``.
        values: fields of `allocator.DeviceRequest` to the new values.
    """

    field: ClassVar[str] = "edits"
    words: ClassVar[str] = "requests of pending pods, with other values"
    example: ClassVar[JSON] = {"pod": "demo/eagle", "request": "gpu", "count": 2}

    at: str
    pod: ObjectKey
    claim: str
    request: str
    values: Mapping[str, object]

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """An edit for each entry."""
        return [cls._read(each) for each in question.children(cls.field)]

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        refuse_unknown(fields, _OF_EDITS)
        pod, request = _pod_key(fields), fields.required_text("request")
        if not any(fields.has(name) for name in VALUES):
            fields.problem("", f"changes nothing: give it {', '.join(sorted(VALUES))}")
        return cls(fields.path, pod, fields.text("claim"), request, read_values(fields))

    @property
    def names(self) -> Sequence[str]:
        """The request."""
        return (f"request {self.request} of pod {self.pod} {self.claim}".rstrip(),)

    def apply(self, fork: Fork) -> None:
        """Change the pod's claim; a claim that is not made from its template yet is made."""
        pod = fork.snapshot.pods.get(self.pod)
        if pod is None or not pod.is_pending:
            text = unknown_pod(self.pod, fork.snapshot.pods) if pod is None else f"pod {self.pod} is not pending"
            fork.problems.append(Problem(f"{self.at}.pod", text))
            return
        pod, snapshot = with_claims(pod, fork.snapshot)
        fork.snapshot = snapshot.with_pod(pod)
        found = self._edited(pod, fork.snapshot)
        if isinstance(found, Problem):
            fork.problems.append(found)
            return
        fork.snapshot = fork.snapshot.with_claim(found)
        fork.edited.append(self.pod)

    def _edited(self, pod: Pod, snapshot: Snapshot) -> ClaimObject | Problem:
        """The claim with the edited request; or what is wrong with the edit."""
        claims = dict(named_claims(pod, snapshot))
        if not claims:
            why = "asks by extended resources only" if pod.containers else "has no claim that is known"
            return Problem(f"{self.at}.pod", f"pod {pod} {why}: it has no requests to edit")
        if self.claim and self.claim not in claims:
            known = hint(self.claim, claims)
            return Problem(f"{self.at}.claim", f"pod {pod} has no entry {self.claim} in spec.resourceClaims{known}")
        having = {
            name: each
            for name, each in claims.items()
            if self.claim in ("", name) and any(label == self.request for label, _ in _requests(each.claim.spec))
        }
        if not having:
            labels = [label for each in claims.values() for label, _ in _requests(each.claim.spec)]
            known = hint(self.request, labels) or f": it has {', '.join(labels)}"
            return Problem(f"{self.at}.request", f"pod {pod} has no request {self.request}{known}")
        if len(having) > 1:
            text = f"claims {', '.join(having)} of pod {pod} have a request {self.request}: say which claim"
            return Problem(f"{self.at}.claim", text)
        ((name, found),) = having.items()
        if found.claim.allocation is not None:
            return Problem(f"{self.at}.request", f"claim {name} of pod {pod} is allocated already")
        spec = _with_values(found.claim.spec, self)
        return replace(found, claim=replace(found.claim, spec=spec))


def editable(pod: Pod, snapshot: Snapshot) -> Iterator[Mapping[str, object]]:
    """The requests of a pod as an edit names and writes them. The claims of the pod are in the snapshot."""
    for name, each in named_claims(pod, snapshot):
        if each.claim.allocation is None:
            for label, request in _requests(each.claim.spec):
                yield {"claim": name, "request": label, **written(request)}


def _requests(spec: ClaimSpec) -> Iterator[tuple[str, DeviceRequest]]:
    for request in spec.requests:
        for each in request.alternatives:
            yield request.label(each), each


def _with_values(spec: ClaimSpec, edit: EditRequest) -> ClaimSpec:
    def of_request(request: Request) -> Request:
        found = tuple(
            replace(each, **edit.values) if request.label(each) == edit.request else each  # type: ignore[arg-type]
            for each in request.alternatives
        )
        return replace(request, alternatives=found)

    return replace(spec, requests=tuple(map(of_request, spec.requests)))


def _pod_key(fields: Fields) -> ObjectKey:
    namespace, _, name = fields.required_text("pod").rpartition("/")
    return ObjectKey(namespace or "default", name)


_OF_PODS: Final = frozenset({"name", "namespace", "priority", CLASS_NAME, "count", "requests"})
_REQUEST: Final = VALUES | {"name"}
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class AddPods(Edit):
    """Equal pods that do not exist, each with a claim of its own.

    Attributes:
        at: path of the edit in the question.
        name: of the pod; of several pods, the beginning of the name.
        priority: None: what the priority class says.
        priority_class: its name; empty: the default.
        count: of the pods.
    """

    field: ClassVar[str] = "pods"
    words: ClassVar[str] = "pods that do not exist"
    example: ClassVar[JSON] = {
        "namespace": "demo",
        "name": "trainer",
        "requests": [{"name": "gpu", "deviceClassName": "gpu.example.com", "count": 2}],
    }

    at: str
    namespace: str
    name: str
    priority: int | None
    priority_class: str
    count: int
    spec: ClaimSpec

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """An edit for each entry."""
        return [cls._read(each) for each in question.children(cls.field)]

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        refuse_unknown(fields, _OF_PODS)
        name, namespace = fields.text("name") or "what-if", fields.text("namespace") or "default"
        for key, wrong in (("name", dns_subdomain(name)), ("namespace", dns_label(namespace))):
            if wrong:
                fields.problem(key, f"{shown(fields.text(key))} {wrong}")
        requests = fields.children("requests")
        for each in requests:
            refuse_unknown(each, _REQUEST)
        if not requests:
            fields.problem("requests", "is required: the devices that each of the pods asks for")
        priority, priority_class = fields.integer("priority"), fields.text(CLASS_NAME)
        if fields.has("priority") and priority_class:
            fields.problem("priority", f"{CLASS_NAME} says it: only one of them")
        if not -_INT32 <= priority < _INT32:
            fields.problem("priority", f"{priority} is not a whole number of 32 bits")
        spec = read_spec(requests, fields.at("requests"))
        given = priority if fields.has("priority") else None
        return cls(fields.path, namespace, name, given, priority_class, read_count(fields), spec)

    @property
    def number(self) -> int:
        """The pods."""
        return self.count

    @property
    def names(self) -> Sequence[str]:
        """The name in the question."""
        return (f"pod {self.namespace}/{self.name}",)

    def apply(self, fork: Fork) -> None:
        """Add the pods and their claims."""
        names = [self.name] if self.count == 1 else [f"{self.name}-{index + 1}" for index in range(self.count)]
        keys = [ObjectKey(self.namespace, name) for name in names]
        there = next((key for key in keys if key in fork.snapshot.pods or key in fork.snapshot.claims), None)
        if there is not None:
            fork.problems.append(Problem(f"{self.at}.name", f"pod or claim {there} exists already"))
            return
        of_class = fork.priorities.named(self.priority_class)
        if isinstance(of_class, str):
            fork.problems.append(Problem(f"{self.at}.{CLASS_NAME}", of_class))
            return
        scheduler = fork.schedulers[0] if fork.schedulers else DEFAULT_SCHEDULER
        for key in keys:
            fork.snapshot = fork.snapshot.with_claim(_claim(key, self.spec)).with_pod(
                Pod(
                    *key,
                    uid=f"what-if/{key}",
                    priority=of_class.value if self.priority is None else self.priority,
                    may_preempt=of_class.preempts or self.priority is not None,
                    phase="Pending",
                    scheduler_name=scheduler,
                    claims=(PodClaim(key.name, key.name),),
                    created=fork.now,
                )
            )
        fork.new += keys


def _claim(key: ObjectKey, spec: ClaimSpec) -> ClaimObject:
    claim = Claim(*key, uid=f"what-if/{key}/claim", spec=spec)
    return ClaimObject(claim, resource_version="", created="", raw=b"{}")


EDITS: Final[tuple[type[Edit], ...]] = (Drain, AddNodes, EditRequest, AddPods)
