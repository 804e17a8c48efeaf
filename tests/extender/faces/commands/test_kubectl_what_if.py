"""`kubectl dra what-if`: the question of a file, asked at a service."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from extender.faces.commands.main import kubectl_app
from tests.console.service import over_manifests
from tests.extender.answers.whatif.test_what_if import world

QUESTION = "drain: [a]\nedits:\n- {pod: ns/many, request: gpu, count: 2}\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "world.yaml").write_text(yaml.safe_dump_all(world()))
    with over_manifests(folder, folder / "world.yaml") as served:
        yield served.url


def called(*arguments: str, sent: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(kubectl_app, ["what-if", *arguments], input=sent)
    return result.exit_code, result.stdout, result.stderr


def test_the_answer_is_text_or_json(url: str, tmp_path: Path) -> None:
    file = tmp_path / "question.yaml"
    file.write_text(QUESTION)
    code, text, messages = called("-f", str(file), "--server", url)
    assert (code, messages) == (0, "")
    assert "Nothing was written" in text
    code, document, _ = called("-f", "-", "-o", "json", "--server", url, sent=QUESTION)
    assert (code, json.loads(document)["text"]) == (0, text)


def test_mistakes_are_told_in_the_words_of_the_service(url: str) -> None:
    code, output, messages = called("-f", "-", "--server", url, sent="drain: [c]")
    assert (code, output) == (2, "")
    assert "drain[0]: node c does not exist" in messages


@pytest.mark.parametrize("name", ["\N{ROCKET}" * 8192, "x" * 100_000], ids=["emoji", "long"])
def test_a_question_may_be_long(url: str, name: str) -> None:
    code, output, messages = called("-f", "-", "--server", url, sent=f"drain: [{name}]")
    assert (code, output) == (2, "")
    assert "drain[0]: node" in messages
    assert "does not exist" in messages


def test_a_question_that_is_too_long_is_refused_by_the_service(url: str) -> None:
    code, _, messages = called("-f", "-", "--server", url, sent=f"drain: [{'x' * 300_000}]")
    assert (code, "longer than the limit of 262144 bytes" in messages) == (2, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"drain: [{2**70}]", "drain[0]: 1.1805916207174113e+21 is not a string"),
        ("a: [", "line 1"),
        ("[1]", "expected one document with drain, nodes, edits or pods, not [1]"),
        ("", "not no documents"),
        ("drain: []\n---\ndrain: []", "not 2 documents"),
    ],
)
def test_a_file_that_is_no_question_is_named(url: str, text: str, problem: str) -> None:
    code, output, messages = called("-f", "-", "--server", url, sent=text)
    assert (code, output) == (2, "")
    assert problem in messages


def test_a_file_that_does_not_exist_is_named() -> None:
    code, _, messages = called("-f", "/none", "--server", "http://127.0.0.1:1")
    assert (code, "/none: " in messages) == (2, True)
