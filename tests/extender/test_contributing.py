"""CONTRIBUTING.md: rules that the source itself proves."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.extender.test_docs import ROOT

SOURCES = [
    path
    for package in ("allocator", "extender", "loadtest", "tests")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]


def test_a_module_has_fewer_than_400_lines() -> None:
    assert [path for path in SOURCES if len(path.read_text().splitlines()) >= 400] == []


def declared_tests(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def is_claim(node: ast.AST) -> bool:
    """Whether a test can fail here: an assertion, an expected error, or a helper that checks."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name == "pytest.raises" or name.rpartition(".")[2].lstrip("_").startswith(("assert", "check"))
    return isinstance(node, ast.Assert | ast.Raise)


def test_each_test_makes_a_claim_that_its_reader_sees() -> None:
    tests = [(path, test) for path in SOURCES if path.is_relative_to(ROOT / "tests") for test in declared_tests(path)]
    silent = [f"{path}:{test.lineno}" for path, test in tests if not any(map(is_claim, ast.walk(test)))]
    assert silent == []
