"""The autoscaler's verbs (KEP-3063): start, filter, prioritize, NodeSelected, NodeReady, estimate. One entry each.

A new verb is an entry here, its JSON in `extender.autoscaler.wire`, a method of `extender.autoscaler.autoscaler`, and a
method of `extender.client`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from allocator import JSON
from extender.autoscaler import wire
from extender.autoscaler.autoscaler import Autoscaler
from extender.autoscaler.readiness.node_readiness import Readiness
from extender.autoscaler.scale_up.plan import Plan
from extender.autoscaler.sessions.peers import FORWARDED, SESSION, PassedCall
from extender.config.settings import AUTOSCALER_PREFIX
from extender.http.callers.guard import USER
from extender.http.endpoints.scheduler_verbs import POD, filter_facts
from extender.http.verb_endpoints import Application, Elsewhere, Endpoints, nowhere_else
from extender.verbs.filter import FilterResult
from extender.verbs.json import wire as scheduler_wire
from extender.verbs.verb import Doc, Facts, Verb, count_facts, pod_facts

_LONGEST_CALLER: Final = 100
"""Characters of the name of a caller that are kept with a session."""

_OF_SESSION: Final[Mapping[str, str]] = {SESSION: "The id that start gave; without it the latest snapshot answers."}
_TEMPLATE: Final[JSON] = {
    "metadata": {"name": "general-template", "labels": {"example.com/machine": "general"}},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}


@dataclass(frozen=True, slots=True)
class InSession:
    """The autoscaler's service, in the session of a request; None: on the latest snapshot.

    Attributes:
        caller: the user, or else the program, as it calls itself.
    """

    autoscaler: Autoscaler
    session: str | None
    caller: str = ""


async def _started(by: InSession, drivers: frozenset[str] | None) -> str:
    return by.autoscaler.start(drivers, by.caller)


def _simulated_facts(args: wire.SimulatedArgs) -> Facts:
    return {**pod_facts(args.asked.pod), **count_facts("nodes", asked=len(args.asked.names))}


_START: Final[Verb[InSession, frozenset[str] | None, str]] = Verb(
    "start",
    wire.decode_start,
    _started,
    lambda _, session: wire.encode_started(session),
    Doc(
        "Begin a session on a snapshot of the cluster. Later calls carry its id as the header session.",
        {"Drivers": ["gpu.example.com"]},
        {"Session": "lk6RqTZ8tR0BzQ8FmXyB4oTnJ1yZ0m7bYwG2cUeVh5s"},
    ),
    is_small=True,
)

_FILTER: Final[Verb[InSession, wire.SimulatedArgs, FilterResult]] = Verb(
    "filter",
    wire.decode_simulated,
    lambda by, args: by.autoscaler.filter(args, by.session),
    lambda args, result: scheduler_wire.encode_filter(args.asked, result.passed, result.failed, result.unresolvable),
    Doc(
        "Which of these nodes, real or not, can have the pod? (ExtenderArgs)",
        {"Pod": POD, "Nodes": {"items": [_TEMPLATE]}, "NodeNames": None},
        {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Nodes": {"items": [_TEMPLATE]}},
        _OF_SESSION,
    ),
    has_whole_objects=True,
    asked=_simulated_facts,
    answered=filter_facts,
)

_PRIORITIZE: Final[Verb[InSession, wire.SimulatedArgs, Sequence[int]]] = Verb(
    "prioritize",
    wire.decode_simulated,
    lambda by, args: by.autoscaler.prioritize(args, by.session),
    lambda args, scores: scheduler_wire.encode_scores(args.asked.names, scores),
    Doc(
        "How well does each node, real or not, suit, from 0 to 10? (ExtenderArgs)",
        {"Pod": POD, "Nodes": {"items": [_TEMPLATE]}, "NodeNames": None},
        [{"Host": "general-template", "Score": 0}],
        _OF_SESSION,
    ),
    has_whole_objects=True,
    asked=_simulated_facts,
)

_NODE_SELECTED: Final[Verb[InSession, wire.SelectedArgs, None]] = Verb(
    "NodeSelected",
    wire.decode_selected,
    lambda by, args: by.autoscaler.select(args, by.session),
    lambda _, __: wire.encode_selected(),
    Doc(
        "Book a pod on a node: it holds its devices there for the rest of the session.",
        {"Pod": POD, "Node": _TEMPLATE},
        {},
        {SESSION: "The id that start gave; required."},
    ),
    asked=lambda args: {**pod_facts(args.pod, args.node.name), **count_facts("nodes", asked=1)},
)

_NODE_READY: Final[Verb[InSession, str, Readiness]] = Verb(
    "NodeReady",
    wire.decode_ready,
    lambda by, name: by.autoscaler.node_ready(name, by.session),
    lambda _, readiness: wire.encode_ready(readiness),
    Doc(
        "Are the slices of a new node all there?",
        {"NodeName": "not-there"},
        {"Ready": False, "Reason": "node not yet known"},
        _OF_SESSION,
    ),
    is_small=True,
    asked=lambda name: {"k8s.node.name": name, **count_facts("nodes", asked=1)},
)

_ESTIMATE: Final[Verb[InSession, wire.EstimateArgs, Plan]] = Verb(
    "estimate",
    wire.decode_estimate,
    lambda by, args: by.autoscaler.estimate(args, by.session),
    lambda _, plan: wire.encode_plan(plan),
    Doc(
        "How many nodes to add to each group for pending pods?",
        {
            "Pods": {"items": [POD]},
            "NodeGroups": [{"Name": "general", "Template": _TEMPLATE, "Limit": 10, "Priority": 0}],
            "Expander": "least-waste",
        },
        {
            "NodeGroups": [{"Name": "general", "Add": 1, "Nodes": [{"Pods": ["default/plain"]}], "Devices": ""}],
            "FailedPods": {},
        },
        _OF_SESSION,
    ),
    has_whole_objects=True,
    asked=lambda args: count_facts("pods", asked=len(args.pods)),
    answered=lambda plan: count_facts("pods", failed=len(plan.failed)),
)

AUTOSCALER_VERBS: Final[tuple[Verb[InSession, Any, Any], ...]] = (
    _START,
    _FILTER,
    _PRIORITIZE,
    _NODE_SELECTED,
    _NODE_READY,
    _ESTIMATE,
)


def add_autoscaler_verbs(app: Application, autoscaler: Autoscaler, endpoints: Endpoints) -> None:
    """All of them, under a prefix of their own."""

    def by(request: Request) -> InSession:
        return InSession(autoscaler, request.headers.get(SESSION), _caller(request))

    for verb in AUTOSCALER_VERBS:
        path, name = f"{AUTOSCALER_PREFIX}/{verb.name}", f"autoscaler/{verb.name}"
        elsewhere = nowhere_else if verb is _START else _passing_on(verb.name, autoscaler)
        app.add_verb(endpoints.route(path, name, verb, by, "autoscaler", elsewhere))


def _caller(request: Request) -> str:
    name = str(request.scope.get(USER) or request.headers.get("user-agent", ""))
    return name[:_LONGEST_CALLER]


def _passing_on(verb: str, autoscaler: Autoscaler) -> Elsewhere:
    """Passes calls on whose session another replica has."""

    async def pass_on(request: Request, body: bytes) -> bytes | None:
        session, peers = request.headers.get(SESSION), autoscaler.peers
        if peers is None or session is None or FORWARDED in request.headers or not peers.owner(session):
            return None
        return await peers.answer(PassedCall(verb, session, body))

    return pass_on
