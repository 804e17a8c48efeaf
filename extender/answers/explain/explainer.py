"""Explains pods and claims: where one fits, or why it fits nowhere and what would change that. Nothing is written.

A claim without an allocation is explained as the claim of a stand-in.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from allocator import AllocatorError, Claim, Clock, LeftOut
from allocator.audit import pod_findings
from allocator.model.optional import not_served
from allocator.tools import did_you_mean, hint, meant_by, nearest
from extender.answers.explain.explanation import Conclusion, Explanation, FittingNode, OfferedDevice, needs_no_devices
from extender.answers.explain.judged_pod import JudgedPod
from extender.answers.explain.pod_claims import (
    CLAIM_NOT_MADE,
    NOTHING_ASKED,
    Admission,
    advice,
    resource_advice,
    with_claims_made,
)
from extender.cluster.compute_claims import CLASS, cci_drivers_of, cores_of, too_little_cpu, too_much_cpu
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import POD_CLAIM_NAME, ClaimObject, is_immediate, mode_problem, priority_of
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import Cycle, open_cycle
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No, Solver
from extender.framework.decisions.verdict import UNKNOWN_NODE
from extender.framework.held_devices import awaits_kept, found_on, held_for_nominated
from extender.framework.plugin import Lacking, NodeCheck, Refusal, Refused
from extender.framework.pods.claims import Blocked, bound_pod, is_open, named_claims, stand_in
from extender.framework.pods.extended_resources import in_words, request_words, without_devices
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import ADMIN_LABEL
from extender.planning.changes import Suggest
from extender.planning.kube_scheduler import Attempts, SchedulerChecks, no_attempt, not_marked, not_modeled


def _no_pause() -> None:
    """No other work has to go first."""


LOOK_SECONDS: Final = 5e-5
"""What one look at the clock counts: 20,000 looks take a second of work. Measured: 12,000 to 40,000 (2026-11-28)."""


class WorkClock:
    """A clock that moves on when somebody looks at it, which is before each piece of work.

    So the search for proposals ends at the same place on a busy machine as on an idle one, and says the same.
    """

    def __init__(self) -> None:
        self._looks = 0

    def __call__(self) -> float:
        """Seconds of work."""
        self._looks += 1
        return self._looks * LOOK_SECONDS


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains pods of one snapshot.

    Attributes:
        snapshot: the cluster, as `ClusterState` published it.
        decider: remembers earlier verdicts.
        pause: called between small pieces of work, so that verbs go first.
        until: when the explanation has to end, by the solver's clock.
        seconds: of work, for the search for proposals.
        worked: counts the work.
        schedulers: names of the schedulers that call the extender; empty: not known.
        marked_only: the schedulers ask only about pods with the marker.
        preempts: device preemption is on.
        suggest: finds further changes for a pod that fits nowhere, if all nodes are asked about.
        followed: the cluster that the decider follows; None: `snapshot`.
        unread: what of the cluster is not known, and why, in words.
        solver: that of the decider, limited to the time that is left. It learns nothing of what pods ask for.
    """

    snapshot: Snapshot
    decider: Decider
    pause: Callable[[], None]
    until: float = math.inf
    seconds: float = 0.7
    worked: Clock = field(default_factory=WorkClock)
    schedulers: Collection[str] = ()
    marked_only: bool = False
    preempts: bool = True
    suggest: Sequence[Suggest] = ()
    followed: Snapshot | None = None
    unread: Sequence[str] = ()
    solver: Solver = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "solver", self.decider.solver.still().within(self.until))

    @classmethod
    def alone(
        cls,
        snapshot: Snapshot,
        solver: Solver,
        schedulers: Collection[str] = (),
        *,
        preempts: bool = True,
        suggest: Sequence[Suggest] = (),
    ) -> "Explainer":
        """An explainer for a cluster without earlier verdicts or other decisions."""
        decider = Decider(solver, None)
        return cls(snapshot, decider, _no_pause, schedulers=schedulers, preempts=preempts, suggest=suggest)

    def explain(
        self, pod: Pod, nodes: Sequence[str] | None = None, admission: Admission = NOTHING_ASKED
    ) -> Explanation:
        """Explain a pod on all nodes or on some; a fault on the way becomes the explanation.

        Args:
            pod: of the cluster, or any other.
            nodes: their names; None: all.
            admission: what the API server says of the pod's claims.
        """
        found: list[Explanation] = []
        with self.solver.faults.of(f"pod {pod}", lambda fault: found.append(_blocked(pod, fault))):
            found.append(self._explained(pod, nodes, admission))
        words = request_words(pod)
        told, summary = (in_words(text, words) for text in (found[0].headline, found[0].summary))
        return replace(found[0], headline=told, summary=summary, words=words)

    def _explained(self, pod: Pod, nodes: Sequence[str] | None, admission: Admission) -> Explanation:
        if pod.node_name:
            return self._bound(pod)
        if no_try := self._no_try(pod):
            return no_try
        unknown = [name for name in nodes or () if name not in self.snapshot.nodes]
        if unknown:
            return _blocked(pod, f"node {unknown[0]} is not known{hint(unknown[0], self.snapshot.nodes)}")
        snapshot, waiting = with_claims_made(pod, self.snapshot)
        if refused := _refused(pod, waiting, admission):
            return refused
        pod = snapshot.pods[pod.key]
        names = sorted(snapshot.nodes) if nodes is None else list(dict.fromkeys(nodes))
        cycle = self._opened(pod, snapshot)
        rejections = SchedulerChecks(snapshot).rejections(pod)
        rejected = {name: rejections[name] for name in names if name in rejections}
        self.decider.follow(self.followed or self.snapshot)
        if isinstance(cycle, Blocked):
            found = _blocked(pod, cycle.reason.in_words(), advice(pod, snapshot))
        elif not names:
            found = _blocked(pod, "no node is known")
        elif cycle.claims.is_empty and not rejected:
            found = Explanation(str(pod), Conclusion.NEEDS_NOTHING, needs_no_devices(pod.key))
        elif isinstance(asked := self._checks(cycle, [name for name in names if name not in rejected]), Explanation):
            found = asked
        else:
            cycle = replace(cycle, snapshot=held_for_nominated(pod, snapshot, self.solver, now=True))
            known = [snapshot.nodes[name] for name in names if name not in rejected]
            limits = self.seconds, self.worked, self._pause
            suggest = self.suggest if nodes is None else ()
            found = JudgedPod(
                cycle, asked, snapshot, known, rejected, self.decider, *limits, self.preempts, suggest
            ).explanation()
            if found.verdict is Conclusion.FITS_NOWHERE and not found.advice:
                found = replace(found, advice=resource_advice(pod, snapshot))
        made = [f"claim {name} is not made from its template yet" for name in waiting]
        if admission.special and found.verdict is Conclusion.FITS:
            made.append(f"on a node without a device plugin, the special claim is not made: {admission.special}")
        made += _conflicts_about_cores(pod, snapshot)
        if admission.unread:
            made.append(f"what the API server says of the pod can't be read: {admission.unread}")
        return replace(found, notes=(*made, *found.notes, *self._unknown(pod, found)))

    def _no_try(self, pod: Pod) -> Explanation | None:
        """The explanation of a pod that no scheduler of ours asks about, whatever its nodes have."""
        if hindrance := Attempts(self.snapshot, self.schedulers).hindrance(pod):
            return _blocked(pod, hindrance)
        not_asked = self._not_asked(pod)
        return _blocked(pod, not_asked, _MARKED_AGAIN) if not_asked else None

    def _not_asked(self, pod: Pod) -> str:
        """Why no scheduler asks about a pod of the cluster, although it is one of ours; empty if one asks."""
        return not_marked(pod) if self.marked_only and self.snapshot.pod(pod.uid) is not None else ""

    def _opened(self, pod: Pod, snapshot: Snapshot) -> Cycle | Blocked:
        """The cycle of a pod. One that exists counts for its own scores, as filter would count it."""
        cycle = open_cycle(
            pod, snapshot, self.decider.solver.still(but_for=self.snapshot.pod(pod.uid)).within(self.until)
        )
        return cycle if isinstance(cycle, Blocked) else replace(cycle, solver=cycle.solver.still())

    def _checks(self, cycle: Cycle, names: Sequence[str]) -> Explanation | Sequence[tuple[str, NodeCheck]]:
        """What plugins compare on each node; or what keeps a pod off all nodes although its claims can be used."""
        pod, plugins, snapshot = cycle.pod, self.solver.plugins, cycle.snapshot
        refused = plugins.explain(pod, snapshot, self.decider, self.solver)
        found = refused or plugins.pre_filter(pod, cycle.claims, snapshot, self.solver)
        if isinstance(found, Refused):
            if found.refusal.lacking is not None:
                return self._of_next(pod, found.refusal, found.refusal.lacking)
            return _blocked(pod, str(found.refusal), found.refusal.advice)
        return self._awaiting_evictions(cycle, names) or found

    def _of_next(self, pod: Pod, refusal: Refusal, lacking: Lacking) -> Explanation:
        """The explanation of a pod of a gang: what the next pod of the gang lacks."""
        decider = Decider(self.solver, None)
        other = replace(self, snapshot=lacking.cluster, decider=decider, schedulers=(), suggest=(), followed=None)
        found = replace(other, seconds=0.0, preempts=False)._explained(lacking.pod, None, NOTHING_ASKED)
        if found.verdict is not Conclusion.FITS_NOWHERE:
            return _blocked(pod, str(refusal), refusal.advice)
        told = _blocked(pod, f"{lacking.text}: {found.headline}", refusal.advice)
        return replace(told, requests=found.requests, nodes=found.nodes)

    def _awaiting_evictions(self, cycle: Cycle, names: Sequence[str]) -> Explanation | None:
        """The evictions that a pod waits for."""
        pod, solver = cycle.pod, self.solver
        if pod.kept.node in names:
            with suppress(AllocatorError, TimeoutError):
                if awaits_kept(pod, held_for_nominated(pod, cycle.snapshot, solver), solver):
                    where = f"node {pod.kept.node}, until terminating pods have gone"
                    return _blocked(pod, f"it waits for the devices that are kept for it on {where}")
        return None

    def _unknown(self, pod: Pod, found: Explanation) -> Iterator[str]:
        """What may still keep a pod off the nodes where it fits."""
        if found.verdict is not Conclusion.FITS:
            return
        if unknown := not_modeled([pod], self.snapshot):
            yield f"kube-scheduler also checks what is not looked at here: {', '.join(unknown)}"
        yield from self.unread
        yield from self.solver.plugins.notes(pod, self.snapshot)
        others = sum(each.is_pending and each.key != pod.key for each in self.snapshot.pods.values())
        if others and pod.needs_devices:
            are = "pod with devices is" if others == 1 else "pods with devices are"
            yield f"{others} other {are} pending and may take these devices first"

    def _pause(self) -> None:
        """Let verbs go first.

        Raises:
            TimeoutError: there is no more time.
        """
        self.pause()
        if self.solver.is_late:
            raise TimeoutError

    def _bound(self, pod: Pod) -> Explanation:
        claims = [self.snapshot.claims[key] for key in claim_keys(pod) if key in self.snapshot.claims]
        devices = tuple(
            OfferedDevice(str(claim.key), result.request, result.device, result.consumed_capacity)
            for claim in claims
            if claim.claim.allocation is not None
            for result in claim.claim.allocation.results
        )
        left_out = tuple(
            LeftOut(str(claim.key), name, "")
            for claim in claims
            if claim.claim.allocation is not None
            for name in not_served(claim.claim)
        )
        text = f"pod {pod} is bound to node {pod.node_name}"
        places = (FittingNode(pod.node_name, None, devices, "", left_out),)
        without = "" if pod.has_started else without_devices(pod, self.snapshot, self.solver.features)
        lacks = self._lacks(pod)
        not_asked = self._not_asked(pod) if without or lacks else ""
        slow = "" if lacks or without else _not_started(pod, [each.claim for each in claims])
        notes = (*filter(None, (without, not_asked, slow)), *self.solver.plugins.notes(pod, self.snapshot))
        if lacks:
            cause = f"kubelet does not start it: {'; '.join(lacks)}"
            notes = notes if pod.has_started else (self._prospect(pod), *notes)
            summary = f"{text}, and {cause}"
            return Explanation(
                str(pod), Conclusion.BOUND_WITHOUT_CLAIMS, summary, cause, cause, notes=notes, places=places
            )
        return Explanation(str(pod), Conclusion.BOUND, text, notes=notes, places=places)

    def _prospect(self, pod: Pod) -> str:
        """Whether dra-extender can give a pod that has a node its claims there."""
        if hindrance := no_attempt(pod, self.schedulers):
            return hindrance
        snapshot, _ = with_claims_made(pod, self.snapshot)
        node = snapshot.nodes.get(pod.node_name)
        if node is None:
            return f"its claims cannot be allocated: {UNKNOWN_NODE.in_words()}"
        bare = replace(snapshot.pods[pod.key], containers=())
        try:
            found = found_on(node, bare, snapshot, self.solver)
        except AllocatorError as error:
            return f"its claims cannot be allocated: {error}"
        if isinstance(found, No):
            return f"its claims cannot be allocated there: {found.reason.in_words()}"
        return "its claims can be allocated there: a running dra-extender does that by itself"

    def _lacks(self, pod: Pod) -> list[str]:
        """What a pod on a node lacks, as the audit finds it."""
        bound, node = bound_pod(pod), self.snapshot.node(pod.node_name)
        claims = {str(key): self.snapshot.claims[key].claim for key in claim_keys(pod) if key in self.snapshot.claims}
        found = pod_findings([] if bound is None else [bound], claims, {} if node is None else {node.name: node})
        return [each.message.partition(": ")[2] for each in found]


def _not_started(pod: Pod, claims: Sequence[Claim]) -> str:
    """The drivers that a kubelet waits for, if it has not started a pod that has all its claims; empty: it has."""
    if not pod.started or pod.has_started or pod.is_finished or not claims:
        return ""
    allocated = [each.allocation for each in claims if each.allocation is not None]
    drivers = sorted({result.device.driver for each in allocated for result in each.results})
    needs = [f"driver {name}" for name in drivers]
    needs += [f"CCI driver {name}" for name in cci_drivers_of(each.spec for each in claims)]
    text = f"its kubelet knows it since {pod.started} and has not started it: on the node, it needs {', '.join(needs)}"
    return f"{text}; kubectl describe pod {pod.name} -n {pod.namespace} has the kubelet's words" if needs else ""


def _conflicts_about_cores(pod: Pod, snapshot: Snapshot) -> Iterator[str]:
    """What is wrong if a pod requests another CPU than its claims take, and devices do not say so themselves."""
    specs = {name: each.claim.spec for name, each in named_claims(pod, snapshot)}
    cores = cores_of(specs.values())
    if not cores.most:
        return
    slices = (each for each in snapshot.inventory.slices.values() if each.pool.driver == CLASS)
    if any(device.node_resources for each in slices for device in each.devices):
        return
    if problem := too_little_cpu(pod.cpu, cores):
        yield problem
    for each in pod.conditions.claiming:
        own = cores_of(spec for name, spec in specs.items() if name in each.claims)
        if problem := too_much_cpu(each.cpu, own):
            yield f"container {each.name}: {problem}"


def _refused(pod: Pod, waiting: Sequence[str], admission: Admission) -> Explanation | None:
    """The explanation of a pod with a claim that the API server does not take; None if it takes all."""
    if admission.unmade:
        return _blocked(pod, f"the pod is not made: {admission.unmade}")
    failed = next((name for name in waiting if name in admission.failures), "")
    if failed:
        return _blocked(pod, f"{CLAIM_NOT_MADE.format(failed)}: {admission.failures[failed]}")
    if admission.forbidden:
        what = f"claim {admission.forbidden} asks for adminAccess"
        cause = f'{what}, and namespace {pod.namespace} has no label {ADMIN_LABEL}: "true"'
        return _blocked(pod, cause, f"kubectl label namespace {pod.namespace} {ADMIN_LABEL}=true")
    return None


_MARKED_AGAIN: Final = "make the pod again while the policies of deploy/only-scheduler are there"


def _blocked(pod: Pod, cause: str, advice: str = "") -> Explanation:
    return Explanation(
        str(pod), Conclusion.BLOCKED, f"pod {pod} cannot be placed: {cause}", cause, cause.partition("\n")[0], advice
    )


_SUBJECT = "claim"


_RANDOM: Final = 5
"""Letters that an API server puts after a generated name: the claim of entry gpu of pod p is ``p-gpu-x7k2p``."""


def unknown_claim(key: ObjectKey, known: Iterable[ClaimObject]) -> str:
    """A claim does not exist; names the one that was probably meant.

    A claim from a template is known by its name without the random end, which changes whenever the claim is made again.

    Args:
        key: of the claim.
        known: all claims that may be named.
    """
    there: dict[str, str] = {}
    elsewhere = set()
    for each in sorted(known, key=lambda each: each.key):
        name = each.key.name
        if each.key.namespace == key.namespace:
            there.setdefault(_stem(name) if POD_CLAIM_NAME in each.claim.annotations else name, name)
        elif name == key.name:
            elsewhere.add(str(each.key))
    if elsewhere:
        return f"claim {key} does not exist{did_you_mean(nearest(str(key), elsewhere) or min(elsewhere))}"
    stems = [each for each in (key.name, _stem(key.name)) if each in there]
    meant = stems[0] if stems else meant_by(key.name, there) or meant_by(_stem(key.name), there)
    return f"claim {key} does not exist{did_you_mean(meant and f'{key.namespace}/{there[meant]}')}"


def _stem(name: str) -> str:
    """A name without its random end, if it has one."""
    stem, _, end = name.rpartition("-")
    return stem if stem and len(end) == _RANDOM else name


def explain_claim(claim: ClaimObject, explainer: Explainer, names: Sequence[str] | None = None) -> Explanation:
    """Explain a claim.

    Args:
        claim: of the explainer's snapshot.
        explainer: explains stand-ins.
        names: the nodes where it may be allocated; None: all.
    """
    if claim.claim.allocation is not None:
        return _allocated(claim)
    problem = mode_problem(claim.claim.annotations)
    if problem:
        return _explanation_of_claim(claim, Conclusion.BLOCKED, f"is not allocated: {problem}", cause=problem)
    nodes = explainer.snapshot.nodes
    asked = sorted(nodes) if names is None else names
    left = [name for name in asked if name not in nodes or is_open(nodes[name])]
    if asked and not left:
        return _explanation_of_claim(
            claim, Conclusion.BLOCKED, "is not allocated: every node is cordoned", cause="every node is cordoned"
        )
    found = replace(explainer, schedulers=(), preempts=False).explain(stand_in(claim.claim), left)
    cordoned = len(asked) - len(left)
    passed_over = (f"cordoned nodes are passed over: {cordoned}",) if cordoned else ()
    return _of_claim(replace(found, notes=(_when(claim.claim), *passed_over, *found.notes)), claim)


def _when(claim: Claim) -> str:
    if is_immediate(claim):
        return f"the claim is allocated as soon as there are devices, with priority {priority_of(claim)}"
    return "the claim is allocated with its first pod, which decides about the node, too"


def _allocated(found: ClaimObject) -> Explanation:
    claim, allocation = found.claim, found.claim.allocation
    if allocation is None:
        raise ValueError(f"claim {claim} is not allocated")
    users = ", ".join(map(str, claim.reserved_for)) or "nobody"
    terms = allocation.node_selector.terms if allocation.node_selector is not None else ()
    bound = [value for term in terms for each in term.match_fields for value in each.values]
    where = f"node {', '.join(bound)}" if bound else "some nodes" if terms else "every node"
    devices = tuple(
        OfferedDevice(str(found.key), each.request, each.device, each.consumed_capacity) for each in allocation.results
    )
    left_out = tuple(LeftOut(str(found.key), name, "") for name in not_served(claim))
    places = (FittingNode(", ".join(bound) or where, None, devices, "", left_out),)
    summary = f"is allocated for {where}, and reserved for {users}"
    return replace(_explanation_of_claim(found, Conclusion.ALLOCATED, summary), places=places)


def _explanation_of_claim(claim: ClaimObject, verdict: Conclusion, text: str, *, cause: str = "") -> Explanation:
    return Explanation(str(claim.key), verdict, f"claim {claim.key} {text}", cause, cause, subject=_SUBJECT)


def _of_claim(found: Explanation, claim: ClaimObject) -> Explanation:
    """The explanation of a stand-in, told of its claim."""
    summary = found.summary.replace(f"pod {claim.key} ", f"claim {claim.key} ", 1)
    return replace(found, summary=summary, subject=_SUBJECT)
