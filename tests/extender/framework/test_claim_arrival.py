"""Pods whose claims are not known yet: filter waits for the watch or decides from the template; bind waits, too."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.objects.pods import parse_pod
from extender.framework.claim_arrival import FORESEEN, MOST_SECONDS, PAUSE_SECONDS, ClaimArrival
from extender.framework.victims import Victims
from extender.framework.wire import FilterArgs, PreemptArgs
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, PODS
from extender.tools.offload import at_once
from tests.extender.framework.bind.scenes import Scene
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    claim,
    claim_template,
    device_class,
    local_slice,
    node,
    parsed,
    pod,
    request,
    state_of,
)
from tests.kit.virtualtime import elapse, in_virtual_time, run

SOON = 0.005
OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}]}


def templated(name: str = "p", made: str = "", *, template: str = "gpu") -> Object:
    """A pod with an entry "gpu" from a template; ``made`` is the claim that its status names."""
    found = pod(name)
    found["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    if made:
        found["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": made}]
    return found


def made_claim(name: str = "p-gpu", *requests: Object) -> Object:
    return claim(name, *requests, metadata=OWNED | {"uid": f"uid-{name}", "resourceVersion": "7"})


class TestFilterWaitsForTheWatch:
    """The scheduler has seen the claim already."""

    def waited(self, asked: Object, *there: Object, come: Object | None = None) -> tuple[bool, int]:
        """Whether a claim has come, and the milliseconds of the wait."""

        async def scene() -> tuple[bool, int]:
            state, loop = state_of(there), asyncio.get_running_loop()
            if come is not None:
                loop.call_later(SOON, state.apply, Event(EventType.ADDED, CLAIMS, come))
            return await ClaimArrival(state).wait(parsed(asked), state.snapshot), round(1000 * loop.time())

        return run(scene())

    def test_until_the_claim_is_shown(self) -> None:
        assert self.waited(templated(made="p-gpu"), come=made_claim()) == (True, 1000 * SOON)

    def test_a_claim_that_the_pod_names_itself_is_waited_for_as_well(self) -> None:
        assert self.waited(pod("p", "a"), come=claim("a")) == (True, 1000 * SOON)

    def test_not_for_ever(self) -> None:
        assert self.waited(templated(made="p-gpu")) == (False, 1000 * MOST_SECONDS)

    def test_another_claim_is_not_the_claim(self) -> None:
        assert self.waited(templated(made="p-gpu"), come=claim("other")) == (False, 1000 * MOST_SECONDS)

    @pytest.mark.parametrize(
        ("asked", "there"),
        [(pod("p", "a"), [claim("a")]), (templated(made="p-gpu"), [made_claim()]), (templated(), [claim_template()])],
        ids=["by name", "from a template", "not made yet"],
    )
    def test_if_no_claim_is_missing_there_is_no_wait(self, asked: Object, there: list[Object]) -> None:
        assert self.waited(asked, *there) == (False, 0)

    @in_virtual_time
    async def test_a_namespace_whose_claims_do_not_come_cannot_hold_up_the_scheduler(self) -> None:
        state, loop, times = state_of([]), asyncio.get_running_loop(), []
        arrival = ClaimArrival(state)
        for number in range(100):
            begun = loop.time()
            await arrival.wait(parsed(templated(f"p{number}", made="gone")), state.snapshot)
            times.append(loop.time() - begun)
        await elapse(PAUSE_SECONDS)
        begun = loop.time()
        await arrival.wait(parsed(templated("late", made="gone")), state.snapshot)
        assert [sum(times), loop.time() - begun] == [pytest.approx(MOST_SECONDS), pytest.approx(MOST_SECONDS)]


class TestService:
    """Filter's answer to the scheduler."""

    async def test_a_claim_that_comes_while_filter_waits_is_decided(self) -> None:
        cluster = Cluster.of(GPU, node("n"), local_slice("n"), templated(made="p-gpu"))
        service = cluster.service()

        async def come() -> None:
            cluster.load(made_claim())

        result, _ = await asyncio.gather(service.filter(FilterArgs(parsed(templated(made="p-gpu")), ("n",))), come())
        assert list(result.passed) == ["n"]

    async def test_a_pod_and_claim_that_come_while_preempt_waits_are_decided(self) -> None:
        """kube-scheduler asks only preempt about a pod that lacks CPU everywhere, and not again before its flush."""
        victim = pod("v", on="n", priority=-1)
        cluster, asked = Cluster.of(GPU, node("n"), local_slice("n"), victim), templated(made="p-gpu")
        asked["metadata"]["resourceVersion"] = "99"
        service, offered = cluster.service(), {"n": Victims(("uid-v",))}

        async def come() -> None:
            cluster.load(asked)
            cluster.load(made_claim())

        allowed, _ = await asyncio.gather(service.preempt(PreemptArgs(parsed(asked), offered)), come())
        assert allowed == offered

    async def test_a_claim_that_is_made_while_filter_decides_is_decided(self) -> None:
        cluster = Cluster.of(GPU, node("n"), local_slice("n"), claim_template(), templated())
        service = cluster.service()

        async def made() -> None:
            cluster.load(made_claim())
            status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}
            await cluster.api.patch_status(PODS, ObjectKey("ns", "p"), {"status": status})

        for _ in range(2):
            result, _ = await asyncio.gather(service.filter(FilterArgs(parsed(templated()), ("n",))), made())
            assert list(result.passed) == ["n"]
            await cluster.api.delete(CLAIMS, ObjectKey("ns", "p-gpu"))

    async def test_before_the_claim_is_made_the_template_decides_once(self) -> None:
        cluster = Cluster.of(GPU, node("n"), node("m"), local_slice("n"), claim_template(), templated())
        service, asked = cluster.service(), FilterArgs(parsed(templated()), ("n", "m"))
        first, again = await service.filter(asked), await service.filter(asked)
        assert list(first.passed) == ["n"]
        assert set(first.unresolvable.in_words()) == {"m"}
        assert list(again.passed) == []
        assert set(again.unresolvable.in_words().values()) == {"waiting for claim gpu to be created"}

    @in_virtual_time
    async def test_a_claim_that_the_watch_does_not_show_in_time_is_decided_from_the_template_once(self) -> None:
        named = templated(made="p-gpu")
        cluster = Cluster.of(GPU, node("n"), local_slice("n"), claim_template(), named)
        service, asked = cluster.service(off_loop=at_once), FilterArgs(parsed(named), ("n",))
        first, again = await service.filter(asked), await service.filter(asked)
        assert list(first.passed) == ["n"]
        assert asyncio.get_running_loop().time() == pytest.approx(MOST_SECONDS)
        assert again.unresolvable.in_words() == {"n": "claim p-gpu does not exist"}

    @pytest.mark.parametrize(
        ("there", "reason"),
        [
            ([], "claim template gpu does not exist"),
            (
                [
                    claim_template()
                    | {
                        "spec": {
                            **claim_template()["spec"],
                            "metadata": {"annotations": {"dra-extender.dev/allocation-mode": "Immediate"}},
                        }
                    }
                ],
                "claim p/gpu waits for its devices (allocation mode Immediate)",
            ),
        ],
        ids=["no template", "an immediate claim"],
    )
    async def test_what_the_template_does_not_tell_is_not_decided(self, there: list[Object], reason: str) -> None:
        cluster = Cluster.of(GPU, node("n"), local_slice("n"), templated(), *there)
        result = await cluster.service().filter(FilterArgs(parsed(templated()), ("n",)))
        assert result.unresolvable.in_words() == {"n": reason}

    async def test_nothing_is_foreseen_for_a_pod_that_does_not_exist(self) -> None:
        cluster = Cluster.of(GPU, node("n"), local_slice("n"), claim_template())
        result = await cluster.service().filter(FilterArgs(parsed(templated()), ("n",)))
        assert list(result.passed) == []


def coming(scene: Scene, name: str, after: float, claim_name: str = "", *requests: Object) -> Callable[[], Any]:
    """kube-controller-manager makes the claim of a pod after some seconds, and then writes the pod's status."""

    async def come() -> None:
        await elapse(after)
        own = claim_name or f"{name}-gpu"
        owner = {**OWNED["ownerReferences"][0], "name": name, "uid": f"uid-{name}"}
        scene.api.load(CLAIMS, claim(own, *requests, metadata={"uid": f"uid-{own}", "ownerReferences": [owner]}))
        status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": own}]}
        await scene.api.patch_status(PODS, ObjectKey("ns", name), {"status": status})

    return come


class TestBindWaitsForTheClaim:
    """The scheduler binds a pod that was decided from its template."""

    def test_and_binds_with_it(self) -> None:
        scene = Scene(claim_template(), templated())
        assert scene.run(scene.bind(), coming(scene, "p", 1.0)()) == ["", ""]
        assert (scene.node_of("p"), scene.devices("p-gpu"), scene.users("p-gpu")) == ("n", ["n/gpu-0"], ["p"])
        assert not scene.state.snapshot.assumed

    def test_also_if_the_pod_names_it_and_the_watch_shows_it_later(self) -> None:
        scene = Scene(claim_template(), templated(made="p-gpu"))
        assert scene.run(scene.bind(), coming(scene, "p", 1.0)()) == ["", ""]
        assert (scene.node_of("p"), scene.devices("p-gpu"), scene.users("p-gpu")) == ("n", ["n/gpu-0"], ["p"])
        assert not scene.state.snapshot.assumed

    def test_its_devices_are_held_meanwhile(self) -> None:
        names = ["p", "q", "r"]
        scene = Scene(claim_template(), *map(templated, names))
        answers = scene.run(*map(scene.bind, names), *(coming(scene, name, 1.0)() for name in names))
        assert answers == ["", "", "node n: no free device for request gpu", "", "", ""]
        assert scene.held == {"n/gpu-0", "n/gpu-1"}

    def test_within_its_deadline(self) -> None:
        scene = Scene(claim_template(), templated())
        assert scene.run(scene.bind()) == ["out of time: the claims of the pod are not made yet"]
        assert (scene.held, scene.node_of("p")) == (set(), None)

    def test_a_claim_that_is_not_as_the_template_is_not_used(self) -> None:
        scene = Scene(claim_template(), templated())
        answers = scene.run(scene.bind(), coming(scene, "p", 1.0, "p-gpu", request(count=2))())
        assert answers == ["claim p-gpu was made otherwise than its template said", ""]
        assert (scene.held, scene.users("p-gpu")) == (set(), [])

    def test_a_pod_that_is_gone_is_not_bound(self) -> None:
        scene = Scene(claim_template(), templated())

        async def delete() -> None:
            await elapse(1)
            await scene.api.delete(PODS, ObjectKey("ns", "p"))

        answers = scene.run(scene.bind(), delete())
        assert answers == ["out of time: the claims of the pod are not made yet", ""]
        assert scene.held == set()


def test_a_pod_of_a_gang_or_of_a_podgroup_is_not_foreseen() -> None:
    grouped = templated()
    grouped["metadata"]["annotations"] = {"dra-extender.dev/group": "g", "dra-extender.dev/group-size": "2"}
    state = state_of([device_class(), claim_template()])
    arrival = ClaimArrival(state)
    assert arrival.foresee(parse_pod(grouped), state.snapshot) is None
    assert arrival.foresee(parse_pod(templated()), state.snapshot) is not None


def test_a_pod_is_foreseen_once_however_many_pods_another_namespace_has() -> None:
    own, many = templated(), templated("q")
    own["metadata"]["namespace"] = "other"
    theirs = claim_template()
    theirs["metadata"]["namespace"] = "other"
    state = state_of((claim_template(), theirs, GPU, own))
    arrival, stranger = ClaimArrival(state), parse_pod(many)
    assert arrival.foresee(parse_pod(own), state.snapshot) is not None
    for number in range(FORESEEN + 1):
        arrival.foresee(replace(stranger, uid=str(number)), state.snapshot)
    assert arrival.foresee(parse_pod(own), state.snapshot) is None
