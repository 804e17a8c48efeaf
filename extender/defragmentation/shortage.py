"""Whether the free devices of a cluster would suffice for a pod if they were on one node."""

from collections.abc import Iterator, Sequence

from allocator import ways_to_serve
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.solver import Solver
from extender.explain.claim_references import targets_of
from extender.explain.device_survey import Survey
from extender.explain.explanation import RequestReport
from extender.explain.holders import Holders
from extender.kube_scheduler import rejection
from extender.pods.claims import Blocked, PodClaims, claims_of
from extender.pods.extended_resources.requests import in_words, request_words
from extender.pods.extended_resources.special_claim import Needs


def shortage(pod: Pod, snapshot: Snapshot, solver: Solver) -> str:
    """Why no move helps: what is missing on all nodes of the pod together; empty if nothing is missing.

    Each request is judged alone: constraints between devices, and shared counters, may still be in the way.

    Raises:
        TimeoutError: the solver's time is up.
    """
    claims = claims_of(pod, snapshot)
    nodes = [node for node in snapshot.nodes.values() if not rejection(pod.requirements, node)]
    if not nodes:
        return "kube-scheduler itself rejects all nodes"
    if isinstance(claims, Blocked):
        return claims.reason.in_words()
    targets = targets_of(pod, _most_pending(claims, nodes))
    requests = ways_to_serve(tuple(target.claim.claim for target in targets), snapshot.classes)
    survey = Survey(requests, snapshot, nodes, solver, solver.look)
    reports = iter(survey.reports(targets, Holders(snapshot, pod)))
    ways = [[next(reports) for _ in ways] for ways in requests]
    return in_words("; ".join(_lacking(ways)), request_words(pod))


def _most_pending(claims: PodClaims, nodes: Sequence[NodeObject]) -> Sequence[ClaimObject]:
    """The claims to allocate. A node with a device plugin needs no special claim."""
    needs = [found.pending for node in nodes if isinstance(found := claims.on(node), Needs)]
    return max(needs, key=len, default=())


def _lacking(requests: Sequence[Sequence[RequestReport]]) -> Iterator[str]:
    for ways in requests:
        if all(way.free < way.need for way in ways):
            way = ways[0]
            are = "device is" if way.free == 1 else "devices are"
            yield f"request {way.request} asks for {way.asks}, and {way.free} suitable {are} free on all nodes together"
