"""kube-scheduler's verbs: filter, prioritize, preempt, bind. One entry each; a new verb is another entry.

Filter and prioritize have no side effects if a call is simulated: it cannot come from a scheduler's own work. Then the
autoscaler's verb answers it. A Cluster Autoscaler that calls scheduler extenders (kubernetes/autoscaler#9786) sends
whole nodes, and some of them are made up. A kube-scheduler with ``nodeCacheCapable: false`` sends whole nodes as well,
but only those that exist. So the objects tell. An object that our watch does not know may just be new: then its
resourceVersion is newer than everything that the watch has shown.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, Final

from allocator.tools import JSON
from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.verbs import filter_simulated, prioritize_simulated, simulated
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.config.settings import Settings
from extender.faces.assembly import Extender
from extender.faces.http.verb_endpoints import Application, Endpoints
from extender.framework import wire
from extender.framework.decision_log import DecisionLog, Draft
from extender.framework.filter import FilterResult
from extender.framework.pods.extended_resources import request_nouns
from extender.framework.service import Service
from extender.framework.task import share_of
from extender.framework.verb import EXAMPLE_POD, NO_ENTRY, Doc, Verb, count_facts, filter_facts, pod_facts
from extender.framework.victims import Victims
from extender.framework.wire import FilterArgs
from extender.kube.api import ObjectKey, revision_of
from extender.kube.resources import NODES


def is_simulated(args: FilterArgs, state: ClusterState) -> bool:
    """Whether whole nodes were sent, and the pod or one of the nodes does not exist."""
    if args.nodes is None or not args.pod.needs_devices or state.not_ready:
        return False
    if state.is_made_up(args.pod):
        return True
    unknown = (node for name, node in args.nodes.items() if name not in state.snapshot.nodes)
    return any(revision_of(dict(node)) <= state.seen(NODES) for node in unknown)


_NO_USE: Final = "evicting pods would not suffice"

_ASKED: Final[JSON] = {"Pod": EXAMPLE_POD, "Nodes": None, "NodeNames": ["node-0", "node-1"]}
_VICTIMS: Final[JSON] = {"node-0": {"Pods": [{"UID": "b6aaf8a2-b536-4f56-b606-dcc6d0957570"}], "NumPDBViolations": 0}}


@dataclass(slots=True)
class SchedulerCall:
    """Who answers one call of a scheduler: the service, and the autoscaler's service if the call is simulated."""

    service: Service
    log: DecisionLog
    autoscaler: Autoscaler
    _is_simulated: bool | None = None

    def is_simulated(self, args: wire.FilterArgs) -> bool:
        """Whether the call must have no side effect. The nodes of the call are looked at once."""
        if self._is_simulated is None:
            self._is_simulated = is_simulated(args, self.autoscaler.state)
        return self._is_simulated

    async def filter(self, args: wire.FilterArgs) -> FilterResult:
        """Like `Service.filter`. Nodes that do not exist have what their templates bring."""
        if self.is_simulated(args):
            return await filter_simulated(InSession(self.autoscaler), simulated(args))
        return await self.service.filter(args)

    async def prioritize(self, args: wire.FilterArgs) -> Sequence[int]:
        """Like `Service.prioritize`. Nodes that do not exist have what their templates bring."""
        if self.is_simulated(args):
            return await prioritize_simulated(InSession(self.autoscaler), simulated(args))
        return await self.service.prioritize(args)


def _deciding(verb: str, by: SchedulerCall, pod: Pod) -> AbstractContextManager[Draft | None]:
    return by.log.deciding(verb, pod.key, pod.uid, share=share_of(pod, by.service.state.snapshot))


def _deciding_filter(by: SchedulerCall, args: wire.FilterArgs) -> AbstractContextManager[Draft | None]:
    """An entry of the decision log; none for pods without devices, which would push out all others."""
    is_logged = args.pod.needs_devices and not (by.autoscaler.state.is_made_up(args.pod) or by.is_simulated(args))
    return _deciding("filter", by, args.pod) if is_logged else NO_ENTRY


def _deciding_preempt(by: SchedulerCall, args: wire.PreemptArgs) -> AbstractContextManager[Draft | None]:
    return _deciding("preempt", by, args.pod) if args.pod.needs_devices else NO_ENTRY


def _bound(args: wire.BindArgs) -> Pod:
    return Pod(args.namespace, args.name, args.uid)


def _deciding_bind(by: SchedulerCall, args: wire.BindArgs) -> AbstractContextManager[Draft | None]:
    known = by.service.state.snapshot.pod(args.uid)
    if known is None:
        return NO_ENTRY
    return by.log.deciding("bind", ObjectKey(args.namespace, args.name), args.uid, args.node, share=known.namespace)


def _note_filter(draft: Draft, args: wire.FilterArgs, result: FilterResult) -> None:
    noun = request_nouns(args.pod)
    draft.nodes(
        len(result.passed), result.failed.counts(noun) + result.unresolvable.counts(noun), result.pending_reason
    )


_FILTER: Final[Verb[SchedulerCall, wire.FilterArgs, FilterResult]] = Verb(
    "filter",
    wire.decode_filter,
    SchedulerCall.filter,
    wire.encode_filter,
    Doc(
        "Which of these nodes can have the pod, as far as its devices go? (ExtenderArgs)",
        _ASKED,
        {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "NodeNames": ["node-0", "node-1"]},
    ),
    asked=lambda args: {**pod_facts(args.pod), **count_facts("nodes", asked=len(args.names))},
    answered=filter_facts,
    deciding=_deciding_filter,
    found=_note_filter,
)

_PRIORITIZE: Final[Verb[SchedulerCall, wire.FilterArgs, Sequence[int]]] = Verb(
    "prioritize",
    wire.decode_filter,
    SchedulerCall.prioritize,
    lambda args, scores: wire.encode_scores(args.names, scores),
    Doc(
        "How well does each node suit, from 0 to 10? (ExtenderArgs)",
        _ASKED,
        [{"Host": "node-0", "Score": 0}, {"Host": "node-1", "Score": 0}],
    ),
    asked=_FILTER.asked,
)

_PREEMPT: Final[Verb[SchedulerCall, wire.PreemptArgs, Mapping[str, Victims]]] = Verb(
    "preempt",
    wire.decode_preempt,
    lambda by, args: by.service.preempt(args),
    lambda _, victims: wire.encode_victims(victims),
    Doc(
        "Whom to evict for the pod, per node: nodes that would not help are left out. (ExtenderPreemptionArgs)",
        {"Pod": EXAMPLE_POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": _VICTIMS},
        {"NodeNameToMetaVictims": _VICTIMS},
    ),
    asked=lambda args: {**pod_facts(args.pod), **count_facts("nodes", asked=len(args.victims))},
    answered=lambda victims: count_facts("nodes", passed=len(victims)),
    deciding=_deciding_preempt,
    found=lambda draft, args, victims: draft.nodes(
        len(victims), Counter(repeat(_NO_USE, len(args.victims) - len(victims)))
    ),
)

_BIND: Final[Verb[SchedulerCall, wire.BindArgs, None]] = Verb(
    "bind",
    wire.decode_bind,
    lambda by, args: by.service.bind(args),
    lambda _, __: wire.encode_bound(),
    Doc(
        "Allocate and reserve the pod's claims, then bind it; may be repeated. (ExtenderBindingArgs)",
        {
            "PodName": "plain",
            "PodNamespace": "default",
            "PodUID": "5495d63f-aea3-4a67-8d6c-66a1f5e7a09f",
            "Node": "node-0",
        },
        {},
    ),
    is_small=True,
    asked=lambda args: {
        **pod_facts(_bound(args), args.node),
        **count_facts("nodes", asked=1),
    },
    deciding=_deciding_bind,
    found=lambda draft, _, __: draft.nodes(1, {}),
)

VERBS: Final[tuple[Verb[SchedulerCall, Any, Any], ...]] = (_FILTER, _PRIORITIZE, _PREEMPT, _BIND)


def add_scheduler_verbs(
    app: Application, extender: Extender, autoscaler: Autoscaler, endpoints: Endpoints, settings: Settings
) -> None:
    """All of them, under the prefix of the settings."""
    patient = replace(autoscaler, deadline_seconds=settings.scheduling.deadline_seconds)
    service, log = extender.service, extender.overview.decision_log
    read = partial(wire.decode_filter, known=service.state.pending_pod)
    for each in VERBS:
        verb = replace(each, decode=read) if each.decode is wire.decode_filter else each
        path = f"{settings.server.prefix}/{verb.name}"
        route = endpoints.route(path, verb.name, verb, lambda _: SchedulerCall(service, log, patient), "verbs")
        app.add_verb(route, is_prompt=True)
