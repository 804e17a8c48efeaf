"""Results from files: runs that were measured before, and what others have published for the same traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from loadtest.packing.run import Run

Published: TypeAlias = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Trace to policy to percent of all GPUs asked for to percent of all GPUs allocated."""

_PUBLISHED: Final[TypeAdapter[Published]] = TypeAdapter(Published)
_RUNS: Final[TypeAdapter[list[Run]]] = TypeAdapter(list[Run])

_T = TypeVar("_T")


class ResultsError(ValueError):
    """A file that does not have results; the text names the file and the place in it."""


def read_published(path: Path) -> Published:
    """Published results from a JSON file. Raises ResultsError."""
    return _read(path, _PUBLISHED)


def read_runs(path: Path) -> list[Run]:
    """Runs from a file that the benchmark has written with ``--output json``. Raises ResultsError."""
    return _read(path, _RUNS)


def _read(path: Path, form: TypeAdapter[_T]) -> _T:
    try:
        return form.validate_json(path.read_bytes())
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ResultsError(f"{path}: {place}: {first['msg']}") from error
