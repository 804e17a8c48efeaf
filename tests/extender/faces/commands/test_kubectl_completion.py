"""Completion of `kubectl dra`: what may come next, in the form that kubectl reads."""

from collections.abc import Sequence

import pytest

from extender.faces.commands.completion import FILES, NO_FILES, complete

PODS = ["training-1", "training-2", ":4"]


def completed(line: str, answer: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """The candidates without their help, and what kubectl was asked."""
    asked: list[list[str]] = []

    def ask(arguments: Sequence[str]) -> Sequence[str]:
        asked.append([*arguments])
        return answer

    return [each.partition("\t")[0] for each in complete(line.split(" "), ask)], asked


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("p", ["pending", "preemptions", "problems", NO_FILES]),
        ("why", ["why-not", NO_FILES]),
        ("nothing ", [NO_FILES]),
        ("pending --wa", ["--watch", NO_FILES]),
        ("pending -o j", ["json", NO_FILES]),
        ("devices --state t", ["tainted", NO_FILES]),
        ("claims --state in", ["in flight", NO_FILES]),
        ("gangs --state run", ["runs in part", NO_FILES]),
        ("pending ", [NO_FILES]),
        ("simulate -f ", [FILES]),
        ("what-if -f ", [FILES]),
        ("what-if -o y", ["yaml", NO_FILES]),
        ("explain training-1 ", [NO_FILES]),
    ],
)
def test_what_the_command_line_itself_says(line: str, candidates: list[str]) -> None:
    assert completed(line) == (candidates, [])


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("explain tr", ["get", "pods", "tr"]),
        ("explain -n demo --context=x tr", ["get", "pods", "-n", "demo", "--context=x", "tr"]),
        ("why-not ", ["get", "nodes", ""]),
        ("why-not node-1 ", ["get", "pods", ""]),
        ("why-not node-1 -n demo ", ["get", "pods", "-n", "demo", ""]),
        ("devices --class h", ["get", "deviceclasses", "h"]),
        ("pending --kubeconfig k -n d", ["get", "pods", "--kubeconfig", "k", "--namespace", "d"]),
    ],
)
def test_kubectl_is_asked_for_names_in_the_same_place(line: str, asked: list[str]) -> None:
    assert completed(line, PODS) == (PODS, [asked])


def test_claims_are_completed_with_their_type() -> None:
    assert completed("explain claim/f", ["fpga", ":4"]) == (["claim/fpga", ":4"], [["get", "resourceclaims", "f"]])


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("explain claim f", [["get", "resourceclaims", "f"]]),
        ("explain -n demo claim f", [["get", "resourceclaims", "-n", "demo", "f"]]),
        ("explain pod f", [["get", "pods", "f"]]),
        ("explain claim fpga ", []),
    ],
)
def test_a_word_for_a_kind_has_names_of_the_kind_after_it(line: str, asked: list[list[str]]) -> None:
    assert completed(line)[1] == asked


def test_without_an_answer_of_kubectl_there_are_no_candidates() -> None:
    assert completed("explain tr") == ([NO_FILES], [["get", "pods", "tr"]])
