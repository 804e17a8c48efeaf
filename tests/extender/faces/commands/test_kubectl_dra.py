"""`kubectl dra`: its command line, its lists, and what it says if nobody answers."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from extender.faces.commands.answer_source import AnswerSource, NoServiceError, Query, ServicePod, find_pod
from extender.faces.commands.lists import (
    CLAIMS,
    DEVICES,
    GANGS,
    PENDING,
    PREEMPTIONS,
    PROBLEMS,
    QUOTAS,
    PrintedList,
    RowChange,
    Rows,
    changes,
    free_by_driver,
    read_rows,
    watch,
)
from extender.faces.commands.main import kubectl_app
from extender.faces.commands.options import WideOutput
from extender.faces.http.endpoints.tables import TABLES
from extender.kube.api import ObjectKey
from extender.kube.connection.kubeconfig import choose
from extender.kube.connection.transport import HttpReply, HttpRequest
from extender.kube.discovery import discover
from extender.kube.remote import RemoteApi
from extender.kube.resources import PODS
from extender.tools.table import Item
from tests.extender.faces.commands.scenes import post_nothing
from tests.kit.objects.manifests import pod
from tests.kit.servers.transport import ALL_VERSIONS, FakeApi

WAITING: Item = {"namespace": "demo", "pod": "p", "age": 200, "requests": ["gpu: 1 gpu"], "reason": "no device"}
EVIL = "p\x1b[2J<b>\u202e"


def called(*arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(kubectl_app, arguments, env=env)
    return result.exit_code, result.stdout, result.stderr


def kubeconfig(path: Path, namespace: str = "") -> Path:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path.write_bytes(orjson.dumps(config))
    return path


def source(*pages: Mapping[str, Any], asked: list[Query] | None = None) -> AnswerSource:
    """Answers with pages, one after the other."""
    rest = list(pages)

    async def get(path: str, query: Query) -> Mapping[str, Any]:
        assert path.startswith("/")
        if asked is not None:
            asked.append(query)
        return rest.pop(0)

    return AnswerSource("a fake", get, post_nothing)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (("pending", "-n", "a", "-A"), "-n and -A: only one of them"),
        (("pending", "--token-file", "t"), "--token-file, --cacert, --cert and --key are for --server"),
        (("pending", "--server", "http://x", "--local"), "--server and --local: only one of them"),
        (("pending", "--server", "http://x", "--context", "y"), "--server needs no --kubeconfig and no --context"),
        (("explain", "node", "a", "--server", "http://x"), "explain node a: write explain claim a, or name one pod"),
        (("explain", "claim", "ns/c", "--server", "http://x"), "claim/ns/c: expected POD, pod/POD or claim/CLAIM"),
        (("explain", "demo/p", "--server", "http://x"), "demo/p: expected POD, pod/POD or claim/CLAIM"),
        (("explain", "claim/", "--server", "http://x"), "claim/: expected POD, pod/POD or claim/CLAIM"),
        (("pending", "--kubeconfig", "/none"), "/none: no such file"),
    ],
)
def test_mistakes_are_named(line: Sequence[str], text: str) -> None:
    code, output, messages = called(*line)
    assert (code, output) == (2, "")
    assert text in messages


@pytest.mark.parametrize(
    ("command", "refused"),
    {
        "simulate": ("--all-namespaces", "--server", "--local", "--service-port", "--cacert"),
        "explain": ("--all-namespaces",),
        "why-not": ("--all-namespaces",),
    }.items(),
)
def test_options_that_a_command_refuses_are_not_in_its_help(command: str, refused: Sequence[str]) -> None:
    _, text, _ = called(command, "-h")
    assert "--kubeconfig" in text
    for option in refused:
        assert option not in text
        assert "No such option" in called(command, "x", option)[2]


@pytest.mark.parametrize("words", [("claim", "c"), ("claim/c",), ("resourceclaim/c",)], ids=" ".join)
def test_a_claim_is_explained_in_both_forms(words: Sequence[str]) -> None:
    _, _, messages = called("explain", *words, "-n", "demo", "--server", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1/explain/demo/claims/c" in messages


def test_an_api_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    code, _, messages = called("pending", "--kubeconfig", str(kubeconfig(tmp_path / "config")))
    assert code == 2
    assert "http://127.0.0.1:1" in messages


def test_the_namespace_of_the_context_counts(tmp_path: Path) -> None:
    assert choose(str(kubeconfig(tmp_path / "config", "team-a")), "").namespace == "team-a"
    assert choose(str(kubeconfig(tmp_path / "config")), "").namespace == ""


@pytest.mark.parametrize("listing", [PENDING, CLAIMS, QUOTAS, GANGS, PREEMPTIONS, PROBLEMS], ids=lambda each: each.path)
def test_a_list_shows_what_its_table_has(listing: PrintedList) -> None:
    (table,) = (each for each in TABLES if f"/{each.name}" == listing.path)
    assert {*listing.key, *listing.columns, *listing.more} <= table.example.keys()


async def test_all_pages_are_read_and_notes_are_kept_once() -> None:
    asked: list[Query] = []
    pages = ({"items": [{"device": "a"}], "continue": "T", "note": "old"}, {"items": [{"device": "b"}], "note": "old"})
    rows = await read_rows(source(*pages, asked=asked), DEVICES, {"driver": "d"})
    assert rows == Rows(({"device": "a"}, {"device": "b"}), ("old",))
    assert asked == [{"driver": "d", "limit": "10000"}, {"driver": "d", "limit": "10000", "continue": "T"}]


def numbers(state: str, devices: int, partitions: int = 0, driver: str = "gpu") -> Item:
    return {"driver": driver, "state": state, "devices": devices, "partitions": partitions}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([numbers("free", 6, 40), numbers("blocked", 2, 16)], {"gpu": "6 of 8, or up to 40 partitions"}),
        ([numbers("free", 0), numbers("allocated", 4)], {"gpu": "0 of 4"}),
        ([numbers("free", 0), numbers("allocated", 4), numbers("blocked", 0, 28)], {"gpu": "0 of 4"}),
        ([numbers("free", 0, 5), numbers("blocked", 0, 2)], {"gpu": "5 of 7 partitions"}),
        ([numbers("free", 1), numbers("free", 2, driver="nic")], {"gpu": "1 of 1", "nic": "2 of 2"}),
        ([], {}),
    ],
)
def test_free_tells_devices_and_partitions_apart(rows: list[Item], told: Mapping[str, str]) -> None:
    assert {each["driver"]: each["free"] for each in free_by_driver(rows)} == told


def test_changes_name_what_came_what_went_and_what_is_new() -> None:
    before = Rows(({"pod": "a", "age": 1}, {"pod": "b", "reason": "x"}, {"pod": "c"})).by_key(PENDING)
    after = Rows(({"pod": "a", "age": 2}, {"pod": "b", "reason": "y"}, {"pod": "d"})).by_key(PENDING)
    expected = (
        RowChange("gone", {"pod": "c"}),
        RowChange("changed", {"pod": "b", "reason": "y"}),
        RowChange("added", {"pod": "d"}),
    )
    assert changes(before, after) == expected


@pytest.mark.parametrize(
    ("output", "first", "then"),
    [
        (WideOutput.NAME, ["demo/p"], ["gone demo/p"]),
        (WideOutput.JSON, None, [orjson.dumps({"event": "gone", "row": WAITING}).decode()]),
        (
            WideOutput.TABLE,
            ["NAMESPACE   POD   AGE     REQUESTS     REASON", "demo        p     3m20s   gpu: 1 gpu   no device"],
            [
                "EVENT   NAMESPACE   POD   AGE     REQUESTS     REASON",
                "gone    demo        p     3m20s   gpu: 1 gpu   no device",
            ],
        ),
    ],
)
async def test_watching(
    output: WideOutput, first: list[str] | None, then: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [Rows((WAITING,)), Rows((WAITING,)), Rows(())]

    async def read() -> Rows:
        if not looks:
            raise asyncio.CancelledError
        return looks.pop(0)

    async def pause() -> None:
        pass

    with pytest.raises(asyncio.CancelledError):
        await watch(read, PENDING, output, pause)
    lines = capsys.readouterr().out.splitlines()
    if first is None:
        assert orjson.loads("".join(lines[:-1])) == {"items": [WAITING]}
        assert orjson.loads(lines[-1]) == orjson.loads(then[0])
    else:
        assert lines == [*first, *then]


@pytest.mark.parametrize("output", list(WideOutput))
async def test_control_characters_of_names_never_reach_the_terminal(
    output: WideOutput, capsys: pytest.CaptureFixture[str]
) -> None:
    evil: Item = {"namespace": EVIL, "pod": EVIL, "requests": [EVIL], "reason": EVIL, "age": 1}
    looks = [Rows((evil,), (EVIL,)), Rows((), (EVIL, EVIL))]

    async def read() -> Rows:
        if not looks:
            raise asyncio.CancelledError
        return looks.pop(0)

    with pytest.raises(asyncio.CancelledError):
        await watch(read, PENDING, output, lambda: asyncio.sleep(0))
    found = capsys.readouterr()
    assert "<b>" in found.out
    assert all(each.isprintable() for each in (found.out + found.err).replace("\n", ""))


def service_pod(name: str, *, ready: bool = True) -> dict[str, Any]:
    made = pod("kube-system", name)
    made["status"] = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return made


class System(FakeApi):
    """An API server with a lease."""

    holder = ""

    async def call(self, request: HttpRequest) -> HttpReply:
        if request.path.endswith("/leases/dra-scheduler"):
            return HttpReply(200, orjson.dumps({"kind": "Lease", "spec": {"holderIdentity": self.holder}}))
        return await super().call(request)


@pytest.mark.parametrize(
    ("pods", "holder", "name", "warning"),
    [
        (["b", "a"], "b_1", "b", ""),
        (["b", "a"], "c_1", "a", "the leader c is not among the ready pods"),
        (["b", "a"], "", "a", "nobody holds the lease kube-system/dra-scheduler"),
    ],
)
async def test_the_leader_is_asked_or_a_warning_says_who_is(
    pods: Sequence[str], holder: str, name: str, warning: str
) -> None:
    found = await _find(pods, holder)
    assert found.key == ObjectKey("kube-system", name)
    assert warning in found.warning
    assert bool(warning) == bool(found.warning)


async def test_pods_that_are_not_ready_are_not_asked() -> None:
    with pytest.raises(NoServiceError, match=r"no ready pod .* in namespace kube-system \(1 with the label"):
        await _find(["a"], "a_1", ready=False)


async def test_a_missing_right_is_named_before_anything_is_tried() -> None:
    with pytest.raises(NoServiceError, match=r"^you may not: create pods/portforward in namespace kube-system$"):
        await _find(["a"], "a_1", denied=frozenset({("create", "pods/portforward")}))


async def _find(
    pods: Sequence[str], holder: str, *, ready: bool = True, denied: frozenset[tuple[str, str]] = frozenset()
) -> ServicePod:
    server = System(served={**ALL_VERSIONS, "coordination.k8s.io": {"v1": frozenset({"leases"})}}, denied=denied)
    server.holder = holder
    for name in pods:
        server.put(PODS, service_pod(name, ready=ready))
    api = RemoteApi(server, await discover(server), random=lambda: 0.5)
    return await find_pod(api, "kube-system")
