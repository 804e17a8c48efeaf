"""Second looks in the background: what is looked at, how often, and what is told."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from allocator import Device, Selectors
from allocator.audit import Answer, NotChecked, Opinion
from extender.cluster.cluster_state import ClusterState
from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, SLICES
from extender.plugins.second_opinion.task import FIRST_SECONDS, MOST, SHARE, Disagreements, SecondOpinions
from extender.tools.offload import at_once
from tests.kit.clusters import claim, device_class, local_slice, node, request, solver
from tests.kit.servers.memory import memory_api

OURS = 'device.driver == "gpu.example.com"'


class Says:
    """An engine that says the same of each selector, and takes some time."""

    name = "another engine"

    def __init__(self, scene: "Scene", answer: Opinion, seconds: float) -> None:
        self._scene = scene
        self._answer = answer
        self._seconds = seconds

    def judge(self, selector: str, device: Device) -> Opinion:
        assert device.driver
        self._scene.asked.append(selector)
        self._scene.now += self._seconds
        return self._answer


class Scene:
    """A cluster and the task, with a clock that a test moves."""

    def __init__(self, *claims: RawObject, answer: Opinion = Answer.TRUE, seconds: float = 0.0) -> None:
        self.now = 100.0
        self.counted: Counter[str] = Counter()
        self.asked: list[str] = []
        self.made = 0
        self.disagreements = Disagreements()
        self._engine = Says(self, answer, seconds)
        self.api = memory_api(node("n"), device_class(selectors=[OURS]), local_slice("n", 4), *claims)
        self.state = ClusterState()
        self.api.follow(self.state)
        engines = (Selectors(), self._make)
        self.task = SecondOpinions(self.state, *engines, lambda: self.now, at_once, self._count, self.disagreements)

    def _make(self) -> Says:
        self.made += 1
        return self._engine

    def _count(self, result: str, devices: int) -> None:
        self.counted[result] += devices

    def problems(self) -> list[Problem]:
        """The disagreements as problems."""
        now = datetime(2026, 1, 1, tzinfo=UTC)
        return list(self.disagreements.problems(Look(self.state.snapshot, solver(), now, (), lambda: None)))

    async def allocate(self, claim: RawObject) -> None:
        """A claim that is made, and gets its allocation then."""
        await self.api.create(CLAIMS, claim)
        await self.api.patch_status(CLAIMS, ObjectKey("ns", claim["metadata"]["name"]), {"status": claim["status"]})

    async def turn(self) -> Counter[str]:
        """A turn that may look; what has been counted since the beginning."""
        self.now += 1_000.0
        await self.task.tick()
        return self.counted


def held(
    name: str, *devices: str, selectors: Sequence[str] = (), users: Sequence[str] = (), of: str = "ns"
) -> RawObject:
    asked = request(count=len(devices), selectors=selectors)
    metadata = {"namespace": of}
    return claim(name, asked, allocated=[f"n/{each}" for each in devices], at="n", users=users, metadata=metadata)


async def test_each_allocation_is_looked_at_once() -> None:
    scene = Scene(held("a", "gpu-0", "gpu-1", selectors=["true"]), claim("waits"))
    assert await scene.turn() == {"agree": 2}
    assert scene.asked == [OURS, "true"] * 2
    await scene.api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": {"reservedFor": []}})
    assert await scene.turn() == {"agree": 2}


async def test_an_allocation_that_appears_is_looked_at() -> None:
    scene = Scene(held("a", "gpu-0"))
    await scene.turn()
    await scene.allocate(held("b", "gpu-1"))
    assert await scene.turn() == {"agree": 2}


async def test_after_a_start_the_first_look_lets_others_have_the_time() -> None:
    scene = Scene(held("a", "gpu-0"))
    scene.now += FIRST_SECONDS - 0.1
    await scene.task.tick()
    assert (scene.made, scene.counted) == (0, {})
    assert scene.task.idle_seconds == pytest.approx(0.1)
    scene.now += 0.2
    await scene.task.tick()
    assert (scene.made, scene.counted) == (1, {"agree": 1})


async def test_without_an_allocation_there_is_no_engine() -> None:
    scene = Scene(claim("waits"))
    assert await scene.turn() == {}
    assert scene.made == 0


@pytest.mark.parametrize(
    ("answer", "counted"), [(Answer.FALSE, "disagree"), (Answer.FAILS, "disagree"), (NotChecked("x"), "not_checked")]
)
async def test_what_came_of_it_is_counted(answer: Opinion, counted: str) -> None:
    assert await Scene(held("a", "gpu-0"), answer=answer).turn() == {counted: 1}


async def test_a_disagreement_is_in_the_log_with_both_answers() -> None:
    with capture_logs() as logs:
        await Scene(held("a", "gpu-0"), answer=Answer.FALSE).turn()
    (line,) = logs
    assert line["event"] == "two engines disagree about a selector"
    assert "claim ns/a" in line["problem"]
    assert "true by our engine, false by another engine" in line["problem"]


async def test_a_disagreement_is_a_problem_until_the_claim_is_gone() -> None:
    scene = Scene(held("a", "gpu-0"), answer=Answer.FALSE)
    await scene.turn()
    (problem,) = scene.problems()
    assert (problem.cause, problem.kind, str(problem.key)) == ("engines-disagree", "ResourceClaim", "ns/a")
    assert "true by our engine, false by another engine" in problem.text
    await scene.api.delete(CLAIMS, ObjectKey("ns", "a"))
    assert scene.problems() == []
    await scene.turn()
    assert scene.problems() == []


async def test_looks_take_a_share_of_the_time() -> None:
    scene = Scene(*(held(f"c{number}", f"gpu-{number}") for number in range(4)), seconds=1.0)
    assert await scene.turn() == {"agree": 1}  # a look that has begun ends; the others wait
    scene.now += 0.9 / SHARE
    await scene.task.tick()
    assert scene.counted == {"agree": 1}
    scene.now += 0.2 / SHARE
    await scene.task.tick()
    assert scene.counted == {"agree": 2}


async def test_claims_and_devices_that_are_gone_are_left_out() -> None:
    scene = Scene(held("a", "gpu-0"), held("b", "gpu-1"), seconds=1.0)
    await scene.turn()
    await scene.api.delete(CLAIMS, ObjectKey("ns", "b"))
    await scene.turn()
    await scene.api.delete(SLICES, ObjectKey("", "slice-n"))
    await scene.allocate(held("c", "gpu-2"))
    assert await scene.turn() == {"agree": 1}


async def test_claims_beyond_the_bound_are_counted_as_skipped() -> None:
    scene = Scene(*(held(f"c{number}", "gpu-0") for number in range(MOST + 2)), seconds=1.0)
    assert await scene.turn() == {"agree": 1, "skipped": 2}


# --- two namespaces, one with very many claims --------------------------------------------------------------


async def test_the_claims_of_one_namespace_do_not_delay_the_looks_of_another() -> None:
    many = [held(f"c{number}", "gpu-0") for number in range(5)]
    theirs = [held(each, "gpu-1", selectors=[f"'{each}' != ''"], of=each) for each in ("aa", "zz")]
    scene = Scene(*many, *theirs, seconds=1.0)
    for _ in range(3):
        await scene.turn()
    assert {"'aa' != ''", "'zz' != ''"} <= set(scene.asked)


async def test_nor_are_its_claims_looked_at_again_because_of_them() -> None:
    scene = Scene(held("own", "gpu-1", selectors=["1 == 1"], of="zz"))
    await scene.turn()
    for number in range(MOST):
        scene.api.load(CLAIMS, held(f"c{number}", "gpu-0"))
    scene.api.follow(scene.state)
    for _ in range(3):
        await scene.turn()
    await scene.api.patch_status(CLAIMS, ObjectKey("zz", "own"), {"status": {"reservedFor": []}})
    await scene.turn()
    assert scene.asked.count("1 == 1") == 1
