"""prioritize: how well nodes, real or made up, suit a pod. Request and answer are those of kube-scheduler's verb."""

from collections.abc import Sequence
from typing import Final

from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.verbs.filter import SimulatedArgs, decode_simulated, filter_simulated, simulated_facts
from extender.autoscaler.verbs.sent_objects import EXAMPLE_NODE, OF_SESSION
from extender.pods.policy import policy_of
from extender.verbs import wire
from extender.verbs.prioritize import score_nodes
from extender.verbs.verb import EXAMPLE_POD, Doc, Verb


async def prioritize_simulated(by: InSession, args: SimulatedArgs) -> Sequence[int]:
    """A score for every node, in the order asked.

    Raises:
        RefusedError, TimeoutError: as `filter_simulated`.
    """
    found = await filter_simulated(by, args)
    policy = by.autoscaler.solver.policy
    return score_nodes(args.asked.names, found.merits, policy_of(args.asked.pod, policy) or policy)


PRIORITIZE: Final[Verb[InSession, SimulatedArgs, Sequence[int]]] = Verb(
    "prioritize",
    decode_simulated,
    prioritize_simulated,
    lambda args, scores: wire.encode_scores(args.asked.names, scores),
    Doc(
        "How well does each node, real or not, suit, from 0 to 10? (ExtenderArgs)",
        {"Pod": EXAMPLE_POD, "Nodes": {"items": [EXAMPLE_NODE]}, "NodeNames": None},
        [{"Host": "general-template", "Score": 0}],
        OF_SESSION,
    ),
    has_whole_objects=True,
    asked=simulated_facts,
)
