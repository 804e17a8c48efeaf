"""Pods with extended resources, bound by processes that die at any write: what holds anyway, and what is left."""

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.audit import device_findings
from extender.cluster.objects.claims import parse_claim_object
from extender.kube.api import RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from extender.lab.api import MemoryApi
from extender.plugins.orphans import IDLE, OrphanCollector
from extender.tools.faults import Faults
from tests.extender.framework.bind.mortal import ENDS, End, Process, live_and_die
from tests.extender.framework.bind.worlds import everything, is_special
from tests.kit import virtualtime
from tests.kit.clusters import claim, device_class, local_slice, node, pod
from tests.kit.servers.memory import NOW, memory_api
from tests.kit.virtualtime import in_virtual_time

GPU = "example.com/gpu"
PLUGIN = "m"
NAMES = ["p", "q", "r"]


def cluster() -> MemoryApi:
    """Three pods, one of them with a claim as well; node m has a device plugin, n and o have devices."""
    nodes = [node("n"), node("o"), node(PLUGIN, allocatable={GPU: "9"}), local_slice("n", 5), local_slice("o", 5)]
    pods = [pod("p", resources={GPU: "1"}), pod("q", resources={GPU: "2"}), pod("r", "a", resources={GPU: "1"})]
    return memory_api(*nodes, device_class(extended=GPU), claim("a"), *pods)


async def check(api: MemoryApi) -> None:
    """What holds at any moment."""
    claims, pods = await everything(api, CLAIMS), await everything(api, PODS)
    used = []
    for raw in pods.values():
        told = raw["status"].get("extendedResourceClaimStatus")
        on = raw["spec"].get("nodeName")
        if on:
            assert (told is None) is (on == PLUGIN)
        if on and told:
            special = claims[told["resourceClaimName"]]
            assert special["metadata"]["finalizers"] == [FINALIZER]
            assert [user["uid"] for user in special["status"]["reservedFor"]] == [raw["metadata"]["uid"]]
            used.append(special)
    assert device_findings([parse_claim_object(raw).claim for raw in used], []) == ()


async def check_end(api: MemoryApi) -> None:
    """After a sweep, there are special claims for the pods that use one, and no others."""
    pods = await everything(api, PODS)
    users = [_user_of(raw) for raw in (await everything(api, CLAIMS)).values() if is_special(raw)]
    expected = [raw["metadata"]["uid"] for raw in pods.values() if raw["spec"].get("nodeName", PLUGIN) != PLUGIN]
    assert sorted(users) == sorted(expected)


def _user_of(raw: RawObject) -> str:
    (owner,) = raw["metadata"]["ownerReferences"]
    return str(owner["uid"])


BINDS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["n", "o", PLUGIN])), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ENDS, BINDS), min_size=1, max_size=5))
@in_virtual_time
async def test_no_special_claim_is_lost_or_left(lives: list[tuple[End, list[tuple[str, str]]]]) -> None:
    api = cluster()
    for life in lives:
        await live_and_die(api, [life])
        await check(api)
    last = Process(api)
    OrphanCollector(last.state, last.binder, lambda: NOW + IDLE, Faults()).look()
    await virtualtime.elapse(10)
    await check(api)
    await check_end(api)
    for name in NAMES:
        answers = [await last.bind(name, on) for on in ("n", "o", PLUGIN)]
        assert "" in answers, answers
    await check(api)
    await check_end(api)
