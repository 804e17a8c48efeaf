"""Manifests: files to raw API objects, with a report of what is used, skipped because of its kind, or wrong.

Objects that one cluster cannot have are problems, although nothing is wrong with each alone.
"""

import errno
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from allocator import InvalidObjectError, Problem, parse_device_class
from allocator.model.validation import pod_problems, schema_problems, validate
from allocator.tools import Fields, ObjectReader, shown
from extender.cluster.compute_claims import with_cores
from extender.cluster.kinds import all_kinds
from extender.cluster.objects.claims import parse_claim_object
from extender.cluster.objects.pods import parse_pod, parse_whole_pod
from extender.cluster.priority_classes import PriorityClass, PriorityClasses, parse_priority_class
from extender.cluster.resource_quotas import Account, Charge, Extended, ResourceQuota, charges_of, parse_resource_quota
from extender.kube.api import ObjectKey
from extender.kube.claim_rules import admin_problems
from extender.kube.resources import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUOTAS,
    RESOURCES,
    TEMPLATES,
    Resource,
)
from extender.lab.old_forms import changes_of, from_text_form
from extender.tools.yamltext import SyntaxProblem, documents

LOADED: Final[Mapping[str, Resource]] = {
    **{kind: each for kind, each in RESOURCES.items() if not each.is_aside},
    **{each.kind: each for each in (NAMESPACES, PRIORITY_CLASSES, QUOTAS)},
}
"""What is read from manifests, by kind; objects of other kinds are skipped."""
MOST_MIB: Final = 256
"""Limit for one file: its objects take many times as much memory."""

_Parsers: TypeAlias = "Mapping[str, Callable[[Mapping[str, object]], object]]"
"""By kind."""

_Check: TypeAlias = "Callable[[str], str | None] | None"

_STANDARD_INPUT: Final = Path("-")
_GIVEN: Final = (Path("/dev/stdin"), Path("/dev/fd"), Path("/proc/self/fd"))
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_NO_KIND: Final = "(no kind)"
DEFAULT_NAMESPACE: Final = "default"
_NO_KEY: Final = ObjectKey("", "")


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """An API object from a file; its metadata has a namespace if its kind has one.

    Attributes:
        document: number of the document in the file, from 1.
        value: the object as its kind's parser reads it; None for an object of a kind that is not used.
    """

    kind: str
    namespace: str
    name: str
    data: Mapping[str, object]
    source: Path
    document: int
    value: object = field(default=None, compare=False, repr=False)

    @property
    def uid(self) -> str:
        """The uid; empty if the file names none."""
        metadata = self.data.get("metadata")
        return str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""

    @property
    def full_name(self) -> str:
        """The name, with the namespace if the object has one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def is_used(self) -> bool:
        """Whether a cluster in memory has objects of this kind."""
        return _resource(self.data) is not None

    def __str__(self) -> str:
        return f"{self.kind} {self.full_name}"


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a file; ``subject`` is kind and name of the object, if they are known.

    Attributes:
        document: number of the document in the file, from 1; 0 for the file itself.
        kind, key: of the object, if a cluster in memory has objects of this kind; else empty.
        rejected: the object as it was written; None if the problem is that of a file or of no object.
    """

    problem: Problem
    subject: str = ""
    document: int = 0
    kind: str = ""
    key: ObjectKey = _NO_KEY
    rejected: ManifestObject | None = field(default=None, compare=False, repr=False)

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

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found in the file."""
        return not (self.used or self.skipped or self.problems)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All files, in order, and the objects without problems in them, also those of kinds that are not used."""

    files: tuple[FileReport, ...]
    documents: tuple[ManifestObject, ...]

    @property
    def objects(self) -> tuple[ManifestObject, ...]:
        """The objects of the kinds that are used."""
        return tuple(each for each in self.documents if each.is_used)

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems of all files, each with its file."""
        return _problems_of(self.files)

    @property
    def rejected(self) -> tuple[ManifestObject, ...]:
        """The objects with problems, as they were written."""
        found = [each.rejected for report in self.files for each in report.problems if each.rejected is not None]
        return tuple({id(each): each for each in found}.values())

    def problems_of_others(self, objects: Iterable[ManifestObject]) -> tuple[str, ...]:
        """All problems but those of some rejected objects, each with its file."""
        known = set(map(id, objects))
        return _problems_of(
            replace(report, problems=tuple(each for each in report.problems if id(each.rejected) not in known))
            for report in self.files
        )

    @property
    def refused(self) -> Mapping[tuple[str, ObjectKey], Problem]:
        """The first problem of each object that is left out, by kind and key."""
        found = [problem for report in self.files for problem in report.problems if problem.key.name]
        return {(each.kind, each.key): each.problem for each in reversed(found)}

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The problems of files and folders that could not be read at all."""
        return _problems_of(report for report in self.files if not report.is_readable)


def _problems_of(reports: Iterable[FileReport]) -> tuple[str, ...]:
    return tuple(f"{report.path}: {problem}" for report in reports for problem in report.problems)


def load(paths: Sequence[Path], check_expression: _Check = None, *, namespace: str = DEFAULT_NAMESPACE) -> Loaded:
    """Read files of any name; in folders and their subfolders ``*.yaml``, ``*.yml`` and ``*.json``, by name.

    A path ``-`` is standard input. ``check_expression`` returns what is wrong with a CEL expression, or None.
    ``namespace`` is that of objects that name none.
    """
    files: list[FileReport] = []
    objects: list[ManifestObject] = []
    parsers = _parsers()
    for path in paths:
        for file in _files(path):
            report, found = _load_file(file, _FileReader(file, parsers, check_expression, namespace))
            files.append(report)
            objects += found
    return Loaded(tuple(files), tuple(objects))


def load_objects(objects: Iterable[object], source: str, check_expression: _Check = None) -> Loaded:
    """Objects that are there already, as `load` reads them; ``source`` stands for the file in messages."""
    reader = _FileReader(Path(source), _parsers(), check_expression)
    for number, document in enumerate(objects, start=1):
        reader.read_document(document, number)
    return Loaded((reader.report,), tuple(reader.objects))


def _files(path: Path) -> list[Path]:
    if path == _STANDARD_INPUT:
        return [Path("/dev/stdin")]
    try:
        is_folder = path.is_dir()
    except OSError:
        is_folder = False  # Reading it gives the error.
    if not is_folder:
        return [path]
    found = [file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file()]
    visible = [f for f in found if not any(part.startswith(".") for part in f.relative_to(path).parts)]
    return sorted(visible) or [path]


def _parsers() -> _Parsers:
    """The parsers of one cluster: equal values of its objects are shared, also between files."""
    watched = {kind: each.parse for kind, each in all_kinds(parse_whole_pod).items()}
    others: _Parsers = {
        NAMESPACES.kind: parse_namespace,
        PRIORITY_CLASSES.kind: parse_priority_class,
        QUOTAS.kind: parse_resource_quota,
    }
    return {**watched, **others}


def _load_file(path: Path, reader: "_FileReader") -> tuple[FileReport, list[ManifestObject]]:
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
    except ValueError:  # each Python says it in its own words
        return _unreadable(path, "cannot be read: its path has a null character"), []
    reader.read(text)
    return reader.report, reader.objects


def _text_of(path: Path) -> str:
    """The text of a regular file, or of an open file of this process such as ``/dev/stdin`` and ``/dev/fd/63``.

    Raises:
        OSError: it cannot be read, is no file, or is larger than `MOST_MIB`.
        UnicodeDecodeError: it is not text in UTF-8.
        ValueError: its path has a null character.
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

    def __init__(self, path: Path, parsers: _Parsers, check: _Check, namespace: str = DEFAULT_NAMESPACE) -> None:
        self.path = path
        self._namespace = namespace
        self.used: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.problems: list[FileProblem] = []
        self.objects: list[ManifestObject] = []
        self._check = check
        self._parsers = parsers

    def read(self, text: str) -> None:
        """All documents."""
        is_json = self.path.suffix == ".json"
        for number, document in enumerate(documents(text, is_json=is_json), start=1):
            if isinstance(document, SyntaxProblem):
                hint = "a template, not YAML, it seems: " if "{{" in text else ""
                self._note(number, "", [Problem(f"line {document.line}", f"{hint}{document.message}")])
            elif document is not None:
                self.read_document(document, number)

    def read_document(self, document: object, number: int) -> None:
        """One document: an object, or a list of objects."""
        for each in _expanded(document):
            before = len(self.problems)
            self._sort(each, number)
            if len(self.problems) > before and isinstance(each, dict):
                kind = str(each.get("kind") or "")
                rejected = ManifestObject(kind, _namespace(each), _name(each), each, self.path, number)
                self.problems[before:] = [replace(problem, rejected=rejected) for problem in self.problems[before:]]

    @property
    def report(self) -> FileReport:
        """What was read so far."""
        return FileReport(self.path, self.used, self.skipped, tuple(self.problems))

    def _sort(self, obj: object, number: int) -> None:
        """Use an object, skip it, or note its problems."""
        if not isinstance(obj, dict):
            self._note(number, "", [Problem("", f"document {number} is not an object")])
            return
        if old := changes_of(obj):
            self._note(number, _subject(str(obj.get("kind")), obj, number), [each.problem for each in old])
            return
        try:
            obj = dict(with_cores(from_text_form(obj)))
        except InvalidObjectError as error:
            self._note(number, _subject(error.kind, obj, number), error.problems)
            return
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if version is None and kind is None:
            self.skipped[_NO_KIND] += 1
            return
        if not isinstance(kind, str) or not kind:
            self._note(number, _name(obj) or f"document {number}", [_no_text("kind", kind)])
            return
        if not isinstance(version, str) or not version:
            self._note(number, _subject(kind, obj, number), [_no_version(kind, version)])
            return
        resource = _resource(obj)
        if resource is None:
            self._skip(obj, kind, number)
        else:
            self._use(self._completed(obj, namespaced=resource.namespaced), kind, number)

    def _skip(self, obj: dict[str, object], kind: str, number: int) -> None:
        """Keep an object of another kind: it may be a workload."""
        problems = schema_problems(obj) or pod_problems(obj)
        if problems:
            self._note(number, _subject(kind, obj, number), problems)
            return
        self.skipped[kind] += 1
        obj = self._completed(obj, namespaced=False)
        self.objects.append(ManifestObject(kind, _namespace(obj), _name(obj), obj, self.path, number))

    def _use(self, obj: dict[str, object], kind: str, number: int) -> None:
        value: object = None
        found: Sequence[Problem] = ()
        try:
            value = self._parsers[kind](obj)
        except InvalidObjectError as error:
            found = error.problems
        problems = _problems(obj, found, self._check)
        if problems:
            key = ObjectKey(_namespace(obj), _name(obj))
            self.problems += (FileProblem(each, _subject(kind, obj, number), number, kind, key) for each in problems)
            return
        self.used[kind] += 1
        self.objects.append(ManifestObject(kind, _namespace(obj), _name(obj), obj, self.path, number, value))

    def _completed(self, obj: dict[str, object], *, namespaced: bool) -> dict[str, object]:
        """The object with what an API server adds: the namespace, and a name from generateName."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return obj
        added: dict[str, object] = {}
        if namespaced and not metadata.get("namespace"):
            added["namespace"] = self._namespace
        prefix = metadata.get("generateName")
        if isinstance(prefix, str) and prefix and not metadata.get("name"):
            added["name"] = f"{prefix}{len(self.objects) + 1:05}"
        return {**obj, "metadata": {**metadata, **added}} if added else obj

    def _note(self, number: int, subject: str, problems: Iterable[Problem]) -> None:
        self.problems += (FileProblem(problem, subject, number) for problem in problems)


def _problems(obj: Mapping[str, object], found: Sequence[Problem], check: _Check) -> Sequence[Problem]:
    """All problems of an object: those that its parser has found, unknown fields, and rules of an API server."""
    if any(problem.path == "apiVersion" for problem in found):
        return found
    first: dict[str, Problem] = {}
    for problem in (*found, *schema_problems(obj)):
        first.setdefault(problem.path, problem)
    ruled = (each for each in (*validate(obj, check), *pod_problems(obj)) if each.path not in first)
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


def _no_version(kind: str, value: object) -> Problem:
    """The problem of an ``apiVersion`` that is no text; it names the version of a kind that is used."""
    problem, resource = _no_text("apiVersion", value), LOADED.get(kind)
    return (
        problem
        if resource is None
        else replace(problem, message=f"{problem.message}: {kind} is of {resource.api_versions()[0]}")
    )


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


def _resource(obj: Mapping[str, object]) -> Resource | None:
    """The kind of an object, if it is one that is used."""
    resource = LOADED.get(str(obj.get("kind")))
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    return resource if resource is not None and resource.group == group else None


def _subject(kind: str, obj: Mapping[str, object], number: int) -> str:
    """Kind and name of an object; or, without a name, the number of its document."""
    return f"{kind} {_name(obj)}" if _name(obj) else f"{kind} of document {number}"


def _name(obj: Mapping[str, object]) -> str:
    return _metadata_text(obj, "name")


def _namespace(obj: Mapping[str, object]) -> str:
    return _metadata_text(obj, "namespace")


def _metadata_text(obj: Mapping[str, object], field_name: str) -> str:
    metadata = obj.get("metadata")
    found = metadata.get(field_name) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""


def parse_namespace(obj: Mapping[str, object]) -> Mapping[str, str]:
    """The labels of a core/v1 Namespace. Raises InvalidObjectError: all fields with a wrong type."""
    reader = ObjectReader("Namespace", obj, ("v1",))
    labels = reader.metadata.text_mapping("labels")
    reader.finish()
    return labels


@dataclass(frozen=True, slots=True)
class RefusedObject:
    """An object that an API server would refuse, and why."""

    object: ManifestObject
    text: str

    def __str__(self) -> str:
        return self.text


def duplicates(objects: Iterable[ManifestObject]) -> tuple[RefusedObject, ...]:
    """Objects that appear more than once, each with its files; the first one is not among them."""
    first: dict[tuple[str, str, str], ManifestObject] = {}
    found = []
    for each in objects:
        other = first.setdefault((each.kind, each.namespace, each.name), each)
        if other is not each:
            found.append(RefusedObject(each, f"{each} is in {other.source} and again in {each.source}"))
    return tuple(found)


def unauthorized(objects: Collection[ManifestObject]) -> tuple[RefusedObject, ...]:
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
        found += [RefusedObject(each, f"{each.source}: {each}: {problem}{where}") for problem in problems]
    return tuple(found)


def priority_classes(
    objects: Iterable[ManifestObject], there: Iterable[PriorityClass] = ()
) -> tuple[PriorityClasses, tuple[RefusedObject, ...]]:
    """The priority classes of a cluster; and those that an API server refuses, because another one is the default.

    Args:
        objects: of manifests.
        there: the classes of the cluster to which the objects are added.
    """
    found, refused = list(there), []
    for each in objects:
        if isinstance(each.value, PriorityClass):
            other = next((known.name for known in found if known.is_default), "") if each.value.is_default else ""
            if other:
                text = f"globalDefault: true, but PriorityClass {other} is the default already"
                refused.append(RefusedObject(each, f"{each.source}: {each}: {text}"))
            else:
                found.append(each.value)
    return PriorityClasses(found), tuple(refused)


_PRIORITIZED: Final = frozenset({PODS.kind, POD_GROUPS.kind})


def prioritized(
    objects: Iterable[ManifestObject], classes: PriorityClasses
) -> tuple[list[ManifestObject], tuple[RefusedObject, ...]]:
    """The objects, where new pods and PodGroups have what their priority classes say; and those that are refused.

    An API server has admitted the objects that have a uid: they stay as they are.
    """
    admitted: list[ManifestObject] = []
    refused = []
    for each in objects:
        if each.kind not in _PRIORITIZED or each.uid or not isinstance(each.data.get("spec"), Mapping):
            admitted.append(each)
            continue
        spec = Fields(each.data, "", []).child("spec")
        new = classes.admitted(spec)
        if each.kind == POD_GROUPS.kind and not spec.has("preemptionPolicy"):  # it has its own feature gate
            new.pop("preemptionPolicy", None)
        admitted.append(each if new == spec.data else replace(each, data={**each.data, "spec": new}, value=None))
        refused += [RefusedObject(admitted[-1], f"{each.source}: {each}: {problem}") for problem in spec.problems]
    return admitted, tuple(refused)


def over_quota(objects: Sequence[ManifestObject], there: Iterable[Mapping[str, Any]] = ()) -> tuple[RefusedObject, ...]:
    """The pods and claims that a ResourceQuota of their namespaces does not allow, if they are created in this order.

    Objects with a uid (an API server has made them), bound pods and allocated claims were accepted before.

    Args:
        objects: of manifests.
        there: API objects of the cluster to which the objects are added.
    """
    raw = [*there, *(each.data for each in objects)]
    quotas: dict[str, list[ResourceQuota]] = {}
    for quota in (parse_resource_quota(each) for each in raw if each["kind"] == QUOTAS.kind):
        quotas.setdefault(quota.namespace, []).append(quota)
    extended = Extended.of(parse_device_class(each) for each in raw if quotas and each["kind"] == CLASSES.kind)
    manifests = {id(each.data): each for each in objects}
    found = []
    for namespace, own in quotas.items():
        account = Account.empty(own, extended)
        charges = _charges([each for each in raw if each["metadata"].get("namespace") == namespace], extended)
        for obj, charge in sorted(charges, key=lambda pair: not _was_accepted(pair[0])):
            refusal = None if _was_accepted(obj) else account.refusal(charge)
            if refusal is None:
                account.add(charge)
            else:
                each = manifests[id(obj)]
                found.append(RefusedObject(each, f"{each.source}: {each} is not made: {refusal}"))
    return tuple(found)


def _charges(raw: Collection[Mapping[str, Any]], extended: Extended) -> list[tuple[Mapping[str, Any], Charge]]:
    """The pods and claims of a namespace in their order, each with its charge."""
    of_kind = {kind: [each for each in raw if each["kind"] == kind] for kind in (PODS.kind, CLAIMS.kind)}
    pods = [(parse_pod(each), each.get("spec") or {}) for each in of_kind[PODS.kind]]
    charges = charges_of(pods, map(parse_claim_object, of_kind[CLAIMS.kind]), extended)
    charged = [*of_kind[PODS.kind], *of_kind[CLAIMS.kind]]
    by_object = {id(each): charge for each, charge in zip(charged, charges, strict=True)}
    return [(each, by_object[id(each)]) for each in raw if id(each) in by_object]


def _was_accepted(data: Mapping[str, Any]) -> bool:
    return bool(data["metadata"].get("uid") or (data.get("spec") or {}).get("nodeName") or _is_allocated(data))


def _is_allocated(data: Mapping[str, object]) -> bool:
    status = data.get("status")
    return isinstance(status, dict) and bool(status.get("allocation"))
