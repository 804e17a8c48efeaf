"""What a live service says of whole pods: it lists the pods that it does not follow, where somebody asks."""

import asyncio

import orjson
import pytest

from extender.answers.whatif.answering import WhatIf
from extender.answers.whatif.question import read_question
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings, make_extender
from extender.framework.wire import FilterArgs
from extender.kube.api import ObjectKey
from extender.planning.templates import Catalog
from tests.extender.cluster.test_whole_pods import ROOM, fake_of, lister, plain
from tests.kit.clusters import GPU, Cluster, Object, app_over, claim, client_of, local_slice, node, pod, solver
from tests.kit.servers.transport import FakeApi, Fault

GPUS = tuple(each for name in "ab" for each in (node(name, allocatable=ROOM), local_slice(name)))
ASKS: Object = pod("p", "c")
ASKS["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]
FULL = "Insufficient cpu"


def live(fake: FakeApi) -> Extender:
    """A service that follows the pods with devices; the API server has all pods."""
    cluster = Cluster.of(GPU, *GPUS, claim("c"), ASKS)
    around = Surroundings(whole_pods=lister(fake))
    return make_extender(cluster.api, cluster.state, solver(), Settings(), around=around)


def told(extender: Extender) -> dict[str, str]:
    """kube-scheduler's reasons against nodes, as the explanation has them."""
    found = asyncio.run(extender.explanations.of_pod(ObjectKey("ns", "p")))
    assert not isinstance(found, str)
    return {name: group.reason for group in found.rejections.groups for name in group.nodes}


def test_explain_says_that_the_whole_pod_fits_only_where_other_pods_leave_room() -> None:
    extender = live(fake_of(ASKS, plain("web", "a", cpu="2")))
    found = asyncio.run(extender.explanations.of_pod(ObjectKey("ns", "p")))
    assert not isinstance(found, str)
    assert [each.node for each in found.places] == ["b"]
    assert told(extender) == {"a": FULL}
    assert not any("not looked at" in note for note in found.notes)


def test_a_pod_that_fits_nowhere_for_want_of_cpu_is_told_so() -> None:
    extender = live(fake_of(ASKS, plain("web", "a", cpu="2"), plain("db", "b", cpu="2")))
    found = asyncio.run(extender.explanations.of_pod(ObjectKey("ns", "p")))
    assert not isinstance(found, str)
    assert found.headline == f"2 nodes have devices for the pod, but kube-scheduler rejects them: {FULL}"


def test_filter_is_answered_without_a_list_before_and_after() -> None:
    fake = fake_of(ASKS, plain("web", "a", cpu="2"))
    extender = live(fake)
    asked = FilterArgs(extender.overview.state.snapshot.pods[ObjectKey("ns", "p")], ("a", "b"))
    assert list(asyncio.run(extender.service.filter(asked)).passed) == ["a", "b"]
    assert fake.requests == []
    assert told(extender) == {"a": FULL}
    assert list(asyncio.run(extender.service.filter(asked)).passed) == ["a", "b"]


async def test_a_pod_that_is_posted_is_a_whole_pod() -> None:
    posted = plain("other", cpu="1", nodeName="", hostNetwork=False)
    posted["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    posted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    taken = plain("web", "a", containers=posted["spec"]["containers"])
    async with client_of(app_over(live(fake_of(taken)))) as client:
        for body in (posted, {"Pod": posted, "NodeNames": ["a", "b"]}):
            reply = await client.post("/explain", content=orjson.dumps(body), headers={"accept": "application/json"})
            assert "didn't have free ports" in reply.json()["text"]


async def test_what_if_gives_no_pod_a_node_without_room() -> None:
    extender = live(fake_of(ASKS, plain("web", "a", cpu="2"), plain("db", "b", cpu="2")))
    what_if = WhatIf(extender.overview, Catalog(), preempts=True)
    answer = await what_if.ask(read_question({"drain": []}))
    (found,) = answer.pods
    assert found.then is not None
    assert (found.then.node, found.then.reasons) == ("", ((FULL, 2),))
    assert answer.unmodeled == ()


@pytest.mark.parametrize("asks", ["explain", "what-if"])
async def test_pods_that_can_not_be_listed_are_told(asks: str) -> None:
    fake = fake_of(ASKS, plain("web", "a", cpu="2"))
    fake.fault_for = lambda _: Fault(403, reason="Forbidden", message="no list for you")
    extender = live(fake)
    if asks == "explain":
        explained = await extender.explanations.of_pod(ObjectKey("ns", "p"))
        assert not isinstance(explained, str)
        notes = explained.notes
    else:
        notes = (await WhatIf(extender.overview, Catalog(), preempts=True).ask(read_question({"drain": []}))).notes
    assert any("pods without devices can't be read: no list for you" in note for note in notes)
