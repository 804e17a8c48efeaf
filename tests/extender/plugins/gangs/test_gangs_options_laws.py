"""Law of options: judging only the node that the pod before has taken says the same as judging all nodes."""

import os
from dataclasses import dataclass, replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.policies import POLICIES
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No
from extender.kube.api import ObjectKey
from extender.planning.planner import Planner
from extender.plugins.gangs.search import options_after, options_of
from tests.kit.clusters import DRIVER, GPU, Cluster, Object, claim, local_slice, node, pod, request, solver

EXAMPLES: Final = int(os.environ.get("GANG_EXAMPLES", "25"))
NODES: Final = "abcd"
PODS: Final = 6


@dataclass(frozen=True)
class Case:
    """Pods of one kind, and where they go.

    Attributes:
        sizes: for each node the sizes of its devices.
        smallest: the size that each pod needs at least.
        shares: all pods use one claim; otherwise each has its own.
        choices: which of its options each pod takes.
    """

    sizes: list[list[int]]
    smallest: int
    shares: bool
    policy: str
    choices: list[int]

    def objects(self) -> list[Object]:
        found = [GPU, *map(node, NODES)]
        for name, sizes in zip(NODES, self.sizes, strict=True):
            raw = local_slice(name, len(sizes))
            for device, size in zip(raw["spec"]["devices"], sizes, strict=True):
                device["attributes"] = {"size": {"int": size}}
                device["capacity"] = {"memory": {"value": str(size)}}
            found += [raw] if sizes else []
        wanted = request(selectors=[f"device.attributes['{DRIVER}'].size >= {self.smallest}"])
        for number in range(PODS):
            found += [pod(f"p{number}", "shared" if self.shares else f"c{number}"), claim(f"c{number}", wanted)]
        return [*found, claim("shared", wanted)]


CASES: Final = st.builds(
    Case,
    st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=4, max_size=4),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from(sorted(POLICIES)),
    st.lists(st.integers(0, 3), min_size=PODS, max_size=PODS),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(CASES)
def test_options_after_a_pod_are_those_of_all_nodes(case: Case) -> None:
    cluster = Cluster.of(*case.objects())
    fork, the_solver = cluster.state.snapshot, replace(solver(), policy=POLICIES[case.policy])
    decider = Decider(the_solver, cluster.state)
    decider.follow(fork)
    planner = Planner(the_solver, decider)
    before = chosen = None
    for number, choice in enumerate(case.choices):
        asked = fork.pods[ObjectKey("ns", f"p{number}")]
        options = options_of(asked, NODES, fork, planner)
        if before is not None and chosen is not None:
            after = options_after(before, asked, chosen, fork, planner)
            assert after is None or list(after.best_first(())) == list(options.best_first(()))
            assert (after is None) == case.shares
        names = list(options.best_first(()))
        if not names:
            return
        before, chosen = options, names[choice % len(names)]
        found = planner.take(asked, chosen, fork)
        assert not isinstance(found, No)
        fork = found.held(asked, chosen, fork)
