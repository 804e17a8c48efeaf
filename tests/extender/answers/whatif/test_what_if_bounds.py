"""What an answer leaves out, because its work has bounds: it is told with the pods that it concerns."""

import math
from dataclasses import replace

from extender.answers.whatif.answer import MOST_PREEMPTIONS, WhatIfAnswer
from extender.answers.whatif.answering import WhatIf
from extender.answers.whatif.question import read_question
from extender.planning.templates import Catalog
from extender.tools.faults import RefusedError
from tests.extender.answers.whatif.test_what_if import asked, world
from tests.kit.clusters import Cluster, claim, pod

ANY = {"name": "gpu", "deviceClassName": "gpu"}


async def test_pods_that_ask_for_the_same_are_told_the_same_evictions() -> None:
    requests = [{"name": "gpu", "deviceClassName": "gpu"}]
    answer = await asked({"pods": [{"namespace": "ns", "count": 40, "priority": 5, "requests": requests}]})
    waiting = [each for each in answer["pods"] if each["origin"] == "new" and not each["then"]["node"]]
    assert len(waiting) == 38
    assert {victim["pod"] for each in waiting for victim in each["preemption"]["victims"]} == {"ns/runs"}
    assert answer["unexamined"] is None


async def test_evictions_that_are_not_known_are_told_with_their_pods() -> None:
    pods = [
        {"namespace": "ns", "name": f"n{number}", "priority": 5, "requests": [{**ANY, "count": number + 3}]}
        for number in range(MOST_PREEMPTIONS + 2)
    ]
    answer = await asked({"pods": pods})
    assert len(answer["unexamined"]["pods"]) == 3  # "ns/many" waits, too
    assert f"at most {MOST_PREEMPTIONS} different requests" in answer["unexamined"]["text"]
    assert f"{answer['unexamined']['text']}: {', '.join(answer['unexamined']['pods'])}\n" in answer["text"]


class StoppingClock:
    """Stands still, until all time is up after a number of looks; counts the looks."""

    def __init__(self, looks: float = math.inf) -> None:
        self.looks = looks
        self.looked = 0

    def __call__(self) -> float:
        self.looked += 1
        return 0.0 if self.looked <= self.looks else 1e9


async def answer_by(clock: StoppingClock) -> WhatIfAnswer | None:
    """Node a is drained and gives up a pod, while others wait; None if the answer is refused."""
    others = (each for number in range(3) for each in (claim(f"c{number}"), pod(f"other-{number}", f"c{number}")))
    overview = Cluster.of(*world(), *others).extender().overview
    overview.decider.solver = replace(overview.decider.solver, clock=clock)
    try:
        return await WhatIf(overview, Catalog(), preempts=True).ask(read_question({"drain": ["a"]}))
    except RefusedError:
        return None


async def test_an_answer_whose_time_is_up_tells_what_is_known_and_nothing_else() -> None:
    clock = StoppingClock()
    full = await answer_by(clock)
    assert full is not None
    whole = {each.pod: each.then for each in full.pods}
    unknown = set()
    for looks in range(clock.looked):
        found = await answer_by(StoppingClock(looks))
        if found is None:
            continue
        assert {each.pod for each in found.pods} == whole.keys()
        late = [each.pod for each in found.pods if each.then is None]
        assert all(each.then in (None, whole[each.pod]) for each in found.pods)
        assert any("the time was up" in note for note in found.notes) == bool(late)
        assert str(found).count("had no turn in time: ") == bool(late)
        unknown.add(len(late))
    assert {0, len(whole)} < unknown
