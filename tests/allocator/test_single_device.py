"""What is told without a search is what the search would find: over all that may be held of a node's devices."""

import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import (
    Allocation,
    Claim,
    Device,
    DeviceId,
    DeviceTaint,
    Features,
    Limits,
    Node,
    NodeSelector,
    Placement,
    SearchLimitError,
    Slice,
    Usage,
)
from allocator.checks import NO_RULES
from allocator.equivalence import (
    KnownFacts,
    NotFound,
    Single,
    attribute_reads_of,
    device_circumstances,
    is_single,
    single_of,
)
from allocator.model.features import ALL_FEATURES
from allocator.node_selectors import NODE_OPERATIONS_FEATURE
from allocator.policies import BEST_FIT, FIRST_FIT, POLICIES, Merit, Policy, fragmentation
from allocator.search import SearchBudget
from allocator.usage import NOTHING_USED
from tests.allocator.worlds import (
    DRIVER,
    JUST_HERE,
    NODE,
    SELECTORS,
    TICK,
    World,
    alternative,
    claim,
    device,
    first_of,
    held,
    pool,
    same,
    ticks,
    want,
)

BY_FRAGMENTATION = fragmentation([f"{DRIVER}/fast"])
WITH_SHORTCUT = [each for each in (*POLICIES.values(), BY_FRAGMENTATION) if each.single is not None]
EACH_POLICY = pytest.mark.parametrize("policy", [FIRST_FIT, BEST_FIT, BY_FRAGMENTATION], ids=lambda p: p.name)
IS_FAST = f"device.attributes['{DRIVER}'].fast"


def single(world: World, wanted: Claim, known: KnownFacts | None = None, **limits: Any) -> Single | None:
    budget = SearchBudget(Limits(**limits), ticks())
    task = world.task(wanted)
    reads = attribute_reads_of(task.claims, task.classes, SELECTORS, budget, world.policy)
    return single_of(task, SELECTORS, world.policy, reads, budget, known or KnownFacts(world.policy.reads))


def told(world: World, found: Single, usage: Usage) -> Merit | str | None:
    """What is told of the world's node where this is held."""
    pools = world.task().pools
    states = [device_circumstances(p, NODE, usage.pools.get(p.id, NOTHING_USED), NO_RULES) for p in pools]
    answer = found.answer(states)
    if answer is None:
        return None
    return answer if isinstance(answer, Merit) else answer.reason.in_words()


def searched(world: World, wanted: Claim, usage: Usage) -> Merit | str:
    answer = replace(world, usage=usage).allocate(wanted)
    return answer.merit if isinstance(answer, Allocation) else answer.reason.in_words()


@pytest.mark.parametrize("policy", WITH_SHORTCUT, ids=lambda policy: policy.name)
def test_a_node_with_many_devices_that_are_alike_takes_little_memory(policy: Policy) -> None:
    """A signature is remembered with what it needs of such a node, and so are 64 signatures."""
    world = World(pool(*[device(f"d{number}", {"fast": True}) for number in range(5_000)]), policy=policy)
    assert single(world, claim(want("gpu", 1, IS_FAST)))  # the selector is compiled, and the parser loaded
    gc.collect()
    tracemalloc.start()
    try:
        found = single(world, claim(want("gpu", 1, IS_FAST)))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert taken < 5_000 * 50


def test_devices_that_are_alike_are_judged_once() -> None:
    """Each judgement reads the clock, so that with 40 readings only a few devices can be judged."""
    devices = [device(f"d{number}", {"fast": number % 2 == 0, "uuid": f"u{number}"}) for number in range(100)]
    world = World(pool(*devices))
    assert single(world, claim(want("gpu", 1, IS_FAST)), seconds=40 * TICK)


def test_partitions_are_judged_once_for_all_hardware() -> None:
    parts = [
        device(f"gpu-{gpu}-{part}", {"fast": True}, draws={f"gpu-{gpu}": {"units": 1}})
        for gpu in range(20)
        for part in range(5)
    ]
    counters = {f"gpu-{gpu}": {"units": 5} for gpu in range(20)}
    world = World(pool(*parts, counters=counters, slice_count=2))
    assert single(world, claim(want("gpu", 1, IS_FAST)), seconds=40 * TICK)


# --- the law ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    world: World
    usages: list[Usage]
    wanted: Claim


@st.composite
def parts(draw: st.DrawFn, name: str, pool_name: str) -> Device:
    """A device that may draw on counters, of one set or of two, and perhaps more than there is."""
    sets = draw(st.lists(st.sampled_from(["a", "a", "b", "c"]), max_size=2, unique=True))
    draws = {each: {"units": draw(st.integers(0, 2)), **draw(st.sampled_from([{}, {"more": 1}]))} for each in sets}
    sizes = draw(st.dictionaries(st.sampled_from(["memory", "cores"]), st.sampled_from(["1", "2", "3"])))
    taints = draw(st.sampled_from([(), (), (), (DeviceTaint("sick", "NoSchedule"),)]))
    fast = draw(st.sampled_from([True, True, False]))
    return device(name, {"fast": fast}, draws=draws, capacity=sizes, pool=pool_name, taints=taints)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    slices: list[Slice] = []
    ids: list[DeviceId] = []
    for name in draw(st.sampled_from([("p",), ("p",), ("p", "q")])):
        devices = [draw(parts(f"d{i}", name)) for i in range(draw(st.integers(1, 6)))]
        far = [draw(parts(f"far-{i}", name)) for i in range(draw(st.sampled_from([0, 0, 2])))]
        counters = {each: {"units": draw(st.integers(0, 4)), "more": 2} for each in "abc"}
        count = 3 if far else 2
        slices += pool(*devices, counters=counters, slice_count=count)
        if far:
            elsewhere = Placement(node_name="node-2")
            slices.append(Slice(f"{name}-far", devices[0].id.pool_id, 1, count, elsewhere, devices=tuple(far)))
        ids += [each.id for each in (*devices, *far)]
    usages = draw(st.lists(st.lists(st.sampled_from(ids), unique=True).map(Usage.of), min_size=1, max_size=5))
    policy = draw(st.sampled_from(WITH_SHORTCUT))
    off = () if policy.weighs_leftover else (Features(partitionable_devices=False),)
    features = draw(st.sampled_from([Features(), Features(), ALL_FEATURES, *off]))
    wanted = claim(want("gpu", 1, *draw(st.sampled_from([(), (IS_FAST,)]))))
    return Scene(World(slices, features=features, policy=policy), usages, wanted)


@given(scenes())
def test_the_answer_is_that_of_a_search(scene: Scene) -> None:
    found = single(scene.world, scene.wanted)
    assert found is not None
    for usage in scene.usages:
        answer = told(scene.world, found, usage)
        assert answer in (None, searched(scene.world, scene.wanted, usage))
        if answer is None:
            assert is_overdrawn(scene, usage)


def is_overdrawn(scene: Scene, usage: Usage) -> bool:
    full: dict[tuple[str, str, str], int] = {}
    for each in scene.world.slices:
        for name, counters in each.counter_sets:
            full |= {(each.pool.pool, name, counter): amount.nano for counter, amount in counters.items()}
    for part in (d for s in scene.world.slices for d in s.devices if not usage.device(d.id).is_free):
        for consumed in part.consumes_counters:
            for counter, amount in consumed.counters.items():
                full[part.id.pool, consumed.counter_set, counter] -= amount.nano
    return min(full.values()) < 0


# --- what is worked out once ----------------------------------------------------------------------------------


def gpus(count: int) -> World:
    """Each a whole and seven parts."""
    wholes = [device(f"gpu-{g}", {"fast": False}, draws={f"gpu-{g}": {"parts": 7}}) for g in range(count)]
    small = [
        device(f"gpu-{g}-{p}", {"fast": True}, draws={f"gpu-{g}": {"parts": 1}}) for g in range(count) for p in range(7)
    ]
    return World(pool(*wholes, *small, counters={f"gpu-{g}": {"parts": 7} for g in range(count)}), policy=BEST_FIT)


def test_a_gpu_that_is_broken_already_goes_first() -> None:
    world = gpus(2)
    found = single(world, claim(want("gpu", 1, IS_FAST)))
    assert found is not None
    assert told(world, found, Usage()) == Merit(free=15 / 16, broken=1)
    assert told(world, found, held("gpu-1-3")) == Merit(free=14 / 16, broken=0)


def test_what_is_left_of_a_gpu_counts_each_model_of_its_devices() -> None:
    world = replace(gpus(2), policy=BY_FRAGMENTATION)
    found = single(world, claim(want("gpu", 1, IS_FAST)))
    assert found is not None
    merit = told(world, found, Usage())
    assert isinstance(merit, Merit)
    before, after = ({kind[0].attributes[0][2]: count for kind, count in left} for left in (merit.before, merit.after))
    assert (before, after) == ({True: 14, False: 2}, {True: 13, False: 1})


def test_without_a_device_the_causes_are_told() -> None:
    world = gpus(2)
    found = single(world, claim(want("gpu", 1, f"!{IS_FAST}")))
    assert found is not None
    assert told(world, found, held("gpu-0-1", "gpu-1-1")) == "not enough shared counters for request gpu"
    assert told(world, found, held("gpu-0", "gpu-1")) == "no free device for request gpu"


def test_nodes_with_equal_merits_get_equal_answers() -> None:
    found = single(gpus(3), claim(want("gpu", 1, IS_FAST)))
    assert found is not None
    positions = [7 + 3, 7 + 12]
    answers = {found.answer([tuple(int(i == at) for i in range(24))]) for at in positions}
    assert answers == {Merit(free=22 / 24)}


def test_a_node_without_devices_is_unreachable() -> None:
    found = single(World([]), claim(want("gpu")))
    assert found is not None
    assert found.answer([]) == NotFound("gpu", frozenset())
    assert told(World([]), found, Usage()) == searched(World([]), claim(want("gpu")), Usage())


@pytest.mark.parametrize("policy", WITH_SHORTCUT, ids=lambda policy: policy.name)
def test_of_equal_devices_it_matters_how_many_are_held(policy: Policy) -> None:
    devices = [device(f"d{number}", {"fast": True}, pool=name) for number, name in enumerate("ppqqq")]
    world = World([*pool(*devices[:2]), *pool(*devices[2:])], policy=policy)
    found = single(world, claim(want("gpu")))
    assert found is not None
    assert found.is_counted
    answers: dict[tuple[int, int], set[Merit | str | None]] = {}
    for held_ones in product((False, True), repeat=len(devices)):
        usage = Usage.of(each.id for each, is_held in zip(devices, held_ones, strict=True) if is_held)
        answers.setdefault((sum(held_ones[:2]), sum(held_ones[2:])), set()).add(told(world, found, usage))
    assert {len(each) for each in answers.values()} == {1}


@pytest.mark.parametrize("slices", [pool(device("a", {"fast": True}), device("b", {"fast": False})), gpus(1).slices])
def test_of_devices_that_differ_it_matters_which_are_held(slices: Sequence[Slice]) -> None:
    found = single(World(slices, policy=BEST_FIT), claim(want("gpu", 1, IS_FAST)))
    assert found is not None
    assert not found.is_counted


# --- what takes a search --------------------------------------------------------------------------------------

SEVERAL = [
    ("two devices", claim(want("gpu", 2))),
    ("all devices", claim(want("gpu", None))),
    ("two requests", claim(want("a"), want("b"))),
    ("a constraint", claim(want("gpu"), same("root"))),
    ("admin access", claim(want("gpu", admin_access=True))),
    ("alternatives", claim(first_of("gpu", alternative("one")))),
]


@pytest.mark.parametrize("wanted", [each[1] for each in SEVERAL], ids=[each[0] for each in SEVERAL])
def test_claims_for_more_than_one_device_need_a_search(wanted: Claim) -> None:
    assert not is_single([wanted])
    assert is_single([claim(want("gpu"))])
    assert not is_single([claim(want("gpu")), wanted])


def own(**fields: Any) -> list[Slice]:
    return [replace(each, **fields) for each in pool(device("gpu-0"))]


SHARED = device("gpu-0", capacity={"memory": "1Gi"}, allow_multiple_allocations=True)
TWO_TERMS = NodeSelector((*JUST_HERE.terms, *JUST_HERE.terms))
SPECIAL: list[tuple[str, Sequence[Slice], Claim]] = [
    ("a device that is shared", pool(SHARED), claim(want("gpu"))),
    ("node operations", own(skip_node_operations=("Prepare",)), claim(want("gpu"))),
    ("a place for each device", own(per_device_placement=True, placement=None), claim(want("gpu"))),
    ("a pool that is not complete", pool(device("gpu-0"), slice_count=2), claim(want("gpu"))),
    ("a node selector with two terms", own(placement=Placement(node_selector=TWO_TERMS)), claim(want("gpu"))),
    ("a selector that fails", pool(device("gpu-0")), claim(want("gpu", 1, IS_FAST))),
    ("a request for nothing", pool(device("gpu-0")), claim(replace(want("gpu"), alternatives=()))),
]


@EACH_POLICY
@pytest.mark.parametrize(("slices", "wanted"), [each[1:] for each in SPECIAL], ids=[each[0] for each in SPECIAL])
def test_devices_with_more_to_check_need_a_search(slices: Sequence[Slice], wanted: Claim, policy: Policy) -> None:
    features = replace(ALL_FEATURES, optional_node_operations=True)
    here = Node("node-1", declared_features=frozenset({NODE_OPERATIONS_FEATURE}))
    placed = [replace(d, placement=Placement(node_name="node-1")) for s in slices for d in s.devices]
    located = [replace(s, devices=tuple(placed)) if s.per_device_placement else s for s in slices]
    assert single(World(located, node=here, features=features, policy=policy), wanted) is None


def test_partitions_that_nobody_may_have_need_a_search_where_policies_weigh_what_is_left() -> None:
    """Their counters count in what is left, although no request gets them."""
    world = replace(gpus(1), features=Features(partitionable_devices=False), policy=BY_FRAGMENTATION)
    assert single(world, claim(want("gpu"))) is None


def test_a_limit_of_no_steps_is_an_error() -> None:
    with pytest.raises(SearchLimitError):
        single(gpus(1), claim(want("gpu")), steps=0)


def test_shares_need_a_search() -> None:
    found = single(World(pool(device("gpu-0"), device("gpu-1"))), claim(want("gpu")))
    assert found is not None
    assert found.answer([(0, (False, True, frozenset()))]) is None
    assert found.answer([(((), True), ((), True))]) is None
