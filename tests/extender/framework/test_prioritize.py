"""Prioritize: a score for each node in the order asked, whatever the order was in which they were found."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from allocator.policies import BEST_FIT, POLICIES, Merit, Policy
from extender.framework.ranking import Merits, score_nodes

KINDS = (
    Merit(8, Map({"memory": 10}), 0.5),
    Merit(8, Map({"memory": 40}), 0.5),
    Merit(7, Map({"memory": 10}), 0.5),
    Merit(8),
)


def found(merits: Mapping[str, Merit]) -> Merits:
    return Merits(list(merits), KINDS, [KINDS.index(merit) for merit in merits.values()])


@given(st.dictionaries(st.text(), st.sampled_from(KINDS)))
def test_merits_are_a_mapping(merits: dict[str, Merit]) -> None:
    assert found(merits) == merits
    assert (list(found(merits)), len(found(merits))) == (list(merits), len(merits))
    assert "no node" not in found({"node": KINDS[0]})


policies = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@policies
@given(
    merits=st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(KINDS)),
    names=st.lists(st.sampled_from("abcdefghij")),
)
def test_a_node_scores_as_the_policy_says_side_by_side_with_the_others_asked_about(
    policy: Policy, merits: dict[str, Merit], names: list[str]
) -> None:
    for asked in (names, list(merits)):
        expected = policy.scores({name: merits[name] for name in asked if name in merits})
        assert list(score_nodes(asked, found(merits), policy)) == [expected.get(name, 0) for name in asked]


def test_only_what_is_asked_about_counts() -> None:
    merits = found(dict(zip("abc", KINDS, strict=False)))
    assert list(score_nodes("ab", merits, BEST_FIT)) != list(score_nodes("ba", merits, BEST_FIT))
    assert list(score_nodes("b", merits, BEST_FIT)) == [10]


@policies
def test_nodes_without_merit_score_nothing(policy: Policy) -> None:
    assert list(score_nodes("ab", Merits(), policy)) == [0, 0]
    assert list(score_nodes("xy", found({"a": KINDS[0]}), policy)) == [0, 0]
