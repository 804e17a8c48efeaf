"""What filter found is remembered for the pods filtered last."""

from allocator.policies import Merit
from extender.framework.ranking import Decision, DecisionStore, Merits
from tests.kit.clusters import parsed, pod


def decision(name: str, preference: int = 0) -> Decision:
    return Decision(parsed(pod(name)), Merits("a", [Merit(preference)], [0]))


def test_the_last_decision_for_a_pod_counts() -> None:
    store = DecisionStore()
    store.keep(decision("p", 1))
    store.keep(decision("p", 2))
    assert store.of("uid-p") == decision("p", 2)


def test_the_pod_filtered_longest_ago_is_forgotten_first() -> None:
    store = DecisionStore(size=2)
    for name in ("p", "q", "p", "r"):
        store.keep(decision(name))
    assert [name for name in ("p", "q", "r") if store.of(f"uid-{name}")] == ["p", "r"]


def test_a_pod_can_be_forgotten_whether_it_is_known_or_not() -> None:
    store = DecisionStore()
    store.keep(decision("p"))
    store.drop("uid-p")
    store.drop("uid-p")
    assert store.of("uid-p") is None


def test_merits_are_forgotten_before_pods_are() -> None:
    store = DecisionStore(scored=2)
    for name in ("p", "q", "r"):
        store.keep(decision(name))
    assert [store.of(f"uid-{name}") for name in ("p", "r")] == [Decision(parsed(pod("p")), Merits()), decision("r")]
