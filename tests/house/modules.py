"""Writes docs/reference/modules.md: the beginning of the docstring of each module, by folder.

``python -m tests.house.modules``.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.sizes import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "modules.md"
_FEWEST_WORDS: Final = 4
"""Fewer say too little: "Losses: a bound pod had a claim, and lacks it now" is shown whole."""

_HEAD: Final = """\
# Modules

Each module with the beginning of its docstring. [architecture.md](../architecture.md) says how they work together.
`make docs-modules` writes this page from the code: change docstrings, not this page.
"""


def page(root: Path = ROOT) -> str:
    """Return the page, in Markdown."""
    folders = (init.parent for package in ("allocator", "extender") for init in (root / package).rglob("__init__.py"))
    return "\n".join([_HEAD, *(_section(folder, root) for folder in sorted(folders))])


def _section(folder: Path, root: Path) -> str:
    place = folder.relative_to(root)
    level = "##" if len(place.parts) == 1 else "###"
    return "\n".join([f"{level} {place}/", "", _first_line(folder / "__init__.py"), "", *_list(folder, root)])


def _list(folder: Path, root: Path) -> Iterator[str]:
    """Yield the lines of a list of the modules in a folder; none if it has only folders."""
    modules = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("__"))
    for path in modules:
        yield f"- [{path.name}](../../{path.relative_to(root)}) {_beginning(_first_line(path))}"
    if modules:
        yield ""


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.partition("\n")[0]


def _beginning(line: str) -> str:
    """Return the line up to its first colon, semicolon or full stop behind at least four words."""
    ends = (end.start() for end in re.finditer(r"[.:;] ", line))
    return next((line[:end] + "." for end in ends if len(line[:end].split()) >= _FEWEST_WORDS), line)


if __name__ == "__main__":
    PAGE.write_text(page())
