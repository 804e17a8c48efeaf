"""The modules and the stylesheet of the console: nothing in them is left over."""

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[4] / "extender" / "faces" / "console" / "page"
SOURCES: Final = {path.name: path.read_text() for path in PAGE.glob("*.js") if path.name != "lit-html.js"}
STYLES: Final = (PAGE / "style.css").read_text()


def test_what_a_module_exports_another_one_uses() -> None:
    unused = [
        f"{name}: {exported}"
        for name, source in SOURCES.items()
        for exported in re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", source, re.MULTILINE)
        if not any(re.search(rf"\b{exported}\b", other) for at, other in SOURCES.items() if at != name)
    ]
    assert unused == []


def test_what_a_module_imports_or_declares_it_uses() -> None:
    unused = [
        f"{name}: {word}"
        for name, source in SOURCES.items()
        for names in re.findall(r"^import {([^}]*)}|^(?:export )?const (\w+) =|^function (\w+)", source, re.MULTILINE)
        for word in re.findall(r"(\w+)(?=\s*(?:,|$))", ",".join(filter(None, names)).strip(" ,"))
        if len(re.findall(rf"(?<![\w.]){word}\b", source)) < 2 and f"export const {word}" not in source
    ]
    assert unused == []


def test_each_class_of_the_stylesheet_is_on_some_element() -> None:
    rules = re.sub(r"/\*.*?\*/|{[^{}]*}", " ", STYLES, flags=re.DOTALL)
    text = "\n".join(SOURCES.values()) + (PAGE.parents[2] / "answers" / "observe" / "fleet.py").read_text()
    states = {"free", "shared", "blocked", "tainted", "allocated", "clash", "unusable"}
    levels = {f"level{number}" for number in range(5)}
    named = set(re.findall(r"\.([a-z][\w-]*)", rules)) - states - levels
    assert [each for each in sorted(named) if not re.search(rf"[\"' `]{each}[\"' `$]", text)] == []


def test_each_variable_of_the_stylesheet_is_used() -> None:
    text = STYLES + SOURCES["grid.js"]
    defined = set(re.findall(r"--([\w-]+):", STYLES))
    assert [each for each in sorted(defined) if f"var(--{each})" not in text and f'"{each}"' not in text] == []
