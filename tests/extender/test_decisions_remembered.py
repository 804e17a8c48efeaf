"""What is decided once, what again, and that nodes which differ in anything that counts are not taken for one."""

import gc
from dataclasses import replace
from types import FrameType

import pytest

from allocator import AllocationResult, Device, DeviceId, DeviceResult, Features, Limits, Selectors
from allocator.cel import Expired, never
from extender.decisions.evaluate import AT_HAND, AtHand, Decided, Decider
from extender.decisions.node_index import NodeIndex
from extender.decisions.node_view import NodeViewBuilder, Numbers
from extender.decisions.verdict import NotAtHandError, Verdict
from extender.decisions.verdict_index import VerdictIndex
from extender.kube.raw import EventType
from extender.state.objects import parse_node_object
from tests.extender.decisions_scene import NAMES, Scene, asked, pool_of, texts
from tests.kit.clusters import (
    DRIVER,
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

GPU = device_class(selectors=[f'device.driver == "{DRIVER}"'])
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


def test_under_match_attribute_it_makes_no_difference_what_the_common_values_are() -> None:
    pools = [pool_of(name, texts(root=f"{name}-0"), texts(root=f"{name}-0"), texts(root="1")) for name in NAMES]
    scene = Scene(GPU, *map(node, NAMES), *pools)
    assert (yes(scene.ask(request(count=2), match=ROOT)), scene.solved) == ([True] * 3, 1)


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


def test_when_the_log_does_not_go_back_that_far_everything_is_looked_at_again() -> None:
    scene = Scene(*three({}))
    scene.decider = Decider(solver(), lambda _: None)
    scene.ask()
    scene.takes("b", "gpu-0")
    assert yes(scene.ask()) == [True, False, True]


def test_what_holds_in_a_fork_is_not_taken_for_the_cluster() -> None:
    scene = Scene(*three({}))
    scene.ask()
    base = scene.state.snapshot
    held = AllocationResult((DeviceResult("gpu", DeviceId(DRIVER, "b", "gpu-0")),))
    fork = base._replace(usage=base.usage.with_allocation(held))
    assert yes(scene.decider.decide((asked(),), NAMES, fork)) == [True, False, True]
    assert yes(scene.ask()) == [True] * 3


def test_a_node_that_was_sent_counts_as_it_was_sent_and_no_further() -> None:
    zoned = network_slice("net")
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    zoned["spec"] = {**zoned["spec"], "nodeSelector": {"nodeSelectorTerms": terms}}
    del zoned["spec"]["allNodes"]
    scene = Scene(GPU, *map(node, NAMES), zoned)
    assert yes(scene.ask()) == [False] * 3
    sent = {name: parse_node_object(node(name, labels={"zone": "z"} if name == "b" else {})) for name in NAMES}
    assert yes(scene.decider.decide((asked(),), NAMES, scene.state.snapshot, sent=sent)) == [False, True, False]
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
    assert len(cache.keys) < 2000


def test_a_number_is_never_given_twice_although_values_are_forgotten() -> None:
    numbers = Numbers(limit=2)
    given = [numbers.of(value) for value in "abcabc"]
    assert len(set(given)) == len(given)


# --- at once, or not at all --------------------------------------------------------------------------------


def test_what_is_known_is_at_hand() -> None:
    scene = Scene(*three({}, {}))
    known = scene.ask()
    at_hand = AtHand(scene.decider).decide((asked(pod="q"),), NAMES, scene.state.snapshot)
    assert (list(at_hand.verdicts), at_hand.steps) == (list(known.verdicts), 0)


def test_kinds_of_verdicts_that_no_node_has_any_more_are_forgotten() -> None:
    scene = Scene(*three(*[{}] * 10))
    for number in range(10):
        scene.takes("b", f"gpu-{number}", uid=f"uid-{number}")
        wanted = scene.ask(pod="p")
        at_hand = AtHand(scene.decider).decide((asked(pod="q"),), NAMES, scene.state.snapshot)
        assert list(at_hand.verdicts) == list(wanted.verdicts)
        assert len(at_hand.verdicts.kinds) <= len(NAMES)


def test_verdicts_that_do_not_last_are_forgotten() -> None:
    verdict_index, node_index = VerdictIndex(), NodeIndex.of(state_of(three({})).snapshot, NodeViewBuilder(Features()))
    looks = [verdict_index.look(NAMES, node_index, lambda _: Verdict(lasting=False)) for _ in range(10)]
    assert max(len(verdicts.kinds) for verdicts in looks) <= 2 * len(NAMES)
    assert len({verdict for verdicts in looks for verdict in verdicts}) == 10 * len(NAMES)


def test_a_shape_that_is_new_is_not_at_hand() -> None:
    scene = Scene(*three({}))
    scene.ask()
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((asked(request(count=2)),), NAMES, scene.state.snapshot)


def test_a_node_that_is_like_no_other_is_not_at_hand() -> None:
    scene = Scene(*three({}))
    scene.ask()
    scene.takes("a", "gpu-0")
    scene.decider.follow(scene.state.snapshot)
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((asked(),), NAMES, scene.state.snapshot)
    assert yes(AtHand(scene.decider).decide((asked(),), NAMES[1:], scene.state.snapshot)) == [True, True]


def test_many_nodes_that_nobody_has_looked_at_are_not_at_hand() -> None:
    names = tuple(f"n{number}" for number in range(2 * AT_HAND))
    scene = Scene(GPU, *map(node, names), *map(local_slice, names))
    scene.ask(names=names[:1])
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((asked(),), names, scene.state.snapshot)
    some = AtHand(scene.decider).decide((asked(),), names[:AT_HAND], scene.state.snapshot)
    assert yes(some) == [True] * AT_HAND


def test_a_question_keeps_nothing_of_the_cluster_as_it_was() -> None:
    scene = Scene(*three({}, {}))
    scene.ask()
    snapshot = scene.state.snapshot
    AtHand(scene.decider).decide((asked(),), NAMES, snapshot)
    scene.takes("a", "gpu-0")
    scene.ask(request(count=2))
    assert [type(each) for each in gc.get_referrers(snapshot) if not isinstance(each, FrameType)] == []


def test_a_cluster_is_near_until_much_has_changed() -> None:
    scene = Scene(*three({}))
    assert not scene.decider.is_near(scene.state.snapshot)
    scene.ask()
    for number in range(AT_HAND):
        assert scene.decider.is_near(scene.state.snapshot)
        scene.takes("a", "gpu-0", uid=f"uid-{number}")
    scene.takes("a", "gpu-0", uid="uid-more")
    assert not scene.decider.is_near(scene.state.snapshot)


class Counted(Selectors):
    """Counts how often a selector is evaluated."""

    count = 0

    def matches(self, expression: str, device: Device, expired: Expired = never) -> bool:
        self.count += 1
        return super().matches(expression, device, expired)


def test_what_would_evaluate_a_selector_is_not_at_hand() -> None:
    scene = Scene(*three(texts(model="x")))
    selectors = Counted()
    scene.decider.solver = replace(scene.decider.solver, selectors=selectors)
    wanted = asked(request(selectors=[MODEL]))
    scene.ask(request(selectors=[MODEL]))
    scene.happens(pool_of("a", texts(model="y")))
    scene.decider.follow(scene.state.snapshot)
    before = selectors.count
    with pytest.raises(NotAtHandError):
        AtHand(scene.decider).decide((wanted,), NAMES, scene.state.snapshot)
    assert selectors.count == before > 0
    assert yes(scene.ask(request(selectors=[MODEL]))) == [False, True, True]
