"""How many modules and lines each folder of the source has."""

import ast
import io
import statistics
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SMALL: Final = 20
"""A module with fewer lines of code is a small one."""

_NO_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True, slots=True)
class Module:
    """A file of Python.

    Attributes:
        folder: the first folder inside its package; empty for a file of the package itself.
        lines: all of them.
        code: the lines that are neither blank, nor a comment, nor a docstring.
        is_init: it is an ``__init__.py``.
    """

    folder: str
    lines: int
    code: int
    is_init: bool


@dataclass(frozen=True, slots=True)
class Size:
    """The size of some modules.

    Attributes:
        small: modules with fewer than `SMALL` lines of code, apart from each ``__init__.py``.
        small_inits: each ``__init__.py`` with fewer than `SMALL` lines of code.
    """

    modules: int
    lines: int
    code: int
    median: int
    small: int
    small_inits: int


def modules_of(package: str, root: Path = ROOT) -> list[Module]:
    """Return all modules of a package; those in hidden folders, such as what was built there, are left out."""
    return list(_read(root / package))


def _read(package: Path) -> Iterator[Module]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        if not any(part.startswith(".") for part in parts):
            text = path.read_text()
            folder = parts[0] if len(parts) > 1 else ""
            yield Module(folder, len(text.splitlines()), lines_of_code(text), path.name == "__init__.py")


def lines_of_code(text: str) -> int:
    """Count the lines of a module that are neither blank, nor a comment, nor a docstring."""
    return len(_lines_with_tokens(text) - _lines_of_docstrings(text))


def _lines_with_tokens(text: str) -> set[int]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {line for each in tokens if each.type not in _NO_CODE for line in range(each.start[0], each.end[0] + 1)}


def _lines_of_docstrings(text: str) -> set[int]:
    """Return the lines of texts that are statements: docstrings, also those of constants and attributes."""
    return {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def size_of(modules: Sequence[Module]) -> Size:
    """Add up some modules, at least one."""
    small = [each for each in modules if each.code < SMALL]
    inits = sum(each.is_init for each in small)
    lines = [each.lines for each in modules]
    code = sum(each.code for each in modules)
    return Size(len(modules), sum(lines), code, round(statistics.median(lines)), len(small) - inits, inits)


def by_folder(modules: Iterable[Module]) -> Mapping[str, Size]:
    """Return the size of each folder, the largest first."""
    folders: dict[str, list[Module]] = {}
    for each in modules:
        folders.setdefault(each.folder, []).append(each)
    sizes = {folder: size_of(found) for folder, found in folders.items()}
    return dict(sorted(sizes.items(), key=lambda pair: (-pair[1].lines, pair[0])))
