"""What is decided once, what again, and that nodes which differ in anything that counts are not taken for one."""

import gc
from dataclasses import replace
from types import FrameType

import pytest

from allocator import AllocationResult, Device, DeviceId, DeviceResult, Features, Limits, Selectors
from allocator.cel import Expired, never
from allocator.model.features import ALL_FEATURES
from allocator.policies import BEST_FIT, Policy, fragmentation
from allocator.pools import NodePool
from extender.cluster.indexes import ANY_NODE_SUITS
from extender.cluster.objects.nodes import parse_node_object
from extender.framework.decisions.evaluate import MOST_NEW_NODES, Decided, Decider, Lookup
from extender.framework.decisions.node_index import NodeIndex, NodeViewBuilder, Numbers, VerdictIndex
from extender.framework.decisions.verdict import NOT_KNOWN, UNDECIDED, Verdict, Verdicts
from extender.kube.api import EventType
from tests.extender.framework.decisions.scenes import NAMES, Scene, asked, named, pool_of, texts
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Object,
    device_class,
    local_slice,
    network_slice,
    node,
    request,
    solver,
    state_of,
    taint_rule,
)

MODEL = f'device.attributes["{DRIVER}"].model == "x"'
ROOT = f"{DRIVER}/root"


def yes(decided: Decided) -> list[bool]:
    return [verdict.merit is not None for verdict in decided.verdicts]


def three(*devices: Object) -> list[Object]:
    """Three nodes that are alike."""
    return [GPU, *map(node, NAMES), *(pool_of(name, *devices) for name in NAMES)]


# --- once for all that are alike ---------------------------------------------------------------------------


def test_nodes_that_are_alike_are_decided_once() -> None:
    scene = Scene(*three({}, {}))
    decided = scene.ask()
    assert (yes(decided), scene.solved) == ([True] * 3, 1)
    assert len(set(decided.verdicts)) == 1


def test_an_attribute_that_nobody_reads_makes_no_difference() -> None:
    pools = [pool_of(name, texts(model="x", uuid=name)) for name in NAMES]
    scene = Scene(GPU, *map(node, NAMES), *pools)
    assert yes(scene.ask(request(selectors=[MODEL]))) == [True] * 3
    assert scene.solved == 1


def test_which_of_devices_that_are_alike_is_held_makes_no_difference() -> None:
    scene = Scene(*three({}, {}, {}))
    scene.takes("a", "gpu-0", uid="uid-1")
    scene.takes("b", "gpu-2", uid="uid-2")
    assert yes(scene.ask()) == [True] * 3
    assert scene.solved == 2


def test_which_device_is_held_makes_a_difference_if_a_rule_taints_one_of_them() -> None:
    scene = Scene(*three({}, {}, {}))
    scene.happens(taint_rule("r", device="gpu-0"))
    scene.takes("a", "gpu-0", uid="uid-1")
    scene.takes("b", "gpu-1", uid="uid-2")
    assert yes(scene.ask(request(count=2))) == [True, False, True]


def test_under_match_attribute_it_makes_no_difference_what_the_common_values_are() -> None:
    pools = [pool_of(name, texts(root=f"{name}-0"), texts(root=f"{name}-0"), texts(root="1")) for name in NAMES]
    scene = Scene(GPU, *map(node, NAMES), *pools)
    assert (yes(scene.ask(request(count=2), match=ROOT)), scene.solved) == ([True] * 3, 1)


def test_under_match_attribute_a_value_of_an_unknown_type_is_not_taken_for_no_value() -> None:
    roots: tuple[Object, ...] = ({}, {"attributes": {"root": {}}}, texts(root="1"))
    pools = [pool_of(name, device) for name, device in zip(NAMES, roots, strict=True)]
    features = replace(ALL_FEATURES, list_type_attributes=False)
    scene = Scene(device_class("gpu"), *map(node, NAMES), *pools, features=features)
    assert (yes(scene.ask(request(), match=ROOT)), scene.solved) == ([False, True, True], 3)


# --- what is known stays known -----------------------------------------------------------------------------


def test_the_next_pod_of_a_shape_costs_nothing_whatever_its_claim_is_called() -> None:
    scene = Scene(*three({}))
    before = scene.ask(pod="p")
    after = scene.ask(pod="q")
    assert (scene.solved, list(after.verdicts)) == (0, list(before.verdicts))


def test_after_a_change_only_its_node_is_decided_again() -> None:
    scene = Scene(*three({}, {}))
    scene.ask(request(count=2))
    scene.takes("b", "gpu-0")
    assert (yes(scene.ask(request(count=2))), scene.solved) == ([True, False, True], 1)


CHANGES: list[tuple[str, Object, EventType]] = [
    ("devices gone", pool_of("b"), EventType.MODIFIED),
    ("a slice gone", pool_of("b"), EventType.DELETED),
    ("a slice of another node now", local_slice("b") | {"spec": local_slice("d")["spec"]}, EventType.MODIFIED),
    ("a taint rule", taint_rule("r", pool="b"), EventType.ADDED),
    ("a node gone", node("b"), EventType.DELETED),
]


@pytest.mark.parametrize(("raw", "kind"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES])
def test_what_changes_is_noticed(raw: Object, kind: EventType) -> None:
    scene = Scene(*three({}))
    assert yes(scene.ask()) == [True] * 3
    scene.happens(raw, kind)
    assert yes(scene.ask()) == [True, False, True]


def test_another_class_is_another_shape() -> None:
    scene = Scene(*three({}))
    scene.ask()
    scene.happens(device_class(selectors=["false"]))
    assert yes(scene.ask()) == [False] * 3


def test_what_is_held_of_a_pool_that_all_nodes_reach_concerns_all_of_them() -> None:
    scene = Scene(GPU, *map(node, NAMES), network_slice("net"))
    assert yes(scene.ask()) == [True] * 3
    scene.takes("net", "gpu-0")
    assert (yes(scene.ask()), scene.solved) == ([False] * 3, 1)
    scene.state.forget("uid-other")
    assert yes(scene.ask()) == [True] * 3


def test_nodes_that_hold_different_devices_of_their_own_are_answered_about_a_pool_of_all_without_a_search() -> None:
    mine = [pool_of(name, *[texts(model="y")] * 2) for name in NAMES]
    scene = Scene(GPU, *map(node, NAMES), *mine, network_slice("net", 2, **texts(model="x")))
    selectors = Counted()
    scene.decider = Decider(replace(scene.decider.solver, selectors=selectors), scene.state)
    wanted = request(selectors=[MODEL])
    assert yes(scene.ask(wanted)) == [True] * 3
    before = selectors.count
    scene.takes("a", "gpu-0", uid="uid-1")
    scene.takes("b", "gpu-1", uid="uid-2")
    scene.takes("net", "gpu-0", uid="uid-3")
    assert yes(scene.ask(wanted)) == [True] * 3
    scene.takes("net", "gpu-1", uid="uid-4")
    assert yes(scene.ask(wanted)) == [False] * 3
    assert selectors.count == before


def test_when_the_log_does_not_go_back_that_far_everything_is_looked_at_again() -> None:
    scene = Scene(*three({}))
    scene.decider = Decider(solver(), None)
    scene.ask()
    scene.takes("b", "gpu-0")
    assert yes(scene.ask()) == [True, False, True]


def test_what_holds_in_a_fork_is_not_taken_for_the_cluster() -> None:
    scene = Scene(*three({}))
    scene.ask()
    base = scene.state.snapshot
    held = AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "b", "gpu-0")),))
    fork = base._replace(usage=base.usage.with_allocation(held))
    assert yes(scene.decide(asked(), fork, NAMES)) == [True, False, True]
    assert yes(scene.ask()) == [True] * 3


def test_a_fork_with_other_answers_of_controllers_has_the_node_views_of_the_cluster() -> None:
    scene = Scene(*three({}))
    base = NodeIndex.of(scene.state.snapshot, NodeViewBuilder(Features()))
    fork = base.snapshot._replace(answers=base.snapshot.answers.set("uid", ANY_NODE_SUITS))
    assert base.forked(fork) is base
    assert base.forked(fork._replace(version=fork.version + 1)) is not base


def test_a_node_that_was_sent_counts_as_it_was_sent_and_no_further() -> None:
    zoned = network_slice("net")
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    zoned["spec"] = {**zoned["spec"], "nodeSelector": {"nodeSelectorTerms": terms}}
    del zoned["spec"]["allNodes"]
    scene = Scene(GPU, *map(node, NAMES), zoned)
    assert yes(scene.ask()) == [False] * 3
    sent = {name: parse_node_object(node(name, labels={"zone": "z"} if name == "b" else {})) for name in NAMES}
    assert yes(scene.decide(asked(), scene.state.snapshot, NAMES, sent)) == [False, True, False]
    assert yes(scene.ask()) == [False] * 3


def test_a_search_that_was_stopped_is_tried_again_with_the_next_pod_but_once_for_all_alike() -> None:
    scene = Scene(*three({}), limits=Limits(steps=0))
    for _ in range(2):
        assert yes(scene.ask()) == [False] * 3
        assert scene.solved == 1


def test_what_is_remembered_of_nodes_that_are_no_more_is_forgotten() -> None:
    scene = Scene(*three({}))
    for _ in range(2000):
        scene.takes("b", "gpu-0")
        scene.ask()
        scene.state.forget("uid-other")
        scene.ask()
    (cache,) = scene.decider._caches.values()
    assert len(cache.fingerprints) < 2000


@pytest.mark.parametrize("selectors", [(), (MODEL,)], ids=["nothing is read", "a selector reads what changes"])
def test_a_large_pool_that_changes_all_the_time_is_not_kept_as_it_was(selectors: tuple[str, ...]) -> None:
    slices, of_slice = 40, 128

    def piece(number: int, changed: str) -> Object:
        made = [{"name": f"gpu-{number}-{i}", **texts(model=changed if i else "x")} for i in range(of_slice)]
        return named(local_slice("a"), f"a-{number}", slices=slices, devices=made)

    def pools() -> int:
        gc.collect()
        return sum(isinstance(each, NodePool) for each in gc.get_objects())

    of_others = pools()
    scene = Scene(GPU, node("a"), *(piece(number, "x") for number in range(slices)))
    for number in range(60):
        scene.happens(piece(number % slices, str(number)))
        assert yes(scene.ask(request(selectors=selectors), names=("a",))) == [True]
    (cache,) = scene.decider._caches.values()
    devices = slices * of_slice
    assert max(len(cache.fingerprints), len(cache.singles), len(cache.known.by_node_view)) <= 2
    assert pools() - of_others <= 2 + 200_000 // devices


@pytest.mark.parametrize("published", [local_slice("a"), network_slice("net")], ids=["of a node", "of all nodes"])
@pytest.mark.parametrize("policy", [BEST_FIT, fragmentation([f"{DRIVER}/model"])], ids=lambda policy: policy.name)
def test_after_a_change_of_one_slice_selectors_are_evaluated_on_its_devices_alone(
    policy: Policy, published: Object
) -> None:
    slices, of_slice = 12, 20

    def piece(number: int, changed: str = "") -> Object:
        made = [{"name": f"gpu-{number}-{i}", **texts(model="x", uuid=f"{changed}{i}")} for i in range(of_slice)]
        return named(published, f"a-{number}", slices=slices, devices=made)

    scene = Scene(GPU, node("a"), *(piece(number) for number in range(slices)))
    selectors = Counted()
    scene.decider = Decider(replace(scene.decider.solver, selectors=selectors, policy=policy), scene.state)
    uuid = request(selectors=[f'{MODEL} && device.attributes["{DRIVER}"].uuid != "none"'])
    assert yes(scene.ask(uuid, names=("a",))) == [True]
    before = selectors.count
    scene.happens(piece(3, "new-"))
    assert yes(scene.ask(uuid, names=("a",))) == [True]
    evaluations = 4  # a selector of the class and one of the request, for a free device and for a held one
    assert selectors.count - before == evaluations * of_slice


def test_large_values_have_fewer_numbers() -> None:
    numbers = Numbers(limit=1_000)
    before = numbers.of("short")
    for number in range(10):
        numbers.of((number,) * 500)
    assert numbers.of("short") != before


def test_a_number_is_never_given_twice_although_values_are_forgotten() -> None:
    numbers = Numbers(limit=2)
    given = [numbers.of(value) for value in "abcabc"]
    assert len(set(given)) == len(given)


# --- what a lookup knows, and what is missing --------------------------------------------------------------


def looked_up(scene: Scene, *requests: Object, names: tuple[str, ...] = NAMES) -> Lookup:
    """What is known of the cluster as it is now."""
    scene.decider.follow(scene.state.snapshot)
    return scene.decider.lookup((asked(*requests, pod="q"),), names, scene.state.snapshot)


def missing(lookup: Lookup) -> list[str]:
    return [lookup.names[place] for place in lookup.missing]


def test_a_lookup_knows_what_was_decided() -> None:
    scene = Scene(*three({}, {}))
    known = scene.ask()
    lookup = looked_up(scene)
    assert (list(lookup.verdicts), missing(lookup), lookup.steps) == (list(known.verdicts), [], 0)


def test_kinds_of_verdicts_that_no_node_has_any_more_are_forgotten() -> None:
    scene = Scene(*three(*[{}] * 10))
    for number in range(10):
        scene.takes("b", f"gpu-{number}", uid=f"uid-{number}")
        wanted = scene.ask(pod="p")
        lookup = looked_up(scene)
        assert list(lookup.verdicts) == list(wanted.verdicts)
        assert len(lookup.verdicts.kinds) <= len(NAMES)


def looks(verdict_index: VerdictIndex, node_index: NodeIndex, verdict: Verdict) -> Verdicts:
    found = verdict_index.look(NAMES, node_index, lambda _: replace(verdict))
    assert found is not None
    return found


def test_verdicts_that_do_not_last_are_forgotten() -> None:
    verdict_index, node_index = VerdictIndex(), NodeIndex.of(state_of(three({})).snapshot, NodeViewBuilder(Features()))
    found = [looks(verdict_index, node_index, Verdict(lasting=False)) for _ in range(10)]
    assert max(len(verdicts.kinds) for verdicts in found) <= 2 * len(NAMES)
    assert len({verdict for verdicts in found for verdict in verdicts}) == 10 * len(NAMES)


def test_a_verdict_index_in_use_is_left_to_its_user() -> None:
    verdict_index, node_index = VerdictIndex(), NodeIndex.of(state_of(three({})).snapshot, NodeViewBuilder(Features()))
    others: list[Verdicts | None] = []

    def find(_: str) -> Verdict:
        others.append(verdict_index.look(NAMES, node_index, lambda _: Verdict()))
        return Verdict()

    assert verdict_index.look(NAMES, node_index, find) is not None
    assert others == [None] * len(NAMES)


def unasked(name: str) -> Verdict:
    raise AssertionError(f"asked about {name}, whose verdict is there")


def test_a_verdict_index_takes_over_all_verdicts_of_the_first_pod() -> None:
    node_index, wanted = NodeIndex.of(state_of(three({})).snapshot, NodeViewBuilder(Features())), Verdict()
    verdict_index = VerdictIndex()
    verdict_index.fill(NAMES, Verdicts.of([wanted] * len(NAMES)), node_index)
    found = verdict_index.look(NAMES, node_index, unasked)
    assert found is not None
    assert list(found) == [wanted] * len(NAMES)


@pytest.mark.parametrize("verdict", [Verdict(lasting=False), NOT_KNOWN, UNDECIDED])
def test_a_verdict_index_takes_over_no_verdict_that_does_not_last(verdict: Verdict) -> None:
    node_index, verdict_index = NodeIndex.of(state_of(three({})).snapshot, NodeViewBuilder(Features())), VerdictIndex()
    verdict_index.fill(NAMES, Verdicts.of([Verdict(), verdict, Verdict()]), node_index)
    assert not verdict_index


def test_a_verdict_index_does_not_go_back_to_an_earlier_snapshot() -> None:
    scene = Scene(*three({}))
    earlier = NodeIndex.of(scene.state.snapshot, NodeViewBuilder(Features()))
    scene.takes("a", "gpu-0")
    later = NodeIndex.of(scene.state.snapshot, NodeViewBuilder(Features()))
    verdict_index = VerdictIndex()
    looks(verdict_index, later, Verdict())
    assert verdict_index.look(NAMES, earlier, lambda _: Verdict()) is None


def test_of_a_new_signature_everything_is_missing() -> None:
    scene = Scene(*three({}))
    scene.ask()
    assert missing(looked_up(scene, request(count=2))) == list(NAMES)


def test_a_node_that_takes_a_search_is_missing_and_then_evaluated_alone() -> None:
    scene = Scene(*three({}, {}))
    scene.ask(request(count=2))
    scene.takes("a", "gpu-0")
    lookup = looked_up(scene, request(count=2))
    assert missing(lookup) == ["a"]
    before = scene.decider.solved
    assert yes(scene.decider.evaluate(lookup)) == [False, True, True]
    assert scene.decider.solved - before == 1


def test_one_device_takes_no_search() -> None:
    scene = Scene(*three({}))
    scene.ask()
    scene.takes("a", "gpu-0")
    lookup = looked_up(scene)
    assert (missing(lookup), yes(scene.decider.evaluate(lookup))) == ([], [False, True, True])


def test_a_lookup_examines_few_new_nodes() -> None:
    names = tuple(f"n{number}" for number in range(2 * MOST_NEW_NODES))
    scene = Scene(GPU, *map(node, names), *map(local_slice, names))
    scene.ask(names=names[:1])
    assert missing(looked_up(scene, names=names)) == list(names[MOST_NEW_NODES + 1 :])
    assert yes(scene.decider.evaluate(looked_up(scene, names=names))) == [True] * len(names)


def test_a_question_keeps_nothing_of_the_cluster_as_it_was() -> None:
    scene = Scene(*three({}, {}))
    scene.ask()
    snapshot = scene.state.snapshot
    assert missing(looked_up(scene)) == []
    scene.takes("a", "gpu-0")
    scene.ask(request(count=2))
    assert [type(each) for each in gc.get_referrers(snapshot) if not isinstance(each, FrameType)] == []


def test_a_cluster_is_followed_at_once_unless_much_has_changed() -> None:
    scene = Scene(*three({}))
    assert not scene.decider.follow_at_once(scene.state.snapshot)
    scene.ask()
    for changes, is_followed in ((MOST_NEW_NODES, True), (MOST_NEW_NODES + 1, False)):
        for number in range(changes):
            scene.happens(node(f"{changes}-{number}"))
        assert scene.decider.follow_at_once(scene.state.snapshot) is is_followed


class Counted(Selectors):
    """Counts how often a selector is evaluated."""

    count = 0

    def matches(self, expression: str, device: Device, expired: Expired = never) -> bool:
        self.count += 1
        return super().matches(expression, device, expired)


def test_a_node_whose_selectors_must_be_evaluated_is_missing() -> None:
    scene = Scene(*three(texts(model="x")))
    selectors = Counted()
    scene.decider.solver = replace(scene.decider.solver, selectors=selectors)
    scene.ask(request(selectors=[MODEL]))
    scene.happens(pool_of("a", texts(model="y")))
    before = selectors.count
    assert missing(looked_up(scene, request(selectors=[MODEL]))) == ["a"]
    assert selectors.count == before > 0
    assert yes(scene.ask(request(selectors=[MODEL]))) == [False, True, True]
