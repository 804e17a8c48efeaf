"""What if, in the browser: the question in the form and in the URL, the answer of the service, nothing written."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.hostile import MARKUP, SHOWN, UNSEEN
from tests.console.service import Served
from tests.console.test_hostile import check_harmless

Open = Callable[..., Console]

EAGLE = {
    "pod": "demo/eagle",
    "request": "gpu",
    "selectors": ['device.attributes["gpu.example.com"].model == "falcon-80"'],
}
QUESTION: dict[str, Any] = {"edits": [EAGLE], "nodes": [{"like": "gpu-east-1", "count": 2}], "drain": ["gpu-west-2"]}


def route(question: object) -> str:
    return f"#/what-if?question={quote(json.dumps(question))}"


def asked(page: Console) -> Any:
    """The question in the URL."""
    return page.page.evaluate(
        "JSON.parse(new URLSearchParams(location.hash.split('?')[1] ?? '').get('question') ?? '{}')"
    )


def answered(served: Served, question: object) -> Any:
    return httpx.get(
        f"{served.url}/what-if",
        params={"question": json.dumps(question)},
        headers={"accept": "application/json"},
        trust_env=False,
        timeout=30,
    ).json()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark")])
@pytest.mark.parametrize("question", [{}, QUESTION, {"pods": [{"requests": [{"name": "gpu"}]}]}])
def test_the_view_is_accessible(console: Open, example: Served, question: object, width: int, scheme: str) -> None:
    page = console(example, route(question), width=width, scheme=scheme)
    page.one(".verdict, [role=alert]").wait_for()
    assert page.violations() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    page.problems.clear()  # Chromium logs each answer with status 400


def test_a_link_shows_the_answer_of_the_service(console: Open, example: Served) -> None:
    page = console(example, route(QUESTION))
    page.one(".verdict").wait_for()
    answer = answered(example, QUESTION)
    assert page.texts(".verdict") == [answer["text"].splitlines()[0]]
    different = [each for each in answer["pods"] if each["edited"] or each["difference"] not in ("as today", "waits")]
    assert [text.split()[0] for text in page.texts(".card.fate h3")] == [each["pod"] for each in different]
    assert [text.split()[0] for text in page.texts(".new-node h3")] == [each["node"] for each in answer["nodes"]]
    marks = sum(len(row["states"]) for row in answer["picture"]["rows"])
    assert page.one(".new-node .mark").count() == marks
    assert "Nothing is written" in page.texts(".what-if > header p")[0]


def test_a_request_is_edited_by_keyboard_and_the_url_keeps_it(console: Open, example: Served) -> None:
    page = console(example, "#/pod/demo/eagle")
    page.one(".what-if-link a").focus()
    page.page.keyboard.press("Enter")
    selector = page.one("input[name=selector]").first
    selector.focus()
    page.page.keyboard.press("Control+A")
    page.page.keyboard.type(EAGLE["selectors"][0])
    page.page.keyboard.press("Enter")
    expect(page.one(".card.fate h3").first).to_contain_text("edited")
    assert asked(page) == {"edits": [{**EAGLE, "claim": "gpu"}]}
    page.one("input[name=count]").focus()
    page.page.keyboard.press("Control+A")
    page.page.keyboard.type("9")
    page.page.keyboard.press("Tab")
    page.page.wait_for_function("decodeURIComponent(location.hash).includes('\"count\":9')")
    expect(page.one(".card.fate h3").first).to_contain_text("demo/eagle waits edited")
    assert asked(page)["edits"][0]["count"] == 9
    page.one("button.clear").focus()
    page.page.keyboard.press("Enter")
    expect(page.one(".card.fate")).to_have_count(0)
    assert asked(page) == {}


def test_a_value_that_is_as_it_was_is_no_edit(console: Open, example: Served) -> None:
    page = console(example, "#/what-if?pod=demo%2Feagle")
    page.one("input[name=count]").fill("2")
    page.one("input[name=count]").press("Enter")
    expect(page.one(".card h2")).to_contain_text("edited")
    page.one("input[name=count]").fill("1")
    page.one("input[name=count]").press("Enter")
    expect(page.one(".card h2")).not_to_contain_text("edited")
    assert asked(page) == {}


def test_nodes_and_pods_are_added_and_removed_by_keyboard(console: Open, example: Served) -> None:
    page = console(example, "#/what-if")
    keys = page.page.keyboard
    for name, node in (("like", "gpu-east-1"), ("drain", "gpu-west-2")):
        page.one(f"input[name={name}]").focus()
        keys.type(node)
        keys.press("Enter")
    expect(page.one(".new-node h3")).to_contain_text("new-gpu-east-1-1")
    page.one("input[name=nodes]").fill("2")
    page.one("input[name=nodes]").press("Enter")
    expect(page.one(".new-node h3")).to_have_count(2)
    page.one("button.add-pod").focus()
    keys.press("Enter")
    page.one("input[name=class]").fill("gpu.example.com")
    page.one("input[name=class]").press("Enter")
    page.one("input[name=capacity]").fill("memory=1Gi")
    page.one("input[name=capacity]").press("Enter")
    page.one("input[name=priority]").fill("7")
    page.one("input[name=priority]").press("Enter")
    expect(page.one(".card.fate h3").first).to_contain_text("default/what-if-1 new")
    values = {"deviceClassName": "gpu.example.com", "count": 1, "capacity": {"memory": "1Gi"}}
    assert asked(page) == {
        "nodes": [{"like": "gpu-east-1", "count": 2}],
        "drain": ["gpu-west-2"],
        "pods": [
            {"namespace": "default", "name": "what-if-1", "requests": [{"name": "devices", **values}], "priority": 7}
        ],
    }
    while page.one("button.remove").count():
        page.one("button.remove").first.focus()
        keys.press("Enter")
        page.page.wait_for_timeout(50)
    assert asked(page) == {}


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ({"drain": ["gpu-west"]}, "drain[0]: node gpu-west does not exist"),
        ({"edits": [{**EAGLE, "selectors": ["a +"]}]}, "edits[0].selectors[0]: 1:4: Syntax error"),
        ({"edits": [{"pod": "demo/eagel", "request": "gpu", "count": 1}]}, "did you mean demo/eagle?"),
        ({"nonsense": 1}, "nonsense: unknown field"),
        ({"edits": 3, "pods": "x", "drain": {"a": 1}}, "edits: 3 is not a list"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_service(
    console: Open, example: Served, question: object, error: str
) -> None:
    page = console(example, route(question))
    expect(page.one("[role=alert]")).to_contain_text(error)
    page.problems.clear()  # Chromium logs each answer with status 400


@pytest.mark.parametrize("text", ["{", "[1]", "null", "%"])
def test_a_link_that_is_no_question_is_told(console: Open, example: Served, text: str) -> None:
    page = console(example, f"#/what-if?question={quote(text)}")
    expect(page.one(".note.problem")).to_contain_text("The question of this link cannot be read")


@pytest.mark.parametrize("name", ["x" * 9000, "\N{ROCKET}" * 4000], ids=["long", "emoji"])
def test_a_question_that_is_too_long_for_a_link_is_told_and_nothing_is_lost(
    console: Open, example: Served, name: str
) -> None:
    page = console(example, route({"drain": ["gpu-west-2"]}))
    page.one("input[name=like]").fill(name)
    page.one("input[name=like]").press("Enter")
    expect(page.one(".note.problem")).to_contain_text("POST /what-if and kubectl dra what-if take a longer one")
    assert asked(page) == {"drain": ["gpu-west-2"]}


def test_nothing_is_written(console: Open, example: Served) -> None:
    before = example.table("claims"), example.table("pods?state=pending")
    methods: list[str] = []
    page = console(example)
    page.page.on("request", lambda request: methods.append(request.method))
    page.page.goto(f"{example.url}/{route(QUESTION)}")
    page.one(".verdict").wait_for()
    assert {*methods} == {"GET"}
    after = example.table("claims"), example.table("pods?state=pending")
    assert [[each["name" if "name" in each else "namespace"] for each in rows] for rows in after] == [
        [each["name" if "name" in each else "namespace"] for each in rows] for rows in before
    ]


def test_texts_of_others_in_a_question_and_its_answer_are_harmless(console: Open, hostile: Served) -> None:
    text = MARKUP + UNSEEN
    selector = f'device.attributes["{text}"].model == "{MARKUP}"'
    questions = [
        {"edits": [{"pod": "ns/markup", "request": "gpu", "selectors": [selector]}], "nodes": [{"like": "a"}]},
        {"drain": [text], "nodes": [{"like": text}, {"template": text}], "pods": [{"name": text, "namespace": text}]},
        {text: 1},
    ]
    for question in questions:
        page = console(hostile, route(question))
        page.one(".verdict, [role=alert]").first.wait_for()
        check_harmless(page)
        page.problems.clear()  # Chromium logs each answer with status 400
    page = console(hostile, f"#/what-if?pod={quote(text)}")
    expect(page.one(".note.problem")).to_contain_text(f"pod default/{MARKUP}{SHOWN} does not exist")
    check_harmless(page)
    page.problems.clear()  # and each with status 404
