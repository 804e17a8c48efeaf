"""Laws of the gate in random histories: bounds hold after each turn, and every pod is lifted that is not held."""

import asyncio
from collections.abc import Sequence
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kube.resources import CLAIMS, PODS
from extender.plugins.scheduling_gates.shares import EXTRA_SECONDS, FEW, Bounds
from tests.extender.plugins.scheduling_gates.scenes import NOWHERE, Scene, of, site, waiting

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
