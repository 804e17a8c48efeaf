"""The best nodes: how many are named, and which."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from allocator.policies import BEST_FIT, FIRST_FIT, Merit, Policy
from extender.cluster.objects.pods import Pod
from extender.config.settings import SchedulingSettings, Settings
from extender.framework.decisions.verdict import OUT_OF_TIME, TOO_LATE, UNKNOWN_NODE, Verdict, Verdicts
from extender.framework.ranking import Merits, Ranking, WorthOfCpuScores, score_nodes
from extender.framework.wire import FilterArgs
from tests.kit.clusters import Cluster, claim, device_class, local_slice, node, parsed, pod

K = TypeVar("K", bound=Hashable)
HIGH, LOW = Merit(preference=8), Merit(preference=7)


@pytest.mark.parametrize(
    ("asked", "named"),
    [(0, 0), (1, 1), (99, 99), (100, 100), (250, 120), (1000, 420), (5000, 500), (5625, 281), (20000, 1000)],
)
def test_by_default_as_many_are_named_as_kube_scheduler_would_score(asked: int, named: int) -> None:
    assert SchedulingSettings().most_nodes(asked) == named


@pytest.mark.parametrize(("setting", "named"), [(0, 5000), (7, 7)])
def test_a_setting_names_as_many_as_it_says_and_0_all(setting: int, named: int) -> None:
    assert SchedulingSettings.model_validate({"bestNodes": setting}).most_nodes(5000) == named


def best(merits: Sequence[Merit | None], most: int | None, policy: Policy) -> str:
    """Nodes a, b, c, ... with these merits, None for those that will not do: which are named."""
    kinds = {id(merit): Verdict(merit) for merit in merits}
    names = ascii_lowercase[: len(merits)]
    ranking = Ranking.of(names, Verdicts.of([kinds[id(merit)] for merit in merits]), policy)
    found = ranking.best(most)
    assert all(found[name] is merits[names.index(name)] for name in found)
    return "".join(found)


@pytest.mark.parametrize(
    ("merits", "most", "named"),
    [
        pytest.param([], 2, "", id="no nodes"),
        pytest.param([None], 2, "", id="one that will not do"),
        pytest.param([HIGH], 1, "a", id="one that will do"),
        pytest.param([None, None], 2, "", id="none will do"),
        pytest.param([LOW, HIGH], 2, "ab", id="few are all named"),
        pytest.param([LOW, HIGH, LOW, HIGH], None, "abcd", id="all are asked for"),
        pytest.param([LOW, None, HIGH], 2, "ac", id="those that will not do take no room"),
        pytest.param([LOW, HIGH, LOW, HIGH], 2, "bd", id="the best, in the order asked"),
        pytest.param([LOW, HIGH, LOW, HIGH], 3, "abd", id="of the next best the first"),
        pytest.param([HIGH, LOW, LOW, HIGH, LOW], 4, "abcd", id="of the next best the first two"),
        pytest.param([HIGH, HIGH, HIGH, HIGH], 3, "abc", id="of equals the first"),
    ],
)
def test_which_nodes_are_named(merits: Sequence[Merit | None], most: int | None, named: str) -> None:
    assert best(merits, most, FIRST_FIT) == named


def test_equals_need_not_be_the_same_object() -> None:
    assert best([Merit(preference=8) for _ in range(4)], 3, BEST_FIT) == "abc"


def test_nodes_that_will_not_do_are_told_with_their_reasons() -> None:
    full, unknown = Verdict(reason=OUT_OF_TIME), Verdict(reason=UNKNOWN_NODE)
    ranking = Ranking.of("abcd", Verdicts.of([full, Verdict(HIGH), unknown, full]), BEST_FIT)
    assert ranking.refused() == {"a": OUT_OF_TIME, "c": UNKNOWN_NODE, "d": OUT_OF_TIME}


def test_kinds_that_no_node_has_count_for_nothing() -> None:
    far = Verdict(Merit(capacity=Map({"memory": 1000})))
    near, nearer = Verdict(Merit(capacity=Map({"memory": 2}))), Verdict(Merit(capacity=Map({"memory": 1})))
    with_far = Ranking.of("ab", Verdicts((far, near, nearer), (1, 2)), BEST_FIT)
    assert with_far.marks == Ranking.of("ab", Verdicts.of([near, nearer]), BEST_FIT).marks


def test_verdicts_are_those_that_nodes_have() -> None:
    far, near, full = (Verdict(merit) for merit in (HIGH, LOW, None))
    verdicts = Verdicts((far, near, full), (1, 2, 1))
    assert list(verdicts) == [near, full, near]
    assert [each in verdicts for each in (far, near, full, TOO_LATE, None)] == [False, True, True, False, False]
    assert verdicts.different == [near, full]


def test_there_may_be_more_kinds_than_a_byte_can_tell_apart() -> None:
    names = [str(number) for number in range(600)]
    ranking = Ranking.of(names, Verdicts.of([Verdict(LOW) for _ in names[1:]] + [Verdict(HIGH)]), FIRST_FIT)
    assert list(ranking.best(2)) == ["0", "599"]


@given(st.lists(st.sampled_from([None, *map(Merit, range(8, 12))]), max_size=30), st.integers(1, 30))
def test_nobody_is_left_out_for_one_that_scores_less_or_comes_later(merits: list[Merit | None], most: int) -> None:
    scores = FIRST_FIT.scores({index: merit for index, merit in enumerate(merits) if merit is not None})
    ranked = sorted(scores, key=lambda index: (-scores[index], index))[:most]
    verdicts = Verdicts.of([Verdict(merit) for merit in merits])
    names = [str(index) for index in range(len(merits))]
    assert list(Ranking.of(names, verdicts, FIRST_FIT).best(most)) == [str(index) for index in sorted(ranked)]


async def test_an_answer_names_the_best_nodes_and_prioritize_scores_them() -> None:
    names = ("a", "b", "c")
    slices = [local_slice("a", capacity={"memory": {"value": "8Gi"}}), *map(local_slice, "bc")]
    cluster = Cluster.of(device_class(), *map(node, names), *slices, claim("c"))
    service = cluster.service(Settings.model_validate({"scheduling": {"bestNodes": 2}}))
    pending = parsed(pod("p", "c"))
    result = await service.filter(FilterArgs(pending, names))
    assert (list(result.passed), result.unresolvable.in_words()) == (["a", "b"], {})
    assert await service.prioritize(FilterArgs(pending, ("b", "a"))) == [10, 10]


async def test_pods_without_devices_get_all_their_nodes_back() -> None:
    names = ("a", "b", "c")
    service = Cluster.of().service(Settings.model_validate({"scheduling": {"bestNodes": 1}}))
    assert (await service.filter(FilterArgs(parsed(pod()), names))).passed is names


def test_prioritize_takes_the_scores_that_filter_has_computed_unless_some_merits_are_missing() -> None:
    """Which merits there are decides the scores."""
    asked: list[int] = []

    def counted(merits: Mapping[K, Merit], /) -> dict[K, int]:
        asked.append(len(merits))
        return BEST_FIT.scores(merits)

    policy = replace(BEST_FIT, scores=counted)
    verdicts = Verdicts.of([Verdict(HIGH), Verdict(LOW), Verdict(reason=UNKNOWN_NODE)])
    named = Ranking.of("abc", verdicts, policy).best()
    assert asked == [2]
    assert list(score_nodes("ab", named, policy)) == list(
        score_nodes("ab", Merits("ab", [HIGH, LOW], [0, 1]), BEST_FIT)
    )
    assert asked == [2]
    assert list(score_nodes("b", named, policy)) == list(score_nodes("b", Merits("b", [LOW], [0]), BEST_FIT))
    assert asked == [2, 1]


def scored(worth: WorthOfCpuScores, pods: int, *scores: int) -> int:
    """For how many of so many pods nodes are scored, if they get these scores."""
    found = 0
    for _ in range(pods):
        if worth.is_due(PLAIN, ("a", "b")):
            worth.note(scores)
            found += 1
    return found


PLAIN = parsed(pod(resources={"cpu": "1"}))


def test_pods_without_devices_are_scored_while_it_brings_something() -> None:
    assert scored(WorthOfCpuScores(), 1000, 9, 10) == 1000


def test_where_all_nodes_score_equally_few_pods_without_devices_are_scored_until_scores_differ_again() -> None:
    worth = WorthOfCpuScores()
    assert scored(worth, 1600, 10, 10) == 16 + 50
    assert scored(worth, 32 + 100, 9, 10) == 1 + 100


@pytest.mark.parametrize(
    ("plain", "names"),
    [
        pytest.param(parsed(pod()), ("a", "b"), id="no CPU"),
        pytest.param(PLAIN, ("a",), id="one node"),
    ],
)
def test_pod_for_which_nodes_cannot_differ_is_not_scored(plain: Pod, names: Sequence[str]) -> None:
    assert not WorthOfCpuScores().is_due(plain, names)
