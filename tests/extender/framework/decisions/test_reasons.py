"""Reasons against many nodes: words are made once for each reason, and only where somebody reads them."""

from hypothesis import given
from hypothesis import strategies as st

from allocator import Reason
from allocator.reason import Cause, request_noun
from extender.framework.decisions.verdict import Reasons
from extender.framework.pods.extended_resources import request_nouns
from tests.kit.clusters import parsed, pod

FULL = Cause("full", "no free device for {request}")
OVER = Cause("over", "{claim}: limit {detail}")
KINDS = (Reason(FULL, "gpu"), Reason(FULL, "nic"), Reason(FULL, "gpu"), Reason(OVER, detail="a\nb", claim="c"))

REASONS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(KINDS))


def listed(reasons: Reasons) -> list[tuple[str, str]]:
    return list(reasons.in_words().items())


def test_text_of_others_is_escaped() -> None:
    assert KINDS[3].in_words() == r"c: limit a\nb"


def test_a_brace_in_the_text_of_others_is_no_gap() -> None:
    assert Reason(OVER, detail="{claim}", claim="{0}").in_words() == "{0}: limit {claim}"


def test_people_know_the_requests_of_a_special_claim_by_resource_and_container() -> None:
    raw = pod("p", resources={"example.com/gpu": "1"})
    noun, (container,) = request_nouns(parsed(raw)), raw["spec"]["containers"]
    assert Reason(FULL, "container-0-request-0").in_words(noun) == (
        f"no free device for example.com/gpu of container {container['name']}"
    )
    assert Reason(FULL, "container-1-request-0").in_words(noun) == "no free device for request container-1-request-0"
    assert request_nouns(parsed(pod("q"))) is request_noun


def test_words_are_made_once_for_each_reason() -> None:
    asked: list[str] = []

    def noun(label: str) -> str:
        asked.append(label)
        return label

    many = Reasons.alike([f"n{number}" for number in range(1000)], KINDS[0])
    assert len(many.in_words(noun)) == 1000
    assert many.counts(noun) == {"no free device for gpu": 1000}
    assert asked == ["gpu", "gpu"]


def test_equal_reasons_are_counted_together() -> None:
    assert Reasons.of({"a": KINDS[0], "b": KINDS[1], "c": KINDS[2]}).counts() == {
        "no free device for request gpu": 2,
        "no free device for request nic": 1,
    }


@given(REASONS, REASONS)
def test_reasons_are_a_map_by_node_in_order(of: dict[str, Reason], others: dict[str, Reason]) -> None:
    plain = {**of, **{name: each for name, each in others.items() if name not in of}}
    found = Reasons.of(of).beside(Reasons.of({name: each for name, each in plain.items() if name not in of}))
    assert list(found.items()) == list(plain.items())
    assert listed(found) == [(name, each.in_words()) for name, each in plain.items()]
    assert set(found.distinct) == set(plain.values())
    assert found.counts().total() == len(plain)
    for name in plain:
        assert list(found.without(name)) == [each for each in plain if each != name]


@given(REASONS)
def test_reasons_against_no_node_add_nothing(of: dict[str, Reason]) -> None:
    found = Reasons.of(of)
    assert listed(found.beside(Reasons())) == listed(Reasons().beside(found)) == listed(found)
