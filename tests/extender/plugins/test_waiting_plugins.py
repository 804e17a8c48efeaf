"""Plugins that wait: what a bind asks of them, and that each can be left out."""

from collections.abc import Collection, Sequence
from typing import ClassVar

from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.reservations import Reservation
from extender.framework.bind_errors import BindError
from extender.framework.plugin import WaitingPlugin
from extender.framework.pods.claims import PodClaims
from tests.extender.framework.bind.scenes import Scene
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, negotiated_class
from tests.kit.clusters import claim, parsed, pod
from tests.kit.servers.memory import writes


class Approval(WaitingPlugin):
    """Has claims that are to be allocated approved.

    Attributes:
        held: the devices that are in use while it is asked.
    """

    of_claims: ClassVar[Sequence[str]] = ("pending",)

    def __init__(self, *, never: str = "", now: str = "") -> None:
        self.scene: Scene
        self._never = never
        self._now = now
        self.held: list[set[str]] = []

    def awaited(self, pod: Pod) -> Collection[str]:
        return ["approval"] if pod.claims else ()

    def reserve(self, claims: PodClaims) -> str:
        return self._never

    async def pre_bind(
        self, pod: Pod, node: NodeObject, claims: PodClaims, reservations: Sequence[Reservation]
    ) -> tuple[Reservation, ...]:
        self.held.append(self.scene.held)
        if self._now:
            raise BindError(self._now, node.name)
        return tuple(reservations)


def scene_with(*plugins: Approval) -> Scene:
    scene = Scene(claim("a"), pod("p", "a"), pod("q"))
    for each in plugins:
        each.scene = scene
    scene.binder = scene.binder_by(plugins=plugins)
    return scene


def test_devices_are_assumed_while_a_plugin_is_asked_and_written_after_it() -> None:
    approval = Approval()
    scene = scene_with(approval)
    assert scene.run(scene.bind()) == [""]
    assert approval.held == [{"n/gpu-0"}]
    assert scene.devices("a") == ["n/gpu-0"]


def test_nothing_is_written_or_held_if_a_plugin_refuses() -> None:
    first, second = Approval(), Approval(now="it is not approved")
    scene = scene_with(first, second)
    assert scene.run(scene.bind()) == ["node n: it is not approved"]
    assert (len(first.held), len(second.held)) == (1, 1)
    assert scene.held == set()
    assert writes(scene.transport.calls) == []


def test_a_plugin_may_refuse_before_devices_are_assumed() -> None:
    approval = Approval(never="nobody is there to approve it")
    scene = scene_with(approval)
    assert scene.run(scene.bind()) == ["node n: nobody is there to approve it"]
    assert approval.held == []
    assert scene.held == set()


def test_a_plugin_is_asked_about_its_claims_alone() -> None:
    approval = Approval(never="no")
    scene = scene_with(approval)
    assert scene.run(scene.bind("q")) == [""]
    assert approval.held == []


def test_claims_without_a_bind_wait_for_the_same_plugins() -> None:
    scene = scene_with(Approval(), Approval())
    assert set(scene.binder.claims.awaited(parsed(pod("p", "a")))) == {"approval"}
    assert set(scene.binder.claims.awaited(parsed(pod("q")))) == set()


def test_a_negotiated_claim_is_not_bound_without_its_plugin() -> None:
    scene = Scene(negotiated_class(), claim("a", LICENSE), pod("p", "a"))
    scene.binder = scene.binder_by(plugins=())
    assert scene.run(scene.bind()) == [f"node n: waiting for controller {NAME}"]
    assert writes(scene.transport.calls) == []
