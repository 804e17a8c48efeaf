"""Filter: which of the nodes asked about have the devices that a pod needs.

Rejections for devices are "unresolvable": of a node in ``FailedNodes`` the scheduler believes that evicting pods would
help, though its dry run knows nothing of devices. The one exception is a node that a pod is nominated for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from allocator.errors import InvalidClaimError, SelectorError
from allocator.model import JSON
from allocator.outcome import Allocation
from extender.claims import Blocked, unready
from extender.cluster.objects import NodeObject, Pod, parse_node_object
from extender.cluster.snapshot import Snapshot
from extender.solver import No, Solver
from extender.verbs.case import UNKNOWN_NODE, Case, after_departures, fits, held_for_nominated, open_case

WAITING = "waiting for devices of terminating pods"
OUT_OF_TIME = "not looked at in time"


@dataclass(frozen=True, slots=True)
class FilterResult:
    """What becomes of each node.

    Attributes:
        passed: nodes that will do, in the order asked.
        failed: nodes that will do once terminating pods are gone, with the reason.
        unresolvable: nodes that will not do, with the reason.
        decisions: for nodes that will do, what would be allocated there; empty for pods that need nothing of us.
        steps: devices tried.
    """

    passed: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, Allocation] = field(default_factory=dict)
    steps: int = 0


def filter_nodes(
    pod: Pod,
    names: Sequence[str],
    snapshot: Snapshot,
    solver: Solver,
    *,
    sent: Mapping[str, Mapping[str, JSON]] | None = None,
    until: float = float("inf"),
) -> FilterResult:
    """Decide a pod on each of the nodes.

    Args:
        pod: as it was sent.
        names: the nodes asked about.
        snapshot: the cluster.
        solver: the allocator.
        sent: the Node objects, where whole nodes were sent: their labels count, and they need not exist.
        until: when to stop, by the solver's clock.

    Raises:
        TimeoutError: time was up before any node was found.
        InvalidObjectError: one of the nodes that were sent.
    """
    if not pod.needs_devices:
        return FilterResult(names)
    case = open_case(pod, snapshot, solver)
    if isinstance(case, Blocked):
        return _nowhere(names, case.reason)
    if case.claims.is_empty:
        return FilterResult(names)
    waiting = unready(case.claims, solver.features)
    if waiting is not None:
        return _nowhere(names, f"claim {waiting.claim.name} waits until its devices are ready")
    case = replace(case, snapshot=held_for_nominated(pod, snapshot, solver))
    try:
        if pod.nominated_node in names:
            # Room was made there, perhaps by evicting others; the scheduler would take no other node either.
            there = _filter(case, (pod.nominated_node,), sent, until)
            if there.passed:
                return there
        return _filter(case, names, sent, until)
    except InvalidClaimError as error:
        return _nowhere(names, str(error))
    except SelectorError as error:
        return _nowhere(names, selector_reason(error))


def selector_reason(error: SelectorError) -> str:
    """Names claim, request and selector, but not the device, which another try may meet in another order."""
    first_line = error.message.partition("\n")[0]
    return f"claim {error.claim}, request {error.request}: {error.source}: {first_line}"


def _nowhere(names: Sequence[str], reason: str) -> FilterResult:
    return FilterResult((), unresolvable=dict.fromkeys(names, reason))


def _filter(
    case: Case, names: Sequence[str], sent: Mapping[str, Mapping[str, JSON]] | None, until: float
) -> FilterResult:
    decisions: dict[str, Allocation] = {}
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    steps = 0
    for index, name in enumerate(names):
        if case.solver.clock() > until:
            if not decisions:
                raise TimeoutError
            unresolvable.update(dict.fromkeys(names[index:], OUT_OF_TIME))
            break
        node = case.snapshot.nodes.get(name) if sent is None else parse_node_object(sent[name])
        if node is None:
            unresolvable[name] = UNKNOWN_NODE
            continue
        verdict = case.at(node)
        steps += verdict.steps
        if not isinstance(verdict, No):
            decisions[name] = verdict
        elif name == case.pod.nominated_node and fits_later(case, node):
            failed[name] = WAITING
        else:
            unresolvable[name] = verdict.reason
    return FilterResult(tuple(decisions), failed, unresolvable, decisions, steps)


def fits_later(case: Case, node: NodeObject) -> bool:
    """Whether the pod needs only wait until terminating pods have given back their devices."""
    later = after_departures(case.snapshot, node, case.solver.features)
    return later is not case.snapshot and fits(case.pod, node, later, case.solver)
