"""Immediate claims of several namespaces: one namespace delays no other, whatever it writes on its claims."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.objects.claims import ClaimObject, parse_claim_object, priority_of
from extender.framework.bind_errors import BindError
from extender.framework.decisions.evaluate import Decider
from extender.framework.leased_work import MOST_LONG, PIECE_SECONDS
from extender.framework.pods.claims import stand_in
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from extender.plugins.immediate_claims import MOST_CLAIMS, best_node, in_order
from tests.extender.plugins.immediate_claims.test_immediate_claims import ROOM, Scene, immediate
from tests.kit import virtualtime
from tests.kit.binders import devices_of
from tests.kit.clusters import Object, request, solver, state_of
from tests.kit.virtualtime import in_virtual_time

T = TypeVar("T")

NEVER = request(selectors=["false"])


def of_namespace(namespace: str, *claims: Object) -> list[Object]:
    return [
        each
        | {"metadata": each["metadata"] | {"namespace": namespace, "uid": f"{namespace}-{each['metadata']['name']}"}}
        for each in claims
    ]


class Slow(Scene):
    """Searches take a while, in virtual time. The clock of the task is that of the loop."""

    def __init__(self, *objects: Object, seconds: float) -> None:
        super().__init__(*objects)
        self.seconds = seconds
        self.searches = 0
        self.task = self.task_over(self.off_loop)

    async def off_loop(self, work: Callable[[], T]) -> T:
        self.searches += 1
        await virtualtime.elapse(self.seconds)
        return work()

    async def until_allocated(self, namespace: str, name: str, *, within: float) -> float:
        """Give turns until a claim has its devices; returns the seconds that this took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() - began < within:
            raw = await self.api.get(CLAIMS, ObjectKey(namespace, name))
            if list(devices_of(raw)):
                return loop.time() - began
            await self.task.tick()
            await virtualtime.elapse(0.2)
            self.passed = timedelta(seconds=loop.time())
        raise AssertionError(f"not allocated within {within} s")


@in_virtual_time
async def test_many_claims_of_the_highest_priority_whose_searches_take_long_delay_no_other_namespace() -> None:
    hostile = (immediate(f"c{number}", NEVER, priority="2147483647") for number in range(200))
    scene = Slow(*ROOM, *of_namespace("a", *hostile), seconds=2.0)
    for _ in range(20):
        await scene.task.tick()
        await virtualtime.elapse(0.2)
    await scene.api.create(CLAIMS, of_namespace("b", immediate("mine"))[0])
    scene.seconds = 0.0
    assert (await scene.until_allocated("b", "mine", within=10.0)) < 1.0


@in_virtual_time
async def test_of_one_namespace_one_search_goes_on_after_the_turn_and_of_all_some() -> None:
    claims = [
        each
        for number in range(2 * MOST_LONG)
        for each in of_namespace(f"n{number}", immediate("c", NEVER), immediate("d", NEVER))
    ]
    scene = Slow(*ROOM, *claims, seconds=60.0)
    for _ in range(5):
        await scene.task.tick()
    assert len(scene.task.unfinished) == MOST_LONG == scene.searches


@in_virtual_time
async def test_a_turn_waits_for_a_search_no_longer_than_its_bound() -> None:
    scene = Slow(*ROOM, immediate("c", NEVER), seconds=60.0)
    began = asyncio.get_running_loop().time()
    await scene.task.tick()
    await scene.task.tick()
    assert (asyncio.get_running_loop().time() - began) <= PIECE_SECONDS * 1.01


CLAIMS_OF_SEVERAL = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-3, 3), st.integers(1, 9)), max_size=12, unique=True
)


@given(CLAIMS_OF_SEVERAL)
def test_a_priority_orders_the_claims_of_its_namespace_and_moves_no_other(
    found: Sequence[tuple[str, int, int]],
) -> None:
    claims = [_claim(f"c{number}", *each) for number, each in enumerate(found)]
    plain = [_claim(f"c{number}", namespace, 0, day) for number, (namespace, _, day) in enumerate(found)]
    ordered, without = (in_order(each, lambda claim: claim) for each in (claims, plain))
    assert [each.key.namespace for each in ordered] == [each.key.namespace for each in without]
    for namespace in "abc":
        own = [(-priority_of(each.claim), each.created) for each in ordered if each.key.namespace == namespace]
        assert own == sorted(own)


def _claim(name: str, namespace: str, priority: int, day: int) -> ClaimObject:
    (raw,) = of_namespace(namespace, immediate(name, created=f"2026-01-0{day}T00:00:00Z", priority=str(priority)))
    return parse_claim_object(raw)


@in_virtual_time
async def test_many_hopeless_claims_of_one_namespace_are_all_tried_and_take_no_place_of_others() -> None:
    hopeless = [immediate(f"c{number}", NEVER) for number in range(MOST_CLAIMS + 50)]
    scene = Slow(*ROOM, *of_namespace("a", *hopeless), seconds=0.0)
    for _ in range(20):
        await scene.task.tick()
        scene.passed += timedelta(seconds=0.2)
    tried = scene.searches
    await scene.api.create(CLAIMS, of_namespace("b", immediate("mine"))[0])
    await scene.until_allocated("b", "mine", within=1.0)
    assert tried >= len(hopeless)


DIGITS = "[0,1,2,3,4,5,6,7,8,9]"
SLOW = request(selectors=[f"{DIGITS}.all(a, {DIGITS}.all(b, {DIGITS}.all(c, {DIGITS}.all(d, a + b >= 0)))) && false"])


def test_the_search_for_a_claim_that_is_deleted_meanwhile_ends_at_its_next_look_at_the_clock() -> None:
    """A search may take two seconds in a fifth of the interpreter: ten seconds for nobody."""
    state = state_of((*ROOM, immediate("c", SLOW)))
    (found,) = state.snapshot.claims.values()
    looks = 0

    def is_wanted() -> bool:
        nonlocal looks
        looks += 1
        return looks < 5

    with pytest.raises(BindError, match="out of time"):
        best_node(stand_in(found.claim), None, state.snapshot, Decider(solver(), state), is_wanted)
    assert looks < 10
