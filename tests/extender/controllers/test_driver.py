"""The kit for controllers: questions that come twice or late, crashes, and the licenses of the example."""

import importlib.util
import json
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.config.settings import ControllerSettings
from extender.controllers import Held, Listening, RefusedError, Responder, Store
from extender.controllers.server import new_server
from extender.framework.service import Service
from extender.kube.encoding import loads
from extender.plugins.negotiation.http import HttpController
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    ClaimAsk,
    NegotiatedAnswer,
    NegotiatedQuestion,
    NodeName,
    PodName,
    ProtocolError,
    answer_of,
    ask_to_json,
)
from extender.tools.intake import Budget
from tests.extender.plugins.negotiation.scenes import NAME, WORLD, Scene, pods
from tests.extender.plugins.negotiation.test_controllers_http import ODD
from tests.kit.clusters import Object, node, pod
from tests.kit.driver import answering
from tests.kit.places import ROOT
from tests.kit.virtualtime import in_virtual_time

EXAMPLE = ROOT / "config/example/controllers/licenses.py"
SITE = "topology.kubernetes.io/zone"
A, B = NodeName("a1", {SITE: "a"}), NodeName("b1", {SITE: "b"})
DATA_SEGMENTS_IN = 152
"""Where ``tcpi_data_segs_in`` stands in Linux's ``struct tcp_info``."""

NONE_LEFT = "too few licenses are left at site a"


def licenses(**sites: int) -> Any:
    """The controller of the example."""
    spec = importlib.util.spec_from_file_location("licenses", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Licenses(sites)


def ask(uid: str, attempt: int = 1, count: int = 1) -> ClaimAsk:
    return ClaimAsk("ns", uid, uid, attempt, ({"name": "license", "count": count},))


def question(kind: str, *claims: ClaimAsk, nodes: tuple[NodeName, ...] = (A,), **more: Any) -> NegotiatedQuestion:
    return NegotiatedQuestion(kind, claims, PodName("ns", "p", "uid-p"), nodes, **more)


@pytest.fixture(name="responder")
def _responder(tmp_path: Path) -> Responder:
    return Responder(licenses(a=2, b=1), Store.open(tmp_path / "store.json"))


def test_nodes_of_a_site_without_licenses_are_unsuitable(responder: Responder) -> None:
    responder.answer(question(ALLOCATE, ask("x", count=2)))
    assert responder.answer(question(UNSUITABLE_NODES, ask("y"), nodes=(A, B))) == {
        "claims": [{"uid": "y", "unsuitableNodes": {"a1": NONE_LEFT}}]
    }


def test_allocation_is_remembered_by_the_next_process_and_comes_twice_as_it_was(responder: Responder) -> None:
    first = responder.answer(question(ALLOCATE, ask("x", count=2)))
    successor = Responder(responder.controller, Store.open(responder.store.path))
    assert successor.answer(question(ALLOCATE, ask("x", count=2))) == first
    assert [each["uid"] for each in first["claims"]] == ["x"]
    assert successor.answer(question(ALLOCATE, ask("x"), nodes=(B,)))["refused"] == "the claim is allocated for node a1"


def test_allocation_that_comes_after_its_release_is_refused(responder: Responder) -> None:
    assert responder.answer(question(DEALLOCATE, ask("x", 2))) == {"claims": []}
    assert responder.answer(question(ALLOCATE, ask("x", 1)))["refused"] == "this attempt is overtaken"
    assert "refused" not in responder.answer(question(ALLOCATE, ask("x", 3)))


def test_release_that_comes_after_the_next_allocation_is_ignored(responder: Responder) -> None:
    responder.answer(question(ALLOCATE, ask("x", 3)))
    assert responder.answer(question(DEALLOCATE, ask("x", 2))) == {"claims": [{"uid": "x", "attempt": 3}]}
    assert responder.store.allocated.keys() == {"x"}
    assert responder.answer(question(DEALLOCATE, ask("x", 4))) == {"claims": []}
    assert not responder.store.allocated
    assert responder.answer(question(DEALLOCATE, ask("x", 2))) == {"claims": [{"uid": "x", "attempt": 4}]}


def test_claims_of_a_pod_are_allocated_all_or_none(responder: Responder) -> None:
    answer = responder.answer(question(ALLOCATE, ask("x", count=2), ask("y")))
    assert answer["refused"] == NONE_LEFT
    assert not responder.store.allocated


def test_simulation_counts_what_it_holds_and_leaves_nothing(responder: Responder) -> None:
    held = ((ask("other"), A), (ask("another"), A))
    assert "refused" not in responder.answer(question(ALLOCATE, ask("x"), simulation=True))
    assert responder.answer(question(ALLOCATE, ask("x"), simulation=True, held=held))["refused"] == NONE_LEFT
    assert not responder.store.allocated
    assert not responder.store.path.exists()


class Death(BaseException):
    """The process ends."""


class Outside:
    """A controller whose allocations stand outside; implements `extender.controllers.Controller`.

    Attributes:
        taken: uids of claims that are allocated outside.
        ends: what happens after the next allocation outside: an error, or the allocation that is answered.
        heard: of each call of `allocate`, what was held.
    """

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.ends: BaseException | dict[str, Any] | None = None
        self.heard: list[list[str]] = []

    def unsuitable_nodes(self, *_: object) -> dict[str, str]:
        return {}

    def allocate(self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool) -> dict[str, Any]:
        assert (node, simulation) == (A, False)
        self.heard.append([each.claim.uid for each in held])
        end, self.ends = self.ends, None
        if not isinstance(end, RefusedError):
            self.taken.add(claim.uid)
        if isinstance(end, BaseException):
            raise end
        return end or {}

    def deallocate(self, held: Held) -> None:
        self.taken.discard(held.claim.uid)


WRONG = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}}


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (Death(), Death),
        (ValueError("a fault"), ValueError),
        (WRONG, ProtocolError),
    ],
)
def test_allocation_that_did_not_end_is_given_back_by_the_next_process(
    tmp_path: Path, end: BaseException | dict[str, Any], error: type[BaseException]
) -> None:
    outside, file = Outside(), tmp_path / "store.json"
    outside.ends = end
    with pytest.raises(error):
        Responder(outside, Store.open(file)).answer(question(ALLOCATE, ask("x")))
    assert outside.taken == {"x"}
    successor = Responder(outside, Store.open(file))
    successor.answer(question(DEALLOCATE, ask("x", 2)))
    assert outside.taken == set()
    assert not successor.store.allocated


def test_allocation_that_did_not_end_may_be_asked_for_again(tmp_path: Path) -> None:
    outside, file = Outside(), tmp_path / "store.json"
    outside.ends = Death()
    with pytest.raises(Death):
        Responder(outside, Store.open(file)).answer(question(ALLOCATE, ask("x")))
    successor = Responder(outside, Store.open(file))
    assert successor.answer(question(ALLOCATE, ask("x"), nodes=(B,)))["refused"] == "the claim is allocated for node a1"
    assert successor.answer(question(ALLOCATE, ask("y"), ask("x"))) == {
        "claims": [{"uid": "y", "allocation": {}}, {"uid": "x", "allocation": {}}]
    }
    assert outside.heard == [[], ["x"], ["y"]]


@pytest.mark.parametrize("before", [None, Death()])
def test_claim_that_is_refused_leaves_nothing(tmp_path: Path, before: Death | None) -> None:
    outside = Outside()
    responder = Responder(outside, Store.open(tmp_path / "store.json"))
    if before is not None:
        outside.ends = before
        with pytest.raises(Death):
            responder.answer(question(ALLOCATE, ask("x")))
    outside.ends = RefusedError("none is left")
    assert responder.answer(question(ALLOCATE, ask("x")))["refused"] == "none is left"
    assert outside.taken == set()
    assert not Store.open(responder.store.path).allocated


class AtResponder:
    """A controller of the kit in this process; implements `extender.plugins.negotiation.protocol.Controller`."""

    def __init__(self, responder: Responder) -> None:
        self.responder = responder

    async def ask(self, asked: NegotiatedQuestion) -> NegotiatedAnswer:
        return answer_of(asked, self.responder.answer(asked))

    async def close(self) -> None:
        pass


def with_sites(responder: Responder, *objects: Object) -> tuple[Scene, Service]:
    """A node on each of two sites, and a service that tells the controller their sites."""
    scene = Scene(*objects, world=(*WORLD[:2], node("n", labels={SITE: "a"}), node("m", labels={SITE: "b"})))
    scene.controllers[NAME] = AtResponder(responder)
    told = [{"name": NAME, "url": "http://localhost:1", "nodeLabels": [SITE]}]
    return scene, scene.replica(controllers=told)


@in_virtual_time
async def test_pods_get_the_licenses_of_their_sites_and_give_them_back(responder: Responder) -> None:
    scene, service = with_sites(responder, *pods("p", "q", "r"))
    assert await scene.bind("p", "m", by=service) == ""
    assert list((await scene.filter("q", by=service)).passed) == ["n"]
    assert await scene.bind("q", "n", by=service) == ""
    assert await scene.bind("r", "n", by=service) == ""
    await scene.end("p")
    await scene.tick(by=service)
    assert {each.node.name for each in responder.store.allocated.values()} == {"n"}


@in_virtual_time
async def test_claim_with_a_license_of_one_site_keeps_its_pods_from_other_sites(responder: Responder) -> None:
    scene, service = with_sites(responder, *pods("p"), pod("q", "p-c"))
    assert await scene.bind("p", "n", by=service) == ""
    result = await scene.filter("q", by=service)
    assert list(result.passed) == ["n"]
    assert result.unresolvable.in_words() == {"m": "claim p-c is allocated for other nodes"}


@pytest.fixture(name="url")
def _url(responder: Responder) -> Iterator[str]:
    with answering(responder) as url:
        yield url


async def test_service_asks_the_kit_over_http(url: str) -> None:
    controller = HttpController(ControllerSettings.model_validate({"name": NAME, "url": url}), Budget())
    try:
        assert (await controller.ask(question(UNSUITABLE_NODES, ask("x")))).unsuitable == {"x": {}}
        assert (await controller.ask(question(ALLOCATE, ask("x", count=3)))).refused == NONE_LEFT
    finally:
        await controller.close()


class Echo(Outside):
    """A controller whose allocation repeats the configuration of the claim."""

    def allocate(self, claim: ClaimAsk, *_: object, simulation: bool) -> dict[str, Any]:
        return {} if simulation else {"devices": {"config": [dict(each) for each in claim.config]}}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_odd_parameters_come_back_from_the_kit_and_its_file(tmp_path: Path, text: str) -> None:
    config = b'{"source":"FromClaim","requests":["license"],"opaque":{"driver":"a.example.com","parameters":%s}}'
    odd = replace(ask("x"), config=(loads(config % text.encode()),), parameters=({"object": loads(text.encode())},))
    told = question(ALLOCATE, odd)
    for _ in range(2):
        with answering(Responder(Echo(), Store.open(tmp_path / "store.json"))) as url:
            controller = HttpController(ControllerSettings.model_validate({"name": NAME, "url": url}), Budget())
            answer = await controller.ask(told)
            await controller.close()
        (found,) = answer.allocations["x"].configs
        assert is_same(found.opaque.parameters, text)


def is_same(one: str, other: str) -> bool:
    """Whether two JSON texts have one value. Python compares no values of a thousand levels."""
    return one == other or json.loads(one) == json.loads(other)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/allocate", b"{", 400, "Expecting"),
        ("/allocate", b'{"claims": []}', 400, "claims: is empty; nodes: has 0 entries instead of one"),
        ("/reserve", b"{}", 404, "there is no question reserve"),
    ],
)
def test_wrong_question_is_refused(url: str, path: str, body: bytes, status: int, text: str) -> None:
    reply = httpx.post(url + path, content=body)
    assert (reply.status_code, text in reply.text) == (status, True)


def test_answer_is_one_segment(url: str) -> None:
    """The second segment of an answer would wait until the caller's system confirms the first: 40 ms on Linux."""
    body = json.dumps({"claims": [ask_to_json(ask("x"))], "nodes": [{"name": "n"}]}).encode()
    with connection_to(url) as connection:
        connection.sendall(head_of(body) + body)
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(4096)
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    assert struct.unpack_from("I", info, DATA_SEGMENTS_IN) == (1,)


def test_caller_that_waits_until_it_is_asked_for_its_body_is_asked(url: str) -> None:
    with connection_to(url) as connection:
        connection.sendall(head_of(b"{}", "Expect: 100-continue"))
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert b"claims: is empty" in connection.recv(4096)


def connection_to(url: str) -> socket.socket:
    address = httpx.URL(url)
    return socket.create_connection((address.host, address.port or 0), timeout=10)


def head_of(body: bytes, *more: str) -> bytes:
    lines = ("POST /unsuitableNodes HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *more, "", "")
    return "\r\n".join(lines).encode()


class Slow(Outside):
    """A controller that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def unsuitable_nodes(self, *_: object) -> dict[str, str]:
        self.begun.set()
        assert self.may_end.wait(10)
        return {}


def test_an_open_connection_gets_no_answer_from_a_process_that_has_stopped(tmp_path: Path) -> None:
    """Another process may have the store by then: one license would go to two claims."""
    controller = Outside()
    server = new_server(Responder(controller, Store(tmp_path / "store.json")), Listening(port=0))
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    question = {"claims": [ask_to_json(ask("x"))], "nodes": [{"name": "n"}]}
    with httpx.Client(base_url=f"http://127.0.0.1:{server.server_address[1]}") as client:
        assert client.post("/unsuitableNodes", json=question).status_code == 200
        server.shutdown()
        server.server_close()
        refused = client.post("/allocate", json=question)
    serving.join(10)
    assert (refused.status_code, refused.text) == (503, "this process serves no longer")
    assert controller.taken == set()


def test_stop_waits_for_the_question_that_is_being_answered(tmp_path: Path) -> None:
    slow = Slow()
    server = new_server(Responder(slow, Store(tmp_path / "store.json")), Listening(port=0))
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/unsuitableNodes"
    asking = threading.Thread(target=httpx.post, args=(url,), kwargs={"json": {"claims": [ask_to_json(ask("x"))]}})
    asking.start()
    assert slow.begun.wait(10)
    server.shutdown()
    closing = threading.Thread(target=server.server_close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    slow.may_end.set()
    for each in (closing, asking, serving):
        each.join(10)
        assert not each.is_alive()
