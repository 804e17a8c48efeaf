"""The lease of a controller: of several processes, at most one is sure that it leads, whatever fails."""

from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.writes.lease import LONG, SharedLease
from extender.controllers.server import SURE_SECONDS, Leadership, led, renewed, responder_of
from extender.controllers.store import Store
from extender.kube.api import ObjectKey
from extender.kube.resources import LEASES
from extender.plugins.negotiation.protocol import UNSUITABLE_NODES, ClaimAsk, NegotiatedQuestion
from tests.extender.plugins.negotiation.transport_scenes import Licenses
from tests.kit import virtualtime
from tests.kit.servers.memory import NOW, Fault, Transport, memory_api

KEY = ObjectKey("vendor", "licenses")
CALLS = ("get leases", "update leases", "create leases")


class EndError(Exception):
    """The process ends."""


class Scene:
    """Processes of one controller, each with its own connection to the API server."""

    def __init__(self, *names: str) -> None:
        self.seconds = 0.0
        self.api = memory_api()
        self.transports = {name: Transport(self.api) for name in names}
        self.processes = {name: self.process(name) for name in names}

    def process(self, name: str) -> Leadership:
        lease = SharedLease(
            self.transports[name], KEY, name, lambda: NOW + timedelta(seconds=self.seconds), lambda: self.seconds, LONG
        )
        return Leadership(lease, lambda: self.seconds, self.end)

    def end(self) -> NoReturn:
        raise EndError

    def turn(self, name: str, fault: Fault | None = None) -> None:
        """A process looks at the lease; it is replaced if it ends."""
        for call in CALLS:
            self.transports[name].faults[call] = [] if fault is None else [fault]
        try:
            virtualtime.run(self.processes[name].turn())
        except EndError:
            del self.processes[name]
        finally:
            self.transports[name].faults.clear()

    @property
    def sure(self) -> list[str]:
        return [name for name, each in self.processes.items() if each.is_sure]

    @property
    def holder(self) -> str:
        return str(virtualtime.run(self.api.get(LEASES, KEY))["spec"]["holderIdentity"])


def test_the_first_one_leads_and_the_second_one_waits() -> None:
    scene = Scene("one", "two")
    for scene.seconds in range(60):
        scene.turn("one")
        scene.turn("two")
        assert scene.sure in ([], ["one"])
    assert scene.sure == ["one"]


def test_second_one_leads_when_the_first_one_is_gone() -> None:
    scene = Scene("one", "two")
    for _ in range(2):
        scene.turn("one")
    del scene.processes["one"]
    for scene.seconds in range(1, LONG.lasts + 4):
        scene.turn("two")
    assert (scene.sure, scene.holder) == (["two"], "two")


def test_lease_that_is_released_is_taken_at_once() -> None:
    scene = Scene("one", "two")
    for _ in range(2):
        scene.turn("one")
    virtualtime.run(scene.processes.pop("one").lease.release())
    for _ in range(2):
        scene.turn("two")
    assert scene.sure == ["two"]


def test_process_that_ends_while_it_renews_gives_the_lease_back() -> None:
    async def story() -> None:
        scene.seconds = LONG.renewal
        scene.transports["one"].script("update leases", Fault(seconds=2))
        async with renewed(scene.processes["one"]):
            await virtualtime.elapse(1)

    scene = Scene("one")
    for _ in range(2):
        scene.turn("one")
    virtualtime.run(story())
    assert scene.holder == ""


@pytest.mark.parametrize(("away", "leads"), [(SURE_SECONDS - 1, True), (SURE_SECONDS + 6, False)])
def test_leader_bears_an_api_server_that_is_away_for_a_moment_only(away: float, leads: bool) -> None:
    scene = Scene("one")
    for _ in range(2):
        scene.turn("one")
    for scene.seconds in range(1, int(away) + 1):
        if "one" in scene.processes:
            scene.turn("one", Fault(lost=True))
    for _ in range(2 if leads else 0):
        scene.turn("one")
    assert scene.sure == (["one"] if leads else [])
    assert ("one" in scene.processes) == leads


def test_leader_that_slept_answers_no_question(tmp_path: Path) -> None:
    scene = Scene("one")
    for _ in range(2):
        scene.turn("one")
    responder = responder_of(Licenses(), Store.open(tmp_path / "store.json"), scene.processes["one"])
    question = NegotiatedQuestion(UNSUITABLE_NODES, (ClaimAsk("ns", "c", "uid-c"),))
    assert responder.answer(question)["claims"] == [{"uid": "uid-c", "unsuitableNodes": {}}]
    scene.seconds = SURE_SECONDS
    with pytest.raises(EndError):
        responder.answer(question)


FAULTS = st.sampled_from([None, None, None, Fault(lost=True), Fault(reply_lost=True)])
STEPS = st.lists(
    st.tuples(st.sampled_from(["one", "two"]), st.sampled_from([0.5, 1.0, 4.0, 11.0]), FAULTS), max_size=40
)


@given(STEPS)
def test_never_are_two_sure(steps: list[tuple[str, float, Fault | None]]) -> None:
    scene = Scene("one", "two")
    for name, seconds, fault in steps:
        scene.seconds += seconds
        assert len(scene.sure) <= 1
        if name in scene.processes:
            scene.turn(name, fault)
        assert len(scene.sure) <= 1


@pytest.mark.parametrize("lease", ["licenses", "vendor/", "/licenses", "a/b/c", "Vendor/licenses"])
def test_name_that_is_no_lease_is_refused(lease: str) -> None:
    with pytest.raises(ValueError, match="is not NAMESPACE/NAME of a Lease"), led(lease, None):
        pytest.fail("the body was entered")
