"""Controllers behind HTTP: what is sent, and what counts as no answer."""

import asyncio
import ssl
import tracemalloc
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from allocator.tools import printable
from extender.config.settings import ControllerSettings
from extender.kube.encoding import loads
from extender.plugins.negotiation.http import HttpController
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    ClaimAsk,
    ControllerAwayError,
    ControllerError,
    NegotiatedAnswer,
    NegotiatedQuestion,
    NodeName,
    PodName,
)
from extender.tools.intake import Budget, Source, json_weight
from tests.kit.certificates import Authority
from tests.kit.servers.canned import answer, serving

CLAIM = ClaimAsk("ns", "c", "uid-c", 1, ({"name": "seat"},))
NODES = NegotiatedQuestion(UNSUITABLE_NODES, (CLAIM,), PodName("ns", "p", "uid-p"), (NodeName("n", {"site": "a"}),))

OTHER_REQUEST = orjson.dumps(
    {
        "claims": [
            {
                "uid": "uid-c",
                "allocation": {
                    "devices": {
                        "config": [
                            {
                                "source": "FromClaim",
                                "requests": ["gpu"],
                                "opaque": {"driver": "a.example.com", "parameters": {}},
                            }
                        ]
                    }
                },
            }
        ]
    }
)
"""An allocation with configuration for a request that the controller was not asked about."""

NOTHING_UNSUITABLE = b'{"claims": [{"uid": "uid-c"}]}'


def settings(url: str, **more: object) -> ControllerSettings:
    return ControllerSettings.model_validate({"name": "licenses.example.com", "url": url, **more})


async def asked(url: str, question: NegotiatedQuestion = NODES, **more: object) -> NegotiatedAnswer | str:
    """The answer of the controller, or the error."""
    controller = HttpController(settings(url, **more), Budget())
    try:
        return await controller.ask(question)
    except ControllerError as error:
        return str(error)
    finally:
        await controller.close()


LEVELS = 1100
ODD = {
    "300 levels": "[" * 300 + "]" * 300,
    "1,100 levels": "[" * LEVELS + "]" * LEVELS,
    "1,100 levels of objects": '{"a":' * LEVELS + "1" + "}" * LEVELS,
    "a float that Python writes otherwise": '{"a":1e2}',
    "more than a float": '{"a":1e999}',
    "more digits than Python reads": f'{{"a":{"9" * 5000}}}',
    "an escape of Go": r'{"a":"\u003cb\u003e"}',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_odd_parameters_are_sent_and_read_as_they_are(text: str) -> None:
    config = b'{"source":"FromClaim","requests":["seat"],"opaque":{"driver":"a.example.com","parameters":%s}}'
    config %= text.encode()
    asked = replace(CLAIM, config=(loads(config),))
    question = replace(NODES, kind=ALLOCATE, claims=(asked,))
    body = b'{"claims":[{"uid":"uid-c","allocation":{"devices":{"config":[%s]}}}]}' % config
    async with serving(answer(200, body)) as server:
        controller = HttpController(settings(server.url), Budget())
        found = await controller.ask(question)
        await controller.close()
    assert config in server.seen[0].body
    assert found.allocations["uid-c"].configs[0].opaque.parameters == text


async def fails_as(url: str, **more: object) -> type[ControllerError]:
    """The class of the error when the controller is asked."""
    controller = HttpController(settings(url, **more), Budget())
    with pytest.raises(ControllerError) as error:
        await controller.ask(NODES)
    await controller.close()
    return error.type


async def test_question_is_a_post_of_json_on_a_connection_that_is_kept() -> None:
    body = orjson.dumps({"version": "7", "claims": [{"uid": "uid-c", "unsuitableNodes": {"n": "none is left"}}]})
    async with serving(answer(200, body)) as server:
        controller = HttpController(settings(f"{server.url}/dra/"), Budget())
        found = [await controller.ask(NODES), await controller.ask(NODES)]
        await controller.close()
        assert found == [NegotiatedAnswer("7", {"uid-c": {"n": printable("none is left")}})] * 2
        first, second = server.seen
        assert first.start == second.start == "POST /dra/unsuitableNodes HTTP/1.1"
        assert orjson.loads(first.body) == {
            "pod": {"namespace": "ns", "name": "p", "uid": "uid-p"},
            "claims": [
                {"namespace": "ns", "name": "c", "uid": "uid-c", "attempt": 1, "requests": [{"name": "seat"}]},
            ],
            "nodes": [{"name": "n", "labels": {"site": "a"}}],
            "simulation": False,
        }


@pytest.mark.parametrize(
    ("kind", "status", "body", "error"),
    [
        (UNSUITABLE_NODES, 500, b"out of order", "HTTP 500: out of order"),
        (UNSUITABLE_NODES, 302, b"", "HTTP 302"),
        (UNSUITABLE_NODES, 200, b"<html>", "wrong answer: it is not JSON"),
        (UNSUITABLE_NODES, 200, b"[]", "wrong answer: the message is not a JSON object"),
        (UNSUITABLE_NODES, 200, b"{}", "wrong answer: claims: has no entry for claim ns/c, uid uid-c"),
        (
            UNSUITABLE_NODES,
            200,
            b'{"claims": [{"uid": "uid-c", "unsuitableNodes": ["n"]}]}',
            'wrong answer: claims[0].unsuitableNodes: ["n"] is not an object',
        ),
        (
            UNSUITABLE_NODES,
            200,
            b'{"claims": [{"uid": "uid-c"}, {"uid": "x"}]}',
            "wrong answer: claims[1].uid: is not the uid of a claim in the question",
        ),
        (ALLOCATE, 200, b'{"claims": [{"uid": "uid-c"}]}', "wrong answer: claims[0].allocation: is required"),
        (
            ALLOCATE,
            200,
            OTHER_REQUEST,
            "wrong answer: claims[0].allocation.devices.config[0].requests: gpu is no request for this controller",
        ),
        (DEALLOCATE, 503, b"", "HTTP 503"),
        (UNSUITABLE_NODES, 200, b'{"refused": "no"}', "wrong answer: refused: only allocate can be refused"),
        (DEALLOCATE, 200, b'{"refused": "no"}', "wrong answer: refused: only allocate can be refused"),
        (UNSUITABLE_NODES, 500, b"a\x1b[31m", "HTTP 500: a\\x1b[31m"),
    ],
)
async def test_everything_else_is_no_answer(kind: str, status: int, body: bytes, error: str) -> None:
    async with serving(answer(status, body)) as server:
        assert await asked(server.url, NegotiatedQuestion(kind, (CLAIM,), nodes=(NodeName("n"),))) == error


@pytest.mark.parametrize(
    ("status", "is_away"),
    [
        (400, False),
        (401, True),
        (403, False),
        (404, False),
        (429, True),
        (500, False),
        (502, True),
        (503, True),
        (504, True),
    ],
)
async def test_some_statuses_say_that_the_controller_is_away_for_all_questions(status: int, is_away: bool) -> None:
    async with serving(answer(status, b"")) as server:
        assert await fails_as(server.url) is (ControllerAwayError if is_away else ControllerError)


@pytest.mark.parametrize("reply", [b"{}", b"<html>"])
async def test_controller_that_answers_wrong_is_not_away(reply: bytes) -> None:
    async with serving(answer(200, reply)) as server:
        assert await fails_as(server.url) is ControllerError


async def test_controller_that_cannot_be_reached_is_away(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n") as server:
        assert await fails_as(server.url, timeoutSeconds=0.05) is ControllerAwayError
    async with serving(None) as server:
        assert await fails_as(server.url) is ControllerAwayError
    assert await fails_as(server.url) is ControllerAwayError
    assert await fails_as("https://localhost:1", ca=missing) is ControllerAwayError
    assert await fails_as("https://localhost:1", token=missing) is ControllerAwayError


async def test_connection_that_is_cut_is_no_answer() -> None:
    async with serving(None) as server:
        assert await asked(server.url) == "the connection was lost: ServerDisconnectedError"


async def test_controller_that_is_away_is_told_by_its_url() -> None:
    async with serving(None) as server:
        url = server.url
    assert await asked(url) == f"no connection to {url}"


async def test_silent_controller_has_its_time() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n") as server:
        assert await asked(server.url, timeoutSeconds=0.05) == "no answer within 0.05 s"


async def test_question_goes_nowhere_else() -> None:
    async with serving(answer(200, NOTHING_UNSUITABLE)) as other:
        async with serving(answer(307, b"", Location=f"{other.url}/unsuitableNodes")) as server:
            assert await asked(server.url) == "HTTP 307"
        assert other.seen == []


async def test_replaced_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    former, latter = Authority("former"), Authority("latter")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.verify_mode = ssl.CERT_REQUIRED
    ca = tmp_path / "ca.crt"

    def replace(authority: Authority) -> None:
        tls.load_cert_chain(*authority.server().write(tmp_path, "server"))
        tls.load_verify_locations(cadata=authority.pem.decode())
        authority.client("dra-extender").write(tmp_path, "client")
        ca.write_bytes(authority.pem)

    replace(former)
    async with serving(answer(200, NOTHING_UNSUITABLE), tls=tls) as server:
        files = {"ca": str(ca), "certificate": str(tmp_path / "client.crt"), "key": str(tmp_path / "client.key")}
        controller = HttpController(settings(server.url, **files), Budget())
        assert (await controller.ask(NODES)).unsuitable == {"uid-c": {}}
        replace(latter)
        server.cut()
        assert (await controller.ask(NODES)).unsuitable == {"uid-c": {}}
        ca.write_text("not yet written")
        assert (await controller.ask(NODES)).unsuitable == {"uid-c": {}}
        await controller.close()


@pytest.mark.parametrize("text", ["", "a\nb", "t\u00f6ken", "a\x00b"])
async def test_file_without_a_token_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    assert await asked("https://localhost:1", token=str(file)) == f"{file}: a token is one line of printable ASCII"


async def test_token_needs_a_file(tmp_path: Path) -> None:
    missing = tmp_path / "token"
    assert (
        await asked("https://localhost:1", token=str(missing))
        == f"{missing}: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"url": "licenses"}, 'is not a URL such as "https://licenses.example.com"'),
        ({"name": "Licenses!"}, "Licenses!"),
        ({"certificate": "a.crt"}, "certificate and key need each other"),
        ({"url": "http://a", "token": "t"}, "token needs a url with https"),
        ({"timeoutSeconds": 0.0}, "timeoutSeconds"),
        ({"nodeLabels": ["a b"]}, "a b"),
    ],
)
def test_settings_that_cannot_be_used_say_why(more: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match="validation error") as error:
        ControllerSettings.model_validate({"name": "a.example.com", "url": "https://a", **more})
    assert problem in str(error.value)


# --- memory --------------------------------------------------------------------------------------------------

BOMBS = {
    "brackets": (b"[" * 4_000_000, "there is no memory for them"),
    "a hundred thousand brackets": (b"[" * 100_000, "wrong answer: it is not JSON"),
    "empty objects": (b"[" + b"{}," * 1_300_000 + b"{}]", "there is no memory for them"),
    "deep parameters": (b'{"parameters":' * 200_000, "wrong answer: it is not JSON"),
    "longer than it may be": (b" " * 5_000_000, "wrong answer: it has more than 4194304 bytes"),
}


@pytest.mark.parametrize(("body", "told"), BOMBS.values(), ids=BOMBS)
async def test_an_answer_that_would_fill_the_memory_is_an_error_of_its_controller(body: bytes, told: str) -> None:
    budget = Budget(256 * 1024 * 1024)
    tracemalloc.start()
    try:
        async with serving(answer(200, body)) as server:
            controller = HttpController(settings(server.url), budget)
            before = tracemalloc.get_traced_memory()[0]
            with pytest.raises(ControllerError, match=told):
                await controller.ask(NODES)
            now, most = tracemalloc.get_traced_memory()
            await controller.close()
    finally:
        tracemalloc.stop()
    assert most - before < 50_000_000
    assert now - before < 15_000_000, "the server keeps its answer, and the error knows where it was raised"
    assert not any(budget.taken.values())


class Awaited(Budget):
    """A budget that says when so many bytes are taken."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.reached = size, asyncio.Event()

    def take(self, source: Source, size: int) -> bool:
        is_left = super().take(source, size)
        if self.taken[source] >= self.size:
            self.reached.set()
        return is_left


async def test_an_answer_takes_its_room_until_it_is_decoded_although_its_caller_has_left() -> None:
    slow = b'{"parameters":' * 100_000
    budget = Awaited(json_weight(slow))
    async with serving(answer(200, slow)) as server:
        controller = HttpController(settings(server.url), budget)
        asking = asyncio.create_task(controller.ask(NODES))
        await budget.reached.wait()
        asking.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert budget.taken[Source.CONTROLLERS] == json_weight(slow)
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not any(budget.taken.values())
        await controller.close()


async def test_answers_of_others_leave_no_room_and_the_question_may_be_asked_again() -> None:
    budget = Budget(8_000)
    async with serving(answer(200, NOTHING_UNSUITABLE)) as server:
        controller = HttpController(settings(server.url), budget)
        with budget.room(Source.CONTROLLERS) as others:
            assert others.grow(3_000)
            with pytest.raises(ControllerError, match="leave no memory for it"):
                await controller.ask(NODES)
        assert (await controller.ask(NODES)).unsuitable == {"uid-c": {}}
        await controller.close()
