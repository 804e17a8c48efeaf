"""Claims that the API server answers our writes with: read once, and known only when the watch shows them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import InvalidObjectError
from extender.cluster.cluster_state import ClusterState
from extender.kube.api import Event, EventType, RawObject
from extender.kube.resources import CLAIMS
from tests.extender.cluster.scenes import KEY, at
from tests.kit.clusters import claim

FREE = at(5, claim("gpu"))
TAKEN = at(7, claim("gpu", allocated=["n/gpu-0"]))


def shown(raw: RawObject) -> Event:
    return Event(EventType.MODIFIED, CLAIMS, raw)


def knowing(raw: RawObject) -> ClusterState:
    state = ClusterState()
    state.replace(CLAIMS, [raw], int(raw["metadata"]["resourceVersion"]))
    return state


class TestReadOnce:
    def test_a_watch_event_after_the_answer_is_not_read_again(self) -> None:
        state = knowing(FREE)
        answered = state.answered(TAKEN)
        state.apply(shown(TAKEN))
        assert state.snapshot.claims[KEY].claim is answered.claim

    def test_an_answer_after_its_watch_event_is_not_read_again(self) -> None:
        state = knowing(FREE)
        state.apply(shown(TAKEN))
        assert state.answered(TAKEN) is state.snapshot.claims[KEY]

    def test_one_answer_after_the_other_and_then_the_watch(self) -> None:
        state = knowing(FREE)
        raws = [at(6, claim("gpu")), TAKEN]
        answered = [state.answered(raw) for raw in raws]
        for raw, answer in zip(raws, answered, strict=True):
            state.apply(shown(raw))
            assert state.snapshot.claims[KEY].claim is answer.claim

    @pytest.mark.parametrize(
        "other",
        [
            at(8, TAKEN),
            at(7, claim("gpu", metadata={"uid": "other"}, allocated=["n/gpu-0"])),
            {**TAKEN, "apiVersion": "resource.k8s.io/v1beta2"},
        ],
        ids=["newer", "another of that name", "another version of the API"],
    )
    def test_but_what_is_not_the_same_is_read(self, other: RawObject) -> None:
        state = knowing(FREE)
        answered = state.answered(TAKEN)
        state.apply(shown(other))
        assert state.snapshot.claims[KEY].claim is not answered.claim
        assert state.answered(TAKEN) is not state.snapshot.claims[KEY]

    def test_nor_is_a_claim_without_a_version_remembered(self) -> None:
        state, unversioned = ClusterState(), claim("gpu", metadata={"resourceVersion": ""})
        answered = state.answered(unversioned)
        state.apply(shown(unversioned))
        assert state.snapshot.claims[KEY].claim is not answered.claim


class TestKnownWhenShown:
    def test_an_answer_alone_changes_nothing(self) -> None:
        state = knowing(FREE)
        before = state.snapshot
        state.answered(TAKEN)
        assert (state.snapshot, state.seen(CLAIMS)) == (before, 5)

    @pytest.mark.parametrize("is_first", [True, False], ids=["answer first", "watch first"])
    def test_it_is_allocated_since_the_event(self, is_first: bool) -> None:
        state = knowing(FREE)
        steps: list[Callable[[], object]] = [lambda: state.answered(TAKEN), lambda: state.apply(shown(TAKEN))]
        for step in steps if is_first else reversed(steps):
            step()
        assert state.snapshot.claims[KEY].allocated_at == 7

    def test_an_answer_that_comes_late_brings_nothing_back(self) -> None:
        state = knowing(FREE)
        state.apply(shown(at(8, claim("gpu"))))
        assert state.answered(TAKEN).claim.allocation is not None
        assert state.snapshot.claims[KEY].claim.allocation is None

    def test_nor_after_the_claim_is_gone(self) -> None:
        state = knowing(FREE)
        state.apply(Event(EventType.DELETED, CLAIMS, at(8, TAKEN)))
        state.answered(TAKEN)
        assert KEY not in state.snapshot.claims

    def test_a_list_is_read_as_it_is(self) -> None:
        state = knowing(FREE)
        answered = state.answered(TAKEN)
        state.replace(CLAIMS, [TAKEN], 9)
        listed = state.snapshot.claims[KEY]
        assert listed.claim is not answered.claim
        assert listed.allocated_at is None

    def test_what_is_no_claim_says_why(self) -> None:
        with pytest.raises(InvalidObjectError, match="kind"):
            ClusterState().answered({**TAKEN, "kind": "Status"})


@given(st.lists(st.tuples(st.sampled_from(["gpu", "other"]), st.booleans()), max_size=12), st.data())
def test_whatever_is_answered_and_when_the_state_is_that_of_the_events(
    steps: list[tuple[str, bool]], data: st.DataObject
) -> None:
    """Law: answers may come at any time, more than once or never, and nothing is different for it."""
    raws = [at(10 + n, claim(name, allocated=["n/gpu-0"] * is_taken)) for n, (name, is_taken) in enumerate(steps)]
    told, alone = ClusterState(), ClusterState()
    for raw in raws:
        for answer in data.draw(st.lists(st.sampled_from(raws), max_size=3)):
            assert told.answered(answer).resource_version == answer["metadata"]["resourceVersion"]
        told.apply(shown(raw))
        alone.apply(shown(raw))
        one, other = (
            {key: (each.claim, each.resource_version, each.allocated_at, each.raw) for key, each in claims.items()}
            for claims in (told.snapshot.claims, alone.snapshot.claims)
        )
        assert one == other
        assert told.snapshot.usage == alone.snapshot.usage
