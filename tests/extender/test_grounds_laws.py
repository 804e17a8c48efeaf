"""The law of grounds: what was decided about a node is what would be decided now, if it is said to rest."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings

from allocator import AllocatorError, Claim
from allocator.model.features import ALL_FEATURES
from extender.pods.case import Case
from extender.pods.claims import PodClaims
from extender.pods.grounds import rests
from extender.state.objects import ClaimObject, Pod
from extender.state.snapshot import Snapshot
from tests.extender.decisions_worlds import EXAMPLES, NODES, Asks, History, histories, play, synced, wishes
from tests.kit.clusters import solver

POD = Pod("ns", "p", "uid-p")


def case_in(snapshot: Snapshot, claims: tuple[Claim, ...]) -> Case:
    pending = tuple(ClaimObject(each, resource_version="1", created="", raw=b"{}") for each in claims)
    return Case(POD, PodClaims(pending=pending), snapshot, replace(solver(), features=ALL_FEATURES))


def answer(name: str, snapshot: Snapshot, claims: tuple[Claim, ...]) -> object:
    try:
        return case_in(snapshot, claims).at(snapshot.nodes[name])
    except AllocatorError as error:
        return type(error), str(error)


@settings(max_examples=EXAMPLES)
@given(histories(), wishes())
def test_what_rests_would_be_decided_again(history: History, claims: tuple[Claim, ...]) -> None:
    state = synced(history.beginning)
    moments = [state.snapshot]
    for number, step in enumerate(history.steps):
        if not isinstance(step, Asks):
            play(state, step, number)
            moments.append(state.snapshot)
    for before, now in [*pairwise(moments), (moments[0], moments[-1])]:
        changes = state.changes_since(before.version)
        within = None if changes is None else [each for each in changes if each.version <= now.version]
        for name in NODES:
            node = before.nodes.get(name)
            if node is not None and rests(case_in(before, claims), node, now, within):
                assert answer(name, now, claims) == answer(name, before, claims)
