"""What of the service the corpus reaches: modules whose functions run, and the share of lines of each folder."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coverage import Coverage

from tests.kit.places import ROOT

_ROOT: Final = ROOT
_SERVICE: Final = _ROOT / "extender"


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the service.

    Attributes:
        lines: lines with statements.
        run: those that ran.
        is_entered: a function of it ran; None: it has no functions.
    """

    name: str
    lines: int
    run: int
    is_entered: bool | None

    @property
    def folder(self) -> str:
        """The first folder; empty for a module that stands in none."""
        return self.name.partition("/")[0] if "/" in self.name else ""


@contextmanager
def measured(command: Sequence[str]) -> Iterator[Path]:
    """Run a command of Python and all its processes; within the context, there is a file of what ran."""
    with TemporaryDirectory() as folder:
        data = Path(folder) / "coverage"
        settings = Path(folder) / "settings"
        settings.write_text(
            f"[run]\ndata_file={data}\nparallel=true\nconcurrency=multiprocessing,thread\nsource={_SERVICE}\n"
        )
        run = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", *command]
        subprocess.run(run, check=True, cwd=_ROOT)
        combine = [sys.executable, "-m", "coverage", "combine", "--quiet", f"--rcfile={settings}"]
        subprocess.run(combine, check=True, cwd=_ROOT)
        yield data


def reach(data: Path) -> Iterator[str]:
    """Yield lines: a row for each folder, then the modules of which no function ran."""
    modules = _modules(data)
    yield f"{'folder':<20} {'entered':>9} {'lines':>7}"
    for folder in sorted({each.folder for each in modules}):
        yield _row(folder or "(beside the folders)", [each for each in modules if each.folder == folder])
    yield _row("all", modules)
    yield "modules of which no function ran:"
    yield from (f"  {each.name}" for each in modules if each.is_entered is False)


def _row(name: str, modules: Sequence[Module]) -> str:
    possible = [each for each in modules if each.is_entered is not None]
    entered = sum(bool(each.is_entered) for each in possible)
    lines, run = (sum(getattr(each, field) for each in modules) for field in ("lines", "run"))
    return f"{name:<20} {entered:>4}/{len(possible):<4} {100 * run / max(1, lines):>6.1f}%"


def _modules(data: Path) -> list[Module]:
    coverage = Coverage(data_file=str(data), config_file=str(_ROOT / "pyproject.toml"))
    coverage.load()
    found = []
    for path in sorted(_SERVICE.rglob("*.py")):
        _, statements, _, missing, _ = coverage.analysis2(str(path))
        run = set(statements) - set(missing)
        inside = _lines_of_functions(path)
        entered = bool(run & inside) if inside else None
        found.append(Module(str(path.relative_to(_SERVICE)), len(statements), len(run), entered))
    return found


def _lines_of_functions(path: Path) -> set[int]:
    """The lines of statements in functions."""
    return {
        statement.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for body in node.body
        for statement in ast.walk(body)
        if isinstance(statement, ast.stmt)
    }
