"""Manifests: YAML and JSON files to raw API objects, with a report per file.

Each document is used, skipped because of its kind, or reported with its problems.
"""

import errno
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from allocator import InvalidObjectError, Problem, schema_problems, shown, validate
from extender.config.yamltext import SyntaxProblem, documents
from extender.kube.api import CLAIMS, NAMESPACES, RESOURCES, TEMPLATES, Resource
from extender.kube.claim_rules import admin_problems
from extender.state.kinds import all_kinds
from extender.state.objects import parse_namespace

LOADED: Final[Mapping[str, Resource]] = {**RESOURCES, NAMESPACES.kind: NAMESPACES}
"""What is read from manifests, by kind; objects of other kinds are skipped."""

MOST_MIB: Final = 256
"""Limit for one file: its objects take many times as much memory."""

_GIVEN: Final = (Path("/dev/stdin"), Path("/dev/fd"), Path("/proc/self/fd"))
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_NO_KIND: Final = "(no kind)"


@dataclass(frozen=True, slots=True)
class RawObject:
    """An API object from a file; its metadata has a namespace if its kind has one.

    Attributes:
        document: number of the document in the file, from 1.
    """

    kind: str
    namespace: str
    name: str
    data: Mapping[str, object]
    source: Path
    document: int

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a file; ``subject`` is kind and name of the object, if they are known.

    Attributes:
        document: number of the document in the file, from 1; 0 for the file itself.
    """

    problem: Problem
    subject: str = ""
    document: int = 0

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}" if self.subject else str(self.problem)


@dataclass(frozen=True, slots=True)
class FileReport:
    """The report of a file: objects used and skipped, by kind, and problems; ``is_readable``: it could be opened."""

    path: Path
    used: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """All files, in order, and the objects without problems in them."""

    files: tuple[FileReport, ...]
    objects: tuple[RawObject, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems of all files, each with its file."""
        return _told(self.files)

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The problems of files and folders that could not be read at all."""
        return _told(report for report in self.files if not report.is_readable)


def _told(reports: Iterable[FileReport]) -> tuple[str, ...]:
    return tuple(f"{report.path}: {problem}" for report in reports for problem in report.problems)


def load(paths: Sequence[Path], check_expression: Callable[[str], str | None] | None = None) -> Loaded:
    """Read files of any name; in folders and their subfolders ``*.yaml``, ``*.yml`` and ``*.json``, by name.

    ``check_expression`` returns what is wrong with a CEL expression, or None.
    """
    files: list[FileReport] = []
    objects: list[RawObject] = []
    for path in paths:
        for file in _files(path):
            report, found = _load_file(file, check_expression)
            files.append(report)
            objects += found
    return Loaded(tuple(files), tuple(objects))


def duplicates(objects: Iterable[RawObject]) -> tuple[str, ...]:
    """Objects that appear more than once, each with its files."""
    first: dict[tuple[str, str, str], RawObject] = {}
    found = []
    for each in objects:
        other = first.setdefault((each.kind, each.namespace, each.name), each)
        if other is not each:
            found.append(f"{each} is in {other.source} and again in {each.source}")
    return tuple(found)


def unauthorized(objects: Collection[RawObject]) -> tuple[str, ...]:
    """Claims and claim templates with adminAccess that an API server would refuse in their namespaces.

    A namespace that is not among the objects has no labels. Allocated claims were accepted before.
    """
    labels = {each.name: parse_namespace(each.data) for each in objects if each.kind == NAMESPACES.kind}
    found = []
    for each in objects:
        if each.kind not in {CLAIMS.kind, TEMPLATES.kind} or _is_allocated(each.data):
            continue
        where = (
            f" {each.namespace}" if each.namespace in labels else f" {each.namespace}, which is not among the manifests"
        )
        problems = admin_problems(dict(each.data), labels.get(each.namespace, {}))
        found += [f"{each.source}: {each}: {problem}{where}" for problem in problems]
    return tuple(found)


def _is_allocated(data: Mapping[str, object]) -> bool:
    status = data.get("status")
    return isinstance(status, dict) and bool(status.get("allocation"))


def _files(path: Path) -> list[Path]:
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False  # Reading it gives the error.
    if not is_folder:
        return [path]
    found = [file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file()]
    visible = [f for f in found if not any(part.startswith(".") for part in f.relative_to(path).parts)]
    return sorted(visible) or [path]


def _load_file(path: Path, check: Callable[[str], str | None] | None) -> tuple[FileReport, list[RawObject]]:
    try:
        text = _text_of(path)
    except FileNotFoundError:
        return _unreadable(path, "no such file or folder"), []
    except IsADirectoryError:
        return _unreadable(path, "no manifests in this folder"), []
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror or error}"), []
    except UnicodeDecodeError:
        return FileReport(path, problems=(FileProblem(Problem("", "is not text in UTF-8")),)), []
    except ValueError as error:
        return _unreadable(path, f"cannot be read: {error}"), []
    reader = _FileReader(path, check)
    reader.read(text)
    return FileReport(path, reader.used, reader.skipped, tuple(reader.problems)), reader.objects


def _text_of(path: Path) -> str:
    """The text of a regular file, or of an open file of this process such as ``/dev/stdin`` and ``/dev/fd/63``.

    Raises:
        OSError: it cannot be read, is no file, or is larger than `MOST_MIB`.
        ValueError: it is not text in UTF-8.
    """
    status, is_given = path.stat(), path in _GIVEN or path.parent in _GIVEN
    if not is_given and not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    most = MOST_MIB << 20
    if status.st_size <= most:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(most + 1)
        if len(text) <= most:
            return text
    raise OSError(errno.EFBIG, f"larger than {MOST_MIB} MiB")


def _unreadable(path: Path, why: str) -> FileReport:
    return FileReport(path, problems=(FileProblem(Problem("", why)),), is_readable=False)


class _FileReader:
    """Sorts the documents of one file."""

    def __init__(self, path: Path, check: Callable[[str], str | None] | None) -> None:
        self.path = path
        self.used: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.problems: list[FileProblem] = []
        self.objects: list[RawObject] = []
        self._check = check
        self._parsers = {kind: each.parse for kind, each in all_kinds().items()} | {NAMESPACES.kind: parse_namespace}

    def read(self, text: str) -> None:
        """All documents."""
        is_json = self.path.suffix == ".json"
        for number, document in enumerate(documents(text, is_json=is_json), start=1):
            if isinstance(document, SyntaxProblem):
                hint = "a template, not YAML, it seems: " if "{{" in text else ""
                self._note(number, "", [Problem(f"line {document.line}", f"{hint}{document.message}")])
            elif document is not None:
                for each in _expanded(document):
                    self._sort(each, number)

    def _sort(self, obj: object, number: int) -> None:
        """Use an object, skip it, or note its problems."""
        if not isinstance(obj, dict):
            self._note(number, "", [Problem("", f"document {number} is not an object")])
            return
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if version is None and kind is None:
            self.skipped[_NO_KIND] += 1
            return
        if not isinstance(kind, str) or not kind:
            self._note(number, _name(obj), [_no_text("kind", kind)])
            return
        if not isinstance(version, str) or not version:
            self._note(number, f"{kind} {_name(obj)}", [_no_text("apiVersion", version)])
            return
        resource = LOADED.get(kind)
        if resource is None or resource.group != version.rpartition("/")[0]:
            self.skipped[kind] += 1
            return
        self._use(self._completed(obj, resource), kind, number)

    def _use(self, obj: dict[str, object], kind: str, number: int) -> None:
        problems = _problems(obj, self._parsers[kind], self._check)
        if problems:
            self._note(number, f"{kind} {_name(obj)}", problems)
            return
        metadata = obj["metadata"]
        namespace = str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""
        self.used[kind] += 1
        self.objects.append(RawObject(kind, namespace, _name(obj), obj, self.path, number))

    def _completed(self, obj: dict[str, object], resource: Resource) -> dict[str, object]:
        """The object with what an API server adds: the namespace, and a name from generateName."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return obj
        added: dict[str, object] = {}
        if resource.namespaced and not metadata.get("namespace"):
            added["namespace"] = "default"
        prefix = metadata.get("generateName")
        if isinstance(prefix, str) and prefix and not metadata.get("name"):
            added["name"] = f"{prefix}{len(self.objects) + 1:05}"
        return {**obj, "metadata": {**metadata, **added}} if added else obj

    def _note(self, number: int, subject: str, problems: Iterable[Problem]) -> None:
        self.problems += (FileProblem(problem, subject.strip(), number) for problem in problems)


def _problems(
    obj: Mapping[str, object],
    parse: Callable[[Mapping[str, object]], object],
    check: Callable[[str], str | None] | None,
) -> Sequence[Problem]:
    """All problems of an object: fields that cannot be read or that are unknown, and rules of an API server."""
    found: tuple[Problem, ...] = ()
    try:
        parse(obj)
    except InvalidObjectError as error:
        found = error.problems
    if any(problem.path == "apiVersion" for problem in found):
        return found
    first: dict[str, Problem] = {}
    for problem in (*found, *schema_problems(obj)):
        first.setdefault(problem.path, problem)
    ruled = (problem for problem in validate(obj, check) if problem.path not in first)
    return tuple(dict.fromkeys((*first.values(), *ruled, *_unwritable(obj))))


def _unwritable(value: object, path: str = "") -> Iterator[Problem]:
    """What cannot be sent to an API server: whole numbers of more than 64 bits, halves of surrogate pairs."""
    try:
        orjson.dumps(value)
    except TypeError as error:
        inner: Iterable[tuple[str, object]] = ()
        if isinstance(value, dict):
            inner = ((f"{path}.{key}" if path else key, each) for key, each in value.items())
        elif isinstance(value, list):
            inner = ((f"{path}[{index}]", each) for index, each in enumerate(value))
        found = [problem for at, each in inner for problem in _unwritable(each, at)]
        yield from found or [Problem(path, f"can't be sent as JSON: {str(error).lower()}")]


def _no_text(field: str, value: object) -> Problem:
    """The problem of a field that should be a text and is not, or is empty."""
    return Problem(field, "is required" if value is None or value == "" else f"{shown(value)} is not a string")


def _expanded(document: object) -> Iterator[object]:
    """The items of a list, with version and kind from a typed list; or the document itself."""
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        yield document
        return
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind.endswith("List"):
        yield document
        return
    defaults = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    for item in document["items"]:
        yield {**defaults, **item} if isinstance(item, dict) else item


def _name(obj: Mapping[str, object]) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
