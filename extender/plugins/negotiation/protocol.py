"""The protocol between dra-extender and controllers: who answers, and three questions with answers as values and JSON.

docs/reference/controllers.md has the JSON. Both sides use this module: the service, and the kit for controllers.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from allocator import AllocationResult, Problem, Reason
from allocator.model.json import allocation_or_none
from allocator.tools import JSON, NO_TEXT, Fields, Printable, printable, shown

UNSUITABLE_NODES: Final = "unsuitableNodes"
ALLOCATE: Final = "allocate"
DEALLOCATE: Final = "deallocate"
"""The questions; each is also the last part of its URL."""

LONGEST_REASON: Final = 200
"""Characters of a reason; the rest is cut."""

_NAME_ALONE: Final = {"name"}

Object: TypeAlias = dict[str, Any]


class ProtocolError(Exception):
    """A message that is not as the protocol says; the text has each field with its problem, and is printable."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class NodeName:
    """A node, with those of its labels that the settings of the controller name."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """A claim, and what it asks of the controller.

    Attributes:
        attempt: of the allocation or release; 0 where nothing is to be allocated or released.
        requests: the negotiated requests: ``name``, and the fields of ``exactly`` in the claim.
        config: configuration of class and claim, in the form of ``status.allocation.devices.config``.
        parameters: objects that class and claim name: ``source`` and ``requests`` as in ``config``, and ``object``.
    """

    namespace: str
    name: str
    uid: str
    attempt: int = 0
    requests: tuple[Mapping[str, JSON], ...] = ()
    config: tuple[Mapping[str, JSON], ...] = ()
    parameters: tuple[Mapping[str, JSON], ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NegotiatedQuestion:
    """A question to a controller.

    Attributes:
        kind: `UNSUITABLE_NODES`, `ALLOCATE` or `DEALLOCATE`.
        claims: of one pod.
        pod: that the claims are for; None in `DEALLOCATE`.
        nodes: the nodes to judge; in `ALLOCATE` the one node.
        simulation: nothing may be allocated. The answer says what would be.
        held: in a simulation, the claims that it has allocated before, each with its node.
    """

    kind: str
    claims: tuple[ClaimAsk, ...]
    pod: PodName | None = None
    nodes: tuple[NodeName, ...] = ()
    simulation: bool = False
    held: tuple[tuple[ClaimAsk, NodeName], ...] = ()


@dataclass(frozen=True, slots=True)
class NegotiatedAnswer:
    """The answer of a controller.

    Attributes:
        version: changes when earlier answers do not hold any more; empty: not told.
        unsuitable: by uid of the claim, the nodes that do not suit, with the reasons.
        allocations: by uid of the claim.
        refused: why nothing is allocated; empty if it is.
        overtaken: to `DEALLOCATE`, by uid of each claim whose attempt the controller has seen overtaken: the highest
            attempt that it knows. It has deallocated nothing for this claim.
    """

    version: str = ""
    unsuitable: Mapping[str, Mapping[str, Printable]] = field(default_factory=dict)
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    refused: Printable = NO_TEXT
    overtaken: Mapping[str, int] = field(default_factory=dict)


# --- questions ----------------------------------------------------------------------------------------------


def question_to_json(question: NegotiatedQuestion) -> Object:
    """The JSON of a question."""
    found: Object = {"claims": [ask_to_json(each) for each in question.claims]}
    if question.pod is not None:
        pod = question.pod
        found["pod"] = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    if question.kind != DEALLOCATE:
        found["nodes"] = [node_to_json(each) for each in question.nodes]
        found["simulation"] = question.simulation
    if question.held:
        found["held"] = [{"claim": ask_to_json(claim), "node": node_to_json(node)} for claim, node in question.held]
    return found


def question_of(kind: str, obj: object) -> NegotiatedQuestion:
    """The question in a JSON value; raises ProtocolError with all problems."""
    top = _fields(obj)
    claims = tuple(_read_ask(each) for each in top.children("claims"))
    pod = top.child_or_none("pod")
    found = NegotiatedQuestion(
        kind,
        claims,
        None if pod is None else PodName(*(pod.required_text(each) for each in ("namespace", "name", "uid"))),
        _read_nodes(top),
        top.flag("simulation"),
        tuple((_read_ask(each.child("claim")), _read_node(each.child("node"))) for each in top.children("held")),
    )
    if not claims:
        top.problem("claims", "is empty")
    if kind == ALLOCATE and len(found.nodes) != 1:
        top.problem("nodes", f"has {len(found.nodes)} entries instead of one")
    _check(top.problems)
    return found


def ask_of(obj: object) -> ClaimAsk:
    """The claim in a JSON value; raises ProtocolError."""
    fields = _fields(obj)
    found = _read_ask(fields)
    _check(fields.problems)
    return found


def node_of(obj: object) -> NodeName:
    """The node in a JSON value; raises ProtocolError."""
    fields = _fields(obj)
    found = _read_node(fields)
    _check(fields.problems)
    return found


def ask_to_json(ask: ClaimAsk) -> Object:
    """The JSON of a claim."""
    found: Object = {"namespace": ask.namespace, "name": ask.name, "uid": ask.uid}
    if ask.attempt:
        found["attempt"] = ask.attempt
    if ask.requests:
        found["requests"] = [dict(each) for each in ask.requests]
    if ask.config:
        found["config"] = [dict(each) for each in ask.config]
    if ask.parameters:
        found["parameters"] = [dict(each) for each in ask.parameters]
    return found


def _read_ask(fields: Fields) -> ClaimAsk:
    return ClaimAsk(
        fields.required_text("namespace"),
        fields.required_text("name"),
        fields.required_text("uid"),
        fields.integer("attempt"),
        tuple(dict(each.data) for each in fields.children("requests")),  # type: ignore[arg-type]  # data is JSON
        tuple(dict(each.data) for each in fields.children("config")),  # type: ignore[arg-type]  # data is JSON
        tuple(dict(each.data) for each in fields.children("parameters")),  # type: ignore[arg-type]  # data is JSON
    )


def node_to_json(node: NodeName) -> Object:
    """The JSON of a node."""
    return {"name": node.name, "labels": dict(node.labels)} if node.labels else {"name": node.name}


def _read_nodes(top: Fields) -> tuple[NodeName, ...]:
    """The nodes of a question. There may be thousands, and most have a name alone: these are read at once."""
    found = top.data.get("nodes")
    if isinstance(found, list) and all(type(each) is dict and each.keys() == _NAME_ALONE for each in found):
        names = [each["name"] for each in found]
        if all(type(each) is str and each for each in names):
            return tuple(map(NodeName, names))
    return tuple(_read_node(each) for each in top.children("nodes"))


def _read_node(fields: Fields) -> NodeName:
    return NodeName(fields.required_text("name"), fields.text_mapping("labels"))


# --- answers ------------------------------------------------------------------------------------------------


def answer_of(question: NegotiatedQuestion, obj: object) -> NegotiatedAnswer:
    """The answer to a question in a JSON value; raises ProtocolError with all problems.

    It has an entry for each claim of the question, unless it refuses to allocate or tells of a release.
    """
    top = _fields(obj)
    version, refused = top.text("version"), _reason(top.text("refused"))
    unsuitable: dict[str, Mapping[str, Printable]] = {}
    allocations: dict[str, AllocationResult] = {}
    overtaken: dict[str, int] = {}
    asked = {each.uid: each for each in question.claims}
    names = {each.name: each.name for each in question.nodes}
    for each in top.children("claims"):
        uid = each.required_text("uid")
        if uid not in asked:
            each.problem("uid", "is not the uid of a claim in the question")
        elif question.kind == UNSUITABLE_NODES:
            unsuitable[uid] = _unsuitable(each, names)
        elif question.kind == ALLOCATE:
            allocations[uid] = _allocation(each, asked[uid])
        elif (attempt := each.integer("attempt")) > asked[uid].attempt:
            overtaken[uid] = attempt
    if refused and question.kind != ALLOCATE:
        top.problem("refused", "only allocate can be refused")
    elif question.kind != DEALLOCATE and not refused:
        told = unsuitable if question.kind == UNSUITABLE_NODES else allocations
        for uid, ask in asked.items():
            if uid not in told:
                top.problem("claims", f"has no entry for claim {ask}, uid {uid}")
    _check(top.problems)
    return NegotiatedAnswer(version, unsuitable, allocations, refused, overtaken)


def _unsuitable(entry: Fields, names: Mapping[str, str]) -> Mapping[str, Printable]:
    """The nodes that do not suit, with reasons. Answers are remembered: each name and each reason is in memory once."""
    told = entry.text_mapping("unsuitableNodes")
    if others := [name for name in told if name not in names]:
        text = f"has {len(others)} nodes that were not asked about, such as {shown(others[0])}"
        entry.problem("unsuitableNodes", text)
        return {}
    reasons = {text: Printable(sys.intern(_reason(text) or "not suitable")) for text in set(told.values())}
    return {names[name]: reasons[text] for name, text in told.items()}


def _allocation(entry: Fields, ask: ClaimAsk) -> AllocationResult:
    """The allocation of a claim. It may have no results: then it has only configuration, or nothing at all."""
    found = allocation_or_none(entry, "allocation")
    if found is None:
        entry.problem("allocation", "is required")
        return AllocationResult()
    names = {str(each.get("name")) for each in ask.requests}
    places: Iterable[tuple[str, Sequence[str]]] = (
        *((f"results[{i}].request", (each.request,)) for i, each in enumerate(found.results)),
        *((f"config[{i}].requests", each.requests) for i, each in enumerate(found.configs)),
    )
    for place, requests in places:
        for name in requests:
            if name not in names:
                entry.problem(f"allocation.devices.{place}", f"{name} is no request for this controller")
    return found


def _reason(text: str) -> Printable:
    return Printable(printable(text)[:LONGEST_REASON])


def _fields(obj: object) -> Fields:
    if not isinstance(obj, dict):
        raise ProtocolError("the message is not a JSON object")
    return Fields(obj, "", [])


def _check(problems: Sequence[Problem]) -> None:
    if problems:
        raise ProtocolError("; ".join(map(str, problems)))


class ControllerError(Exception):
    """A controller has not answered, or not as the protocol says. It may have done what it was asked to do.

    The text may quote the controller. It is made printable here, whoever raises the error.
    """

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class ControllerAwayError(ControllerError):
    """A controller cannot be asked anything now: it is not reached, does not answer in time, or says so."""


class ControllerPendingError(ControllerError):
    """A controller was asked and will answer later; the reason has the controller's name."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason.in_words())


class Controller(Protocol):
    """Decides about the claims of some device classes."""

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        """The answer to a question, asked once.

        Raises:
            ControllerAwayError: there is none, and another question would have none, either.
            ControllerPendingError: there is none yet.
            ControllerError: there is none; the text stays the same as long as the cause does.
        """
        ...

    async def close(self) -> None:
        """Close connections. A later question may open new ones."""
        ...
