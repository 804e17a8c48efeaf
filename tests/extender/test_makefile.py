"""The Makefile names files of the repository."""

import re

from tests.kit.places import ROOT


def test_each_test_that_the_makefile_runs_exists() -> None:
    named = set(re.findall(r"\btests/[\w/]+\.py\b", (ROOT / "Makefile").read_text()))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_all_laws_have_more_examples_at_night_and_a_row_in_the_docs() -> None:
    reading = {
        (name, str(path.relative_to(ROOT)))
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r'environ\.get\("(\w+_(?:EXAMPLES|HISTORIES))"', path.read_text())
    }
    names = {name for name, _ in reading}
    assert len(names) > 15
    recipes = (ROOT / "Makefile").read_text().splitlines()
    assert [
        (name, file)
        for name, file in sorted(reading)
        if not any(f"{name}=" in recipe and file in recipe.split() for recipe in recipes)
    ] == []
    table = (ROOT / "docs" / "testing.md").read_text()
    assert [name for name in sorted(names) if f"`{name}`" not in table] == []
