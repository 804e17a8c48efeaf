"""CONTRIBUTING.md: rules that the source itself proves."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from tests.kit.places import ROOT

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

SOURCES: Final = [
    path
    for package in ("allocator", "extender", "loadtest", "tests")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]
TREES: Final = {path: ast.parse(path.read_text()) for path in SOURCES}
TESTS: Final = {path: tree for path, tree in TREES.items() if path.is_relative_to(ROOT / "tests")}
PACED: Final = (ROOT / "tests/kit", ROOT / "tests/hostile")
"""Folders of tests that pause: they wait for others, send calls at a rate, or answer late."""


def test_a_module_has_fewer_than_700_lines() -> None:
    assert [path for path in SOURCES if len(path.read_text().splitlines()) >= 700] == []


def functions(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, Function]]:
    """All functions, each with its place."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{path}:{node.lineno} {node.name}", node


def test_a_function_has_at_most_50_lines() -> None:
    ends = [(place, node.lineno, node.end_lineno or 0) for place, node in functions(TREES)]
    assert [place for place, first, last in ends if last - first >= 50] == []


def test_a_test_does_not_sleep() -> None:
    """`virtualtime.elapse` lets virtual time pass, and `tests.kit.waiting` waits for what is outside of the test."""
    sleeping = [
        f"{path}:{node.lineno}"
        for path, tree in TESTS.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep")
        if ast.unparse(node) != "asyncio.sleep(0)"
        if not any(path.is_relative_to(folder) for folder in PACED)
    ]
    assert sleeping == []


def is_claim(node: ast.AST) -> bool:
    """Whether a test can fail here: an assertion, an expected error or page, or a helper that checks."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name in ("pytest.raises", "expect") or name.rpartition(".")[2].lstrip("_").startswith(
            ("assert", "check")
        )
    return isinstance(node, ast.Assert | ast.Raise)


def test_each_test_makes_a_claim_that_its_reader_sees() -> None:
    tests = [(place, node) for place, node in functions(TESTS) if node.name.startswith("test_")]
    assert [place for place, test in tests if not any(map(is_claim, ast.walk(test)))] == []
