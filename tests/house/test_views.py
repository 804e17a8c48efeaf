"""The table of views in docs/architecture.md, which is held against the code."""

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from typing import Any

from extender.cluster.timeline import View
from tests.house.sizes import ROOT


def views() -> Iterator[Any]:
    """All views of the service."""
    for path in sorted((ROOT / "extender").rglob("*.py")):
        if re.search(r"import .*\bView\b", path.read_text()):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    yield from _below(View)


def _below(view: Any) -> Iterator[Any]:
    for each in view.__subclasses__():
        if not isabstract(each) and each.__module__.startswith("extender."):
            yield each
        yield from _below(each)


def row(view: Any) -> str:
    """The row of a view in the table."""
    path = view.__module__.removeprefix("extender.").replace(".", "/")
    topics = ", ".join(sorted(each.value[0] for each in view.topics))
    return f"| `{view.__name__}` (`{path}.py`) | {topics} | {view.bound} |"


def test_the_table_of_views_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| view | topics |")[2].partition("\n\n")[0].splitlines()[2:]
    assert sorted(table) == sorted(map(row, views()))
