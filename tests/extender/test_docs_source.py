"""docs/: statements that the source itself proves."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extender.test_docs import DOCS, REFERENCE
from tests.kit.places import ROOT

LEVELS = {"debug", "info", "warning", "error", "exception", "told"}
WRITES = {"create", "update", "update_status", "patch", "patch_status", "delete", "bind_pod"}
WRITERS = ("cluster/writes", "lab", "node", "plugins/resource_classes", "faces/demo")
"""Folders that write. The second is the API server in memory, with its controllers; the third runs on nodes and writes
slices; the fourth writes device classes; the fifth plays people, schedulers and kubelets before the server in memory.
"""

REASONS = ("framework/pods/claims.py", "framework/pods/extended_resources.py")
"""Modules whose texts of several words are reasons of filter."""

MODULES = [path for package in ("allocator", "extender") for path in sorted((ROOT / package).rglob("*.py"))]


def calls(path: Path) -> Iterator[ast.Call]:
    return (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call))


def logged() -> set[str]:
    """The first argument of each call of a logger, where that is a text."""
    found = set()
    for call in (call for path in MODULES for call in calls(path)):
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        text = call.args[0] if call.args else None
        if name in LEVELS and isinstance(text, ast.Constant) and isinstance(text.value, str):
            found.add(text.value)
    return found


@pytest.mark.parametrize("event", sorted(logged()))
def test_every_event_of_the_log_is_explained(event: str) -> None:
    assert f"`{event}`" in (DOCS / "reference" / "logs.md").read_text()


def reasons(path: Path) -> Iterator[str]:
    """Patterns of the texts that a module makes."""
    for text in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.JoinedStr)):
        parts = [part.value if isinstance(part, ast.Constant) else None for part in text.values]
        if any(part and " " in part.strip() for part in map(str, filter(None, parts))):
            pattern = "".join(".+" if part is None else re.escape(str(part)) for part in parts)
            yield re.sub(r"\\\{\w+\\\}", ".+", pattern)  # a name that a reason fills in


@pytest.mark.parametrize("pattern", sorted({each for name in REASONS for each in reasons(ROOT / "extender" / name)}))
def test_every_reason_of_a_claim_is_explained(pattern: str) -> None:
    """A text may be the end of a reason."""
    assert any(re.fullmatch(f"(?:.+ )?{pattern}", quoted) for quoted in re.findall(r"`([^`\n]+)`", REFERENCE))


def test_only_the_room_of_writes_writes_to_the_api_server() -> None:
    for path in (ROOT / "extender").rglob("*.py"):
        folder = path.relative_to(ROOT / "extender").parent.as_posix()
        found = {
            call.func.attr
            for call in calls(path)
            if isinstance(call.func, ast.Attribute)
            and ast.unparse(call.func.value).rpartition(".")[2] in {"api", "_api"}
        }
        assert folder.startswith(WRITERS) or not found & WRITES, path
