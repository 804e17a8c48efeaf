"""The second opinion: what is compared, and a disagreement has both answers."""

from dataclasses import dataclass, field, replace

import pytest

from allocator import (
    AllocationResult,
    Claim,
    ClaimSpec,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    DeviceResult,
    Request,
    Selectors,
)
from allocator.audit import Answer, NotChecked, Opinion, SecondLook, SecondOpinion
from allocator.audit.second_opinion import MOST_COST

GPU = Device(DeviceId("gpu.example.com", "pool", "gpu-0"), attributes={"gpu.example.com/model": "a100"}, quantities={})
CLASSES = {"gpu": DeviceClass("gpu", selectors=('device.driver == "gpu.example.com"',)), "any": DeviceClass("any")}
DEAR = f"{[*range(100)]}.all(x, {[*range(100)]}.all(y, x + y >= 0))"


@dataclass
class Says:
    """An engine that says the same of each selector, and remembers what it was asked."""

    answer: Opinion
    asked: list[str] = field(default_factory=list)
    name: str = "another engine"

    def judge(self, selector: str, device: Device) -> Opinion:
        assert device is GPU
        self.asked.append(selector)
        return self.answer


def claim(*selectors: str, of: str = "gpu") -> Claim:
    request = DeviceRequest(of, selectors=selectors)
    spec = ClaimSpec((Request("gpu", (request,)),))
    allocation = AllocationResult((DeviceResult("gpu", GPU.id),))
    return Claim("demo", "one", "uid", spec, allocation=allocation)


def looks(engine: Says, asks: Claim, published: Device | None = GPU) -> list[SecondLook]:
    return list(SecondOpinion(Selectors(), engine).looks(asks, CLASSES, lambda _: published))


def test_the_selectors_of_class_and_request_are_judged() -> None:
    engine = Says(Answer.TRUE)
    assert [look.result for look in looks(engine, claim("true"))] == ["agree"]
    assert engine.asked == ['device.driver == "gpu.example.com"', "true"]


@pytest.mark.parametrize(
    ("selector", "theirs", "said"),
    [
        ("true", Answer.FALSE, "'true': true by our engine, false by another engine"),
        ("false", Answer.TRUE, "'false': false by our engine, true by another engine"),
        ("1 / 0 == 1", Answer.TRUE, "'1 / 0 == 1': fails by our engine, true by another engine"),
        ("1 == 1", Answer.FAILS, "'1 == 1': true by our engine, fails by another engine"),
    ],
)
def test_a_disagreement_is_a_finding_with_both_answers(selector: str, theirs: Answer, said: str) -> None:
    (look,) = looks(Says(theirs), claim(selector, of="any"))
    (finding,) = look.findings
    assert look.result == "disagree"
    where = "two engines disagree about a selector: claim demo/one, device gpu.example.com/pool/gpu-0"
    assert str(finding) == f"{where}: request gpu: {said}"


@pytest.mark.parametrize(
    ("selector", "why", "asked"),
    [
        ("true", "no reason", True),
        ("device.driver ==", "the selector does not compile", False),
        (DEAR, f"the selector costs more than {MOST_COST:,}", False),
    ],
)
def test_what_is_not_checked_is_not_claimed(selector: str, why: str, asked: bool) -> None:
    engine = Says(NotChecked("no reason"))
    (look,) = looks(engine, claim(selector, of="any"))
    assert (look.result, look.not_checked, look.findings) == ("not_checked", why, ())
    assert engine.asked == [selector] * asked


def test_time_that_is_up_is_no_answer() -> None:
    second = SecondOpinion(Selectors(), Says(Answer.TRUE), lambda: True)
    (look,) = second.looks(claim(DEAR, of="any"), CLASSES, lambda _: GPU)
    assert look.not_checked == "our engine needs too long"


def test_where_there_is_nothing_to_check_there_is_no_look() -> None:
    engine = Says(Answer.FALSE)
    assert looks(engine, claim("true"), published=None) == []
    assert looks(engine, claim(of="any")) == []
    assert looks(engine, replace(claim("true"), allocation=None)) == []
    assert engine.asked == []
