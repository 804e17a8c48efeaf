"""The table of pods with devices: what each asks for, and why it waits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from allocator import AllocationMode, ClaimSpec, ClaimTemplate, DeviceRequest, Quantity
from extender.answers.observe.overview import Overview
from extender.cluster.objects.extended_resources import asked
from extender.cluster.objects.pods import Pod, PodClaim
from extender.cluster.snapshot import Snapshot
from extender.framework.decision_log import DecisionEntry
from extender.framework.pod_and_claim_states import PodState, state_of_pod
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import Attempts, at_gate
from extender.tools.table import Item, Row, TableView, counted, duration, matches

CELLS: Final[Mapping[str, Callable[[Any], str]]] = {"age": duration}
"""How the text shows columns that JSON has in another form."""

_NOT_ASKED: Final = "no scheduler has asked this replica about the pod lately"


def fits_in_words(nodes: int) -> str:
    """What is said of a pod for which so many nodes are suitable."""
    return f"its devices fit on {nodes} node{'s' if nodes > 1 else ''}"


def _no_line(_pod: Pod, _reasons: Iterable[str] | None) -> str:
    return ""


def _is_tried(_pod: Pod) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class WaitingReasons:
    """Why pods wait.

    Attributes:
        latest: the latest decision about the pod with a uid; None if there is none.
        hindrance: why no scheduler of ours tries a pod; empty if one does (`Attempts.hindrance`).
        line: what a pod was told when it was rejected for some reasons (None: for any); empty: nothing.
        unasked: why a pod waits of a cluster that no scheduler follows; None: schedulers ask about pods.
    """

    latest: Callable[[str], DecisionEntry | None]
    hindrance: Callable[[Pod], str] = _is_tried
    line: Callable[[Pod, Iterable[str] | None], str] = _no_line
    unasked: Callable[[Pod], str] | None = None

    def reason(self, pod: Pod) -> str:
        """Why a pending pod waits."""
        if reason := self.hindrance(pod):
            return reason
        if reason := at_gate(pod):
            return self.line(pod, None) or reason
        if self.unasked is not None:
            return self.unasked(pod)
        found = self.latest(pod.uid)
        if found is None:
            return _NOT_ASKED
        if found.error:
            return f"{found.verb}: {found.error}"
        if found.passed:
            return fits_in_words(found.passed)
        return self.line(pod, found.rejected) or counted(found.rejected)


def waiting_reasons(overview: Overview, snapshot: Snapshot) -> WaitingReasons:
    """Why pods of a snapshot of a running service wait."""
    attempts = Attempts(snapshot, overview.schedulers)
    unasked = None if overview.unasked is None else overview.unasked.reasons(snapshot)
    return WaitingReasons(overview.decision_log.latest, attempts.hindrance, overview.told.line, unasked)


def pods(
    snapshot: Snapshot,
    waiting: WaitingReasons,
    now: datetime,
    *,
    namespace: str = "",
    state: str = "",
    node: str = "",
    pod: str = "",
) -> TableView:
    """The pods with devices: of one namespace, in one state, bound to a node, or of one name.

    Args:
        snapshot: the cluster.
        waiting: why pods wait.
        now: the time, for the ages.
        namespace: empty for all.
        state: a value of `PodState`; empty for all.
        node: empty for all, also for pods without a node.
        pod: a name; empty for all.
    """
    columns = ("namespace", "pod", "state", "age", "node", "requests", "reason", "explain")

    def rows() -> Iterator[Row]:
        for key in sorted(key for key in snapshot.pods if matches(namespace, key.namespace) and matches(pod, key.name)):
            found = snapshot.pods[key]
            its_state = state_of_pod(found)
            if matches(state, its_state.value) and matches(node, found.node_name):
                yield Row(key, partial(pod_item, found, snapshot, waiting, now))

    return TableView(columns, rows(), CELLS)


def pod_item(pod: Pod, snapshot: Snapshot, waiting: WaitingReasons, now: datetime) -> Item:
    """The row of a pod."""
    state = state_of_pod(pod)
    is_pending, created = state is PodState.PENDING, _time(pod.created)
    decision = waiting.latest(pod.uid) if is_pending else None
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "state": state.value,
        "created": pod.created,
        "age": None if created is None else max(0, int((now - created).total_seconds())),
        "priority": pod.priority,
        "scheduler": pod.scheduler_name,
        "node": pod.node_name,
        "nominatedNode": pod.nominated_node,
        "requests": [*asked_for(pod, snapshot)],
        "reason": waiting.reason(pod) if is_pending else "",
        "decision": "" if decision is None else decision.id,
        "explain": f"/explain/{quote(pod.namespace, safe='')}/{quote(pod.name, safe='')}",
    }


def asked_for(pod: Pod, snapshot: Snapshot) -> list[str]:
    """What a pod asks for: the requests of its claims, then its extended resources."""
    return [*_of_claims(pod, snapshot), *_of_containers(pod)]


def _of_claims(pod: Pod, snapshot: Snapshot) -> Iterator[str]:
    """Each request of the pod's claims, as ``gpu: 2 gpu.example.com (memory: 4Gi)``."""
    for entry in pod.claims:
        if pod.claim_statuses.get(entry.name, "") is None:  # the entry needs no claim
            continue
        spec = _spec(pod, entry, snapshot)
        if spec is None:
            yield f"{entry.name}: unknown"
            continue
        for request in spec.requests:
            ways = " or ".join(map(_way, request.alternatives)) or "unknown"
            yield f"{request.name}: {ways}{', optional' if request.name in spec.optional else ''}"


def _spec(pod: Pod, entry: PodClaim, snapshot: Snapshot) -> ClaimSpec | None:
    """What an entry of a pod asks for: by its claim, or by its template as long as there is no claim."""
    claim = snapshot.claims.get(ObjectKey(pod.namespace, entry.claim_name or pod.claim_statuses.get(entry.name) or ""))
    if claim is not None:
        return claim.claim.spec
    template = snapshot.objects(ClaimTemplate).get(ObjectKey(pod.namespace, entry.template_name or ""))
    return None if template is None else template.spec


def _way(wanted: DeviceRequest) -> str:
    number = "all" if wanted.mode is AllocationMode.ALL else wanted.count
    capacity = ", ".join(f"{name}: {amount}" for name, amount in wanted.capacity or ())
    return f"{number} {wanted.device_class}{f' ({capacity})' if capacity else ''}"


def _of_containers(pod: Pod) -> Iterator[str]:
    """Each extended resource that the pod's containers ask for, as ``2 example.com/gpu``."""
    return (f"{Quantity(nano)} {resource}" for resource, nano in asked(pod.containers).items())


def _time(text: str) -> datetime | None:
    """A timestamp of the API server; None if there is none."""
    return datetime.fromisoformat(text) if text else None
