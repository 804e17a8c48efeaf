"""Laws of the gate in random histories: bounds hold after each turn, and every pod is lifted that is not held."""

import asyncio
from collections.abc import Sequence
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.cluster.objects.pods import GATE
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.scheduling_gates.gate_queue import SHOWN_SECONDS
from extender.plugins.scheduling_gates.shares import EXTRA_SECONDS, FEW, Bounds
from tests.extender.plugins.scheduling_gates.scenes import NOWHERE, Scene, gated, of, site, waiting
from tests.kit.clusters import pod
from tests.kit.objects.quotas import limited, quota

NAMESPACES: Final = ("one", "two", "three")
BOUNDS: Final = Bounds(lifted=6, hopeless=2)
STEPS: Final = ("good", "hopeless", "reject", "bind", "delete", "restart", "turn", "wait")


async def check_history(history: Sequence[tuple[str, int]]) -> None:
    scene = Scene(*site(devices=8), bounds=BOUNDS)
    for number, (step, draw) in enumerate(history):
        namespace = NAMESPACES[draw % len(NAMESPACES)]
        lifted = scene.lifted(namespace)
        if step in ("good", "hopeless"):
            wants = [NOWHERE] if step == "hopeless" else []
            for each in of(namespace, *waiting(f"p{number}", *wants, priority=draw % 2)):
                await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
        elif step in ("reject", "bind", "delete") and lifted:
            await getattr(scene, step)(lifted[draw % len(lifted)], namespace=namespace)
        elif step == "restart":
            scene.first = scene.replica(f"replica-{number}")
        elif step in ("turn", "wait"):
            await scene.turns(1, EXTRA_SECONDS if step == "wait" else 1.0)
            check_bounds(scene)
    await everyone_is_lifted(scene)


def check_bounds(scene: Scene) -> None:
    """Beyond the bound, each namespace has a few lifted pods that were not rejected, and one more for each pause."""
    pods = scene.state.snapshot.pods.values()
    lifted = [pod for pod in pods if not pod.gates and pod.is_pending and not pod.is_rejected]
    assert len(lifted) <= BOUNDS.lifted + len(NAMESPACES) * (FEW + 1 + scene.now // EXTRA_SECONDS)


async def everyone_is_lifted(scene: Scene) -> None:
    """If their schedulers reject all lifted pods, the others follow, one by one."""
    for _ in range(2 * len(scene.state.snapshot.pods) + 8):
        if not scene.at_gate():
            return
        await scene.turns(1, EXTRA_SECONDS)
        for namespace in NAMESPACES:
            await scene.reject(*scene.lifted(namespace), namespace=namespace)
    assert scene.at_gate() == set()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=40))
def test_bounds_hold_and_every_pod_that_is_not_held_is_lifted_in_the_end(history: Sequence[tuple[str, int]]) -> None:
    asyncio.run(check_history(history))


OF_ONE: Final = ("come", "come", "other", "open", "reject", "bind", "delete", "learn", "join", "turn", "turn", "wait")
OTHER: Final = "example.com/other"


async def check_quota(history: Sequence[str], room: int) -> None:
    """Pods of one kind, and a quota for some of them. The claim of a bound pod is shown two steps after its binding.

    Some have another gate at first, so that they have their turn after younger ones.
    """
    held = gated(pod("held", "no-claim"))  # so that the replica has work, and sees each change
    scene = Scene(*site(devices=0), quota(limited(devices=room)), held)
    late: list[str] = []
    bound: list[str] = []
    for number, step in enumerate(history):
        await scene.allocate(*late)
        late, bound, lifted = bound, [], scene.lifted()
        if step in ("come", "other"):
            for each in waiting(f"p{number}", others=[OTHER] if step == "other" else []):
                await scene.cluster.api.create(CLAIMS if each["kind"] == "ResourceClaim" else PODS, each)
        elif step == "open":
            for key in [key for key, each in scene.state.snapshot.pods.items() if OTHER in each.gates][:1]:
                await scene.cluster.api.patch(PODS, key, {"spec": {"schedulingGates": [{"name": GATE}]}})
        elif step == "join":
            await scene.join(f"more-{number}")
        elif step in ("turn", "wait"):
            await scene.turns(1, SHOWN_SECONDS / 2 if step == "wait" else 1.0)
        elif step == "learn":
            scene.first.learn(*lifted)
        elif lifted:
            bound = lifted[:1] if step == "bind" else []
            await getattr(scene, step)(lifted[0])
        assert sum(not each.gates for each in scene.state.snapshot.pods.values()) <= room


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(OF_ONE), min_size=20, max_size=40), st.integers(1, 3))
@example(["come", "come", "turn", "reject", *["wait"] * 5], 1)
@example(["come", "come", "turn", "reject", "join", "learn", *["wait"] * 5], 1)
@example(["come", "come", "turn", "bind", "turn"], 1)
@example(["other", "come", "turn", "open", "turn"], 1)
def test_no_more_pods_of_a_kind_are_let_in_than_their_quota_has_room_for(history: Sequence[str], room: int) -> None:
    """So an autoscaler that sees the pods without a gate brings no node for others."""
    asyncio.run(check_quota(history, room))
