"""Explanations on the command line: of manifests, and of a service that is asked."""

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import yaml
from typer.testing import CliRunner

from extender.faces.commands.explain import ExplainedObject, InquiryError, asked
from extender.faces.commands.main import app
from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE
from extender.faces.commands.remote import Remote
from extender.kube.api import ObjectKey
from tests.extender.answers.explain.http_scenes import IN_USE
from tests.kit.clusters import Object


@pytest.fixture
def manifests(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(IN_USE))
    return str(path)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["explain", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_pod_of_manifests(manifests: str) -> None:
    code, text, _ = run("ns/p", "--manifests", manifests)
    assert code == FOUND_PROBLEMS
    assert text.startswith("pod ns/p fits nowhere: all 2 devices are in use\nIt fits on none of 2 nodes:\n")
    assert "Delete pod ns/somebody (no controller makes it again), which frees" in text
    assert run("ns/somebody", "--manifests", manifests)[:2][0] == OK


def test_a_pod_of_manifests_as_json_on_some_nodes(manifests: str) -> None:
    code, text, _ = run("ns/p", "--manifests", manifests, "--node", "a", "--output", "json")
    assert code == FOUND_PROBLEMS
    assert orjson.loads(text)["nodes"][0]["nodes"] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nobody"], "pod default/nobody does not exist"),
        (["a/b/c"], "a/b/c: expected POD or NAMESPACE/POD"),
        (["ns/p", "--server", "http://x"], "only one of them"),
        (["ns/p", "--cacert", "ca.crt"], "--token-file, --cacert, --cert and --key are for --server"),
    ],
)
def test_mistakes_on_the_command_line(manifests: str, arguments: list[str], error: str) -> None:
    code, text, errors = run(*arguments, "--manifests", manifests)
    assert (code, text) == (USAGE, "")
    assert error in errors


def test_a_service_that_is_not_there() -> None:
    code, _, errors = run("ns/p", "--server", "http://127.0.0.1:1")
    assert code == USAGE
    assert errors.startswith("error: http://127.0.0.1:1/explain/ns/p: ")


def answering(status: int, body: Any) -> httpx.MockTransport:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return httpx.MockTransport(lambda _: httpx.Response(status, content=content))


def test_a_service_is_asked_for_the_pod_and_the_nodes() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"verdict": "fits", "text": "pod ns/p fits\n"})

    inquiry = ExplainedObject(ObjectKey("ns", "p"), ("a", "b"))
    found = asked(inquiry, Remote("http://service/", transport=httpx.MockTransport(answer)))
    assert found.is_good
    assert found.text == "pod ns/p fits\n"
    assert [str(each.url) for each in seen] == ["http://service/explain/ns/p?node=a&node=b"]


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (404, {"error": "pod ns/p does not exist"}, "pod ns/p does not exist"),
        (503, {"error": "not ready: pods: not synced yet"}, "not synced yet"),
        (200, {"hello": "world"}, "status 200 and no explanation: is this a dra-extender?"),
        (502, b"<html>", "status 502 and no answer of dra-extender"),
        (200, b"[]", "status 200 and no answer of dra-extender"),
    ],
)
def test_a_service_that_can_not_answer(status: int, body: Object | bytes, problem: str) -> None:
    with pytest.raises(InquiryError, match="http://service/explain/ns/p: ") as error:
        asked(ExplainedObject(ObjectKey("ns", "p")), Remote("http://service", transport=answering(status, body)))
    assert problem in str(error.value)
