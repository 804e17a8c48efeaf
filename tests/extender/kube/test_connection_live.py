"""A live cluster over real sockets: connected to, synced and followed, with the rights that it takes."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import connect
from extender.config.sources import load
from extender.faces.commands.audit import AUDITED, listed_live
from extender.faces.commands.defragment import DEFRAGMENTED
from extender.faces.commands.explain import ExplainedObject, InquiryError, explained_live
from extender.faces.commands.main import app
from extender.faces.commands.reading import EXPLAINED
from extender.faces.serving.run import live
from extender.kube.api import ConnectError
from extender.kube.connection.transport import HttpRequest
from extender.kube.permissions import ALLOCATES, WRITES
from extender.kube.resources import CLAIMS, NODES, PODS, RESOURCES, Resource
from tests.extender.answers.defragmentation.scenes import moves, waits
from tests.extender.faces.commands.scenes import RUNNER
from tests.extender.kube.live_scenes import default, half, make_claim, now
from tests.kit.clusters import GPU, local_slice, node
from tests.kit.servers.canned import CHUNKED, answer, kubeconfig, read_request
from tests.kit.servers.transport import DEFAULT_GATES, HEALTHY, FakeApi, Fault, gate_metrics

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utc:DeprecationWarning")


@asynccontextmanager
async def served_over_http(fake: FakeApi) -> AsyncIterator[str]:
    """The URL of a server that passes requests on to a fake API server, one per connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = await read_request(reader)
        method, target, _ = seen.start.split()
        url = urlsplit(target)
        request = HttpRequest(method, url.path, dict(parse_qsl(url.query)), seen.body)
        try:
            if "watch" in request.query:
                async with fake.stream(request) as stream:
                    writer.write(CHUNKED)
                    async for chunk in stream.chunks():
                        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            else:
                reply = await fake.call(request)
                writer.write(answer(reply.status, reply.body, Connection="close"))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_live_cluster_is_connected_to_synced_and_followed(tmp_path: Path) -> None:
    fake, state = FakeApi(), ClusterState()
    fake.put(CLAIMS, make_claim("a"))
    async with (
        served_over_http(fake) as url,
        connect(kubeconfig(tmp_path, url, {"token": "t"}), random=half) as cluster,
    ):
        following = asyncio.create_task(cluster.run(state))
        async with asyncio.timeout(20):
            await state.passed(CLAIMS, 101)
            fake.put(CLAIMS, make_claim("b"))
            await state.passed(CLAIMS, 102)
            while state.not_ready:
                await asyncio.wait([following], timeout=0.01)
        assert sorted(state.snapshot.claims) == [default("a"), default("b")]
        assert (await cluster.api.get(CLAIMS, default("b")))["metadata"]["resourceVersion"] == "102"
        following.cancel()
        await asyncio.wait([following])


@pytest.mark.parametrize("resources", [AUDITED, EXPLAINED, DEFRAGMENTED])
async def test_who_only_reads_a_live_cluster_needs_no_right_to_write_or_watch(
    tmp_path: Path, resources: Collection[Resource]
) -> None:
    writes = {(permission.verb, str(permission).split()[1].partition(".")[0]) for permission in (*WRITES, ALLOCATES)}
    fake = FakeApi(denied=frozenset(writes | {("watch", resource.plural) for resource in RESOURCES.values()}))
    fake.put(CLAIMS, make_claim("a"))
    async with served_over_http(fake) as url:
        origin = kubeconfig(tmp_path, url, {"token": "t"})
        assert list((await listed_live(origin, resources)).claims) == [default("a")]
        with pytest.raises(ConnectError, match="not allowed: watch pods"):
            async with connect(origin, random=half):
                pass


@pytest.mark.parametrize(("stale", "is_ready"), [(70.0, False), (100.0, True)])
async def test_the_setting_says_after_how_much_silence_nothing_is_relied_on(
    tmp_path: Path, stale: float, *, is_ready: bool
) -> None:
    settings, fake = load(flags={"cluster.staleSeconds": stale}), FakeApi()
    async with (
        served_over_http(fake) as url,
        live(kubeconfig(tmp_path, url, {"token": "t"}), settings) as cluster,
        asyncio.timeout(20),
    ):
        await cluster.state.passed(CLAIMS, fake.revision)
        assert cluster.live is not None
        for follower in cluster.live.followers:
            follower.check(now() + 80)
        assert (cluster.state.doubt_of(CLAIMS) == "") is is_ready


async def test_feature_gates_are_as_on_the_server(tmp_path: Path) -> None:
    gates = DEFAULT_GATES | {"DRADerivedAttributes": True}
    async with (
        served_over_http(FakeApi(metrics=gate_metrics(gates))) as url,
        live(kubeconfig(tmp_path, url, {"token": "t"}), load()) as cluster,
    ):
        assert cluster.gates == gates


async def test_without_the_right_to_read_metrics_a_command_says_which_gates_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forbidden = Fault(403, reason="Forbidden", message='cannot get path "/metrics"')
    fake = FakeApi(fault_for=lambda request: forbidden if request.path == "/metrics" else HEALTHY)
    fake.put(PODS, {"metadata": {"namespace": "default", "name": "plain"}, "spec": {"containers": [{"name": "c"}]}})
    async with served_over_http(fake) as url:
        await explained_live(kubeconfig(tmp_path, url, {"token": "t"}), load(), ExplainedObject(default("plain")))
    assert capsys.readouterr().err == (
        "note: feature gates are the defaults of Kubernetes 1.37: "
        'the API server does not tell its own: cannot get path "/metrics"\n'
    )


async def test_an_unknown_pod_of_a_live_cluster_is_told_from_one_without_devices(tmp_path: Path) -> None:
    fake = FakeApi()
    fake.put(NODES, {"metadata": {"name": "a"}})
    fake.put(PODS, {"metadata": {"namespace": "default", "name": "plain"}, "spec": {"containers": [{"name": "c"}]}})
    async with served_over_http(fake) as url:
        origin = kubeconfig(tmp_path, url, {"token": "t"})
        plain = await explained_live(origin, load(), ExplainedObject(default("plain")))
        assert plain.document["verdict"] == "needs no devices"
        with pytest.raises(InquiryError, match=r"pod default/plane does not exist; did you mean default/plain\?"):
            await explained_live(origin, load(), ExplainedObject(default("plane")))


async def test_a_live_cluster_is_defragmented(tmp_path: Path) -> None:
    fake, nodes = FakeApi(), [GPU, *(each for name in "ab" for each in (node(name), local_slice(name, 2)))]
    running = [*moves("x", "a/gpu-0", on="a"), *moves("y", "b/gpu-0", on="b")]
    for each in (*nodes, *running, *waits("p", 2)):
        fake.put(RESOURCES[each["kind"]], each)
    async with served_over_http(fake) as url:
        origin = kubeconfig(tmp_path, url, {"token": "t"})
        command = ["defragment", "--kubeconfig", origin.files, "-o", "name"]
        result = await asyncio.to_thread(RUNNER.invoke, app, command)
    assert (result.stdout, result.stderr) == ("ns/x\n", "")
