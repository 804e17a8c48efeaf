"""Prioritize: how well each node suits, as the policy sees it, from what filter found there."""

from collections.abc import Sequence
from itertools import repeat

from allocator.policies import Policy
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.decisions.evaluate import Decider
from extender.decisions.solver import Solver
from extender.verbs.ranking import NOTHING, Merits


def score_nodes(names: Sequence[str], merits: Merits, policy: Policy) -> Sequence[int]:
    """A score, 0 to 10, for each node in the order asked. One without merit has 0, as all have for other pods."""
    if not merits:
        return [0] * len(names)
    codes = merits.codes_of(names)
    scores = policy.scores({code: merits.kinds[code] for code in set(codes) if code != NOTHING})
    return list(map(scores.get, codes, repeat(0)))


def score_by_cpu(pod: Pod, names: Sequence[str], snapshot: Snapshot, solver: Solver, decider: Decider) -> Sequence[int]:
    """A score for each node for a pod without devices, by what its CPU takes from pods with devices.

    Args:
        pod: asks for no devices.
        names: the nodes.
        snapshot: of the followed cluster.
        solver: its policy weighs what is left on a node.
        decider: remembers what is left.
    """
    decider.follow(snapshot)
    informed = solver.informed(pod, (), snapshot)
    lookup = decider.lookup((), names, snapshot, policy=informed.policy, weighing=informed.weighing(pod))
    verdicts = decider.evaluate(lookup, until=solver.until, solver=informed).verdicts
    merits = {code: merit for code in set(verdicts.codes) if (merit := verdicts.kinds[code].merit) is not None}
    return list(map(informed.policy.scores(merits).get, verdicts.codes, repeat(0)))
