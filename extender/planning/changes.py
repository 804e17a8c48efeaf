"""Changes that may make a pod fit: the words of one, the fork that has it, and sets that others suggest."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from allocator import ClaimSpec, DeviceRequest, Features, Request, with_gates
from allocator.checks import Wanted
from allocator.obstacles import RemedyKind
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.kube.api import ObjectKey

Fork = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """One thing to do.

    Attributes:
        what: the thing that is changed; no two changes of one proposal have the same.
        text: what to do, as an order.
        how: the command that does it, or the fields to write.
        size: the number of things that are changed; each device counts.
        weight: among changes of a kind, the lightest is the least invasive.
        fork: the cluster after it.
        deletes: the pods that are deleted for it.
        gate: the feature gate that is turned on; empty for changes of the cluster.
        immutable: which spec is immutable, and what to do instead of a change; empty if the object can be changed.
        position: the place in a list of the object, if the change is about one.
        count: how many devices are asked for then; 0 if the change is about something else. If the pod fits with so
            many, it fits with fewer.
    """

    kind: RemedyKind
    what: str
    text: str
    how: str
    fork: Fork = field(compare=False)
    size: int = 1
    weight: int = 0
    deletes: tuple[ObjectKey, ...] = ()
    gate: str = ""
    immutable: str = ""
    position: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A claim that is to be allocated, and the object where it is written.

    Attributes:
        source: kind and name of the claim, or of the template that it is made from.
        is_written: a user has written the claim and can edit it; False: it follows from the pod's extended resources.
        immutable: as `ProposedChange.immutable`, for changes of this claim.
    """

    claim: ClaimObject
    source: str
    is_written: bool = True
    immutable: str = ""

    def edited(self, edit: Callable[[ClaimSpec], ClaimSpec]) -> Fork:
        """The fork with an edited spec of the claim."""
        key = self.claim.key

        def fork(snapshot: Snapshot) -> Snapshot:
            found = snapshot.claims[key]
            return snapshot.with_claim(replace(found, claim=replace(found.claim, spec=edit(found.claim.spec))))

        return fork

    def edited_request(self, wanted: Wanted, edit: Callable[[DeviceRequest], DeviceRequest]) -> Fork:
        """The fork with one edited alternative of a request."""

        def of_request(request: Request) -> Request:
            if request.name != wanted.request_name:
                return request
            changed = (edit(a) if a.name == wanted.request.name else a for a in request.alternatives)
            return replace(request, alternatives=tuple(changed))

        return self.edited(lambda spec: replace(spec, requests=tuple(map(of_request, spec.requests))))

    def at(self, wanted: Wanted) -> str:
        """The place of a request, for people."""
        return f"{self.source}, request {wanted.label}"


def combined(changes: Sequence[ProposedChange]) -> Fork:
    """The cluster after all of some changes. Of a list, the last place goes first: so all others keep theirs."""
    in_order = sorted(changes, key=lambda change: change.position, reverse=True)

    def fork(snapshot: Snapshot) -> Snapshot:
        for change in in_order:
            snapshot = change.fork(snapshot)
        return snapshot

    return fork


def configured(changes: Iterable[ProposedChange], features: Features) -> Features:
    """The features after some changes."""
    return with_gates(features, {change.gate: True for change in changes if change.gate})


def invasiveness(change: ProposedChange) -> tuple[RemedyKind, int, int, str]:
    """A key to sort changes by, the least invasive first. Of a list, the last place goes first, as in `combined`."""
    return change.kind, change.weight, -change.position, change.text


def size(changes: Iterable[ProposedChange]) -> tuple[object, ...]:
    """A key to sort sets of changes by: the fewest first, then the least invasive."""
    each = sorted(changes, key=invasiveness)
    worst = max((c.kind for c in each), default=RemedyKind.CORRECT)
    kinds, weight = sum(c.kind for c in each), sum(c.weight for c in each)
    return (sum(c.size for c in each), worst, kinds, weight, [c.text for c in each])


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes that may make a pod fit on a node.

    Attributes:
        node: of the cluster after the changes.
    """

    changes: tuple[ProposedChange, ...]
    node: str


class Suggest(Protocol):
    """Finds suggestions."""

    def __call__(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterable[Suggestion]:
        """Suggestions for a pod that fits nowhere, the best first.

        Args:
            pod: waits, and fits on no node.
            snapshot: the cluster.
            solver: for as long as there is time.

        Raises:
            TimeoutError: the solver's time is up.
        """
        ...
