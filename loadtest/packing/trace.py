"""Traces: nodes and pods of a cluster, from CSV files in the format of alibaba/clusterdata, cluster-trace-gpu-v2023."""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

WHOLE: Final = 1000
"""Thousandths of a GPU."""

_T = TypeVar("_T")


class TraceError(ValueError):
    """A file that is no trace; the text names file, line, column and value."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node.

    Attributes:
        cpu: in thousandths of a core.
        memory: in MiB.
        gpus: number of GPUs.
        model: of the GPUs; empty without GPUs.
    """

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks for.

    Attributes:
        cpu: in thousandths of a core.
        memory: in MiB.
        gpus: number of GPUs.
        milli: thousandths of each GPU: 1000, or less if one GPU is shared.
        models: the models of GPU that will do; empty: any.
    """

    cpu: int
    memory: int
    gpus: int = 0
    milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def asked(self) -> int:
        """Thousandths of GPUs in total."""
        return self.gpus * self.milli


@dataclass(frozen=True, slots=True)
class Trace:
    """The pods of one file.

    Attributes:
        name: the file's name without ``pods_`` and without suffix.
        shapes: one for each pod.
    """

    name: str
    shapes: tuple[Shape, ...]


def read_nodes(path: Path) -> tuple[TraceNode, ...]:
    """The nodes of a cluster: columns sn, cpu_milli, memory_mib, gpu, model. Raises TraceError."""
    nodes = _read(path, _node)
    names = set()
    for node in nodes:
        if node.name in names:
            raise TraceError(f"{path}: node {node.name} is there twice")
        names.add(node.name)
    if not sum(node.gpus for node in nodes):
        raise TraceError(f"{path}: no node has a GPU")
    return nodes


def read_trace(path: Path) -> Trace:
    """Pods: columns cpu_milli, memory_mib, num_gpu, gpu_milli and, if models matter, gpu_spec. Raises TraceError."""
    shapes = _read(path, _shape)
    if not sum(shape.asked for shape in shapes):
        raise TraceError(f"{path}: no pod asks for a GPU")
    return Trace(path.stem.removeprefix("pods_"), shapes)


class _Row:
    """A line of a file."""

    def __init__(self, cells: Mapping[str, str | None], place: str) -> None:
        self._cells = cells
        self._place = place

    def text(self, column: str) -> str:
        """The value of a column."""
        found = self._cells.get(column)
        if found is None:
            raise TraceError(f"{self._place}: no value in column {column}")
        return found.strip()

    def choices(self, column: str) -> tuple[str, ...]:
        """The values of a column that may be missing, separated by ``|``."""
        return tuple([each.strip() for each in (self._cells.get(column) or "").split("|") if each.strip()])

    def amount(self, column: str) -> int:
        """The value of a column as a number, 0 or more."""
        text = self.text(column)
        if not text.isdecimal():
            raise self.wrong(column, "is not a whole number of 0 or more")
        return int(text)

    def wrong(self, column: str, what: str) -> TraceError:
        """The error about a value."""
        return TraceError(f'{self._place}: {column} "{self.text(column)}" {what}')


def _read(path: Path, parse: Callable[[_Row], _T]) -> tuple[_T, ...]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return tuple([parse(row) for row in _rows(path, csv.DictReader(file))])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: {error}") from error


def _rows(path: Path, reader: "csv.DictReader[str]") -> Iterator[_Row]:
    for cells in reader:
        yield _Row(cells, f"{path}, line {reader.line_num}")


def _node(row: _Row) -> TraceNode:
    gpus = row.amount("gpu")
    return TraceNode(
        row.text("sn"), row.amount("cpu_milli"), row.amount("memory_mib"), gpus, row.text("model") if gpus else ""
    )


def _shape(row: _Row) -> Shape:
    gpus, cpu, memory = row.amount("num_gpu"), row.amount("cpu_milli"), row.amount("memory_mib")
    if not gpus:
        return Shape(cpu, memory)
    milli = row.amount("gpu_milli")
    if not 0 < milli <= WHOLE:
        raise row.wrong("gpu_milli", f"is not between 1 and {WHOLE}")
    if gpus > 1 and milli < WHOLE:
        raise row.wrong("gpu_milli", f"shares GPUs, but num_gpu is {gpus}: only one GPU can be shared")
    return Shape(cpu, memory, gpus, milli, row.choices("gpu_spec"))
