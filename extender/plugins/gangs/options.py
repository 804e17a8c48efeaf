"""The nodes that take a pod of a plan, the best first.

Many pods of a large gang ask for the same. When one of them has got its node, only that node has changed for the next
one. So all nodes are judged once, and then one node for each pod.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from allocator.policies import Merit, Policy
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import policy_of
from extender.framework.filter import Bounds, FilterResult, ask
from extender.framework.reasons import Reasons
from extender.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class Options:
    """The nodes that take a pod in a fork.

    Attributes:
        places: each node, in the order asked, with the position of its merit.
        merits: what speaks for the nodes; few are distinct.
        policy: of the pod.
        reasons: against other nodes.
    """

    places: Mapping[str, int]
    merits: tuple[Merit, ...]
    policy: Policy
    reasons: Reasons

    def best_first(self, without: Collection[str]) -> Iterator[str]:
        """The nodes, except some: those with the highest score first; of equal nodes those that were asked first."""
        scores = self.policy.scores({place: self.merits[place] for place in set(self.places.values())})
        for score in sorted(set(scores.values()), reverse=True):
            for name, place in self.places.items():
                if scores[place] == score and name not in without:
                    yield name

    def with_node(self, name: str, merit: Merit | None) -> "Options":
        """The nodes after one of them has changed; without a merit, it does not take the pod any more."""
        places, merits = dict(self.places), self.merits
        if merit is None:
            places.pop(name, None)
        else:
            known = (place for place, each in enumerate(merits) if each is merit)  # equal nodes share a merit
            places[name] = next(known, len(merits))
            merits = merits if places[name] < len(merits) else (*merits, merit)
        return Options(places, merits, self.policy, self.reasons)


def options_of(pod: Pod, names: Sequence[str], fork: Snapshot, planner: Planner) -> Options:
    """Those of some nodes that take a pod.

    Raises:
        TimeoutError: the planner's time is up.
    """
    return _options(pod, planner.filter(pod, names, fork), planner.solver.policy)


def options_after(before: Options, pod: Pod, node: str, fork: Snapshot, planner: Planner) -> Options | None:
    """The nodes that take the next pod of a kind, after one of the kind has got a node and devices of only that node.

    None if what other nodes answer may have changed: because of a claim that the pods share, or of a quota that depends
    on the devices.

    Args:
        before: the nodes that took the pod before.
        pod: the next pod.
        node: of the pod before.
        fork: the cluster in which that pod has its node.
        planner: for as long as there is time.

    Raises:
        TimeoutError: the planner's time is up.
    """
    solver = planner.solver
    question = ask(pod, [node], fork, solver, planner.decider, bounds=Bounds(solver.until))
    if isinstance(question, FilterResult):
        return None if question.passed else _options(pod, question, solver.policy)
    claims = question.cycle.claims
    if question.checks or claims.allocated or claims.negotiated or claims.withheld:
        return None
    return before.with_node(node, question.result().merits.get(node))


def _options(pod: Pod, result: FilterResult, default: Policy) -> Options:
    policy = policy_of(pod, default) or default
    if not result.merits:
        return Options(dict.fromkeys(result.passed, 0), (Merit(),), policy, result.unresolvable)
    places = dict(zip(result.passed, result.merits.codes_of(result.passed), strict=True))
    return Options(places, tuple(result.merits.kinds), policy, result.unresolvable)
