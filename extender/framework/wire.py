"""kube-scheduler's extender/v1 JSON: requests to values, answers to bytes.

Field names are Go's (the Go types have no JSON tags) and are read in exactly that case; the Pods and Nodes inside are
ordinary Kubernetes objects. Source: ``k8s.io/kube-scheduler/extender/v1``. Unknown fields are ignored, as Go does,
unless one is the name of an absent field in another case: that is an error. Null is the same as absent. A value of a
wrong type is a `WireError` with its path; ``where`` is the path of the parent with its dot, as in messages.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from json import JSONEncoder
from typing import Final, TypeAlias, TypeVar, overload

import msgspec
import orjson

from allocator import InvalidObjectError
from allocator.tools import JSON
from extender.cluster.objects.pods import Pod, parse_pod, parse_waiting_pod, parse_whole_pod
from extender.framework.filter import FilterResult
from extender.framework.pods.extended_resources import request_nouns
from extender.framework.victims import Victims

_T = TypeVar("_T")

NAME: Final = 253
"""Longest name of a Pod or Node; uids are shorter. Source: ``k8s.io/apimachinery/pkg/util/validation``."""

NAMESPACE: Final = 63
"""Longest name of a namespace."""

_encoder: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "true or false"}


class WireError(Exception):
    """A request is invalid.

    Attributes:
        field: path of the field, for example ``NodeNames[3]``; empty for the whole body.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}" if field else problem)


def root_of(body: bytes) -> dict[str, JSON]:
    """The body, which must be an object."""
    if not body:
        raise WireError("", "the body is empty: expected a JSON object")
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError("", f"the body is not JSON: {error}") from error
    return as_object(root, "")


def optional(parent: Mapping[str, JSON], field: str, kind: type[_T], where: str = "") -> _T | None:
    """A field of this type; None if it is absent."""
    value = parent.get(field)
    if value is None:
        if field not in parent:
            _refuse_other_case(parent, field, where)
        return None
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise mismatch(where + field, kind, value)
    return value


def _refuse_other_case(parent: Mapping[str, JSON], absent: str, where: str) -> None:
    for field in parent:
        if field.lower() == absent.lower():
            raise WireError(where + field, f"unknown field; did you mean {absent}?")


def required(parent: Mapping[str, JSON], field: str, kind: type[_T], where: str = "") -> _T:
    """A required field of this type."""
    value = optional(parent, field, kind, where)
    if value is None:
        raise WireError(where + field, "missing" if field not in parent else "null")
    return value


def text(parent: Mapping[str, JSON], field: str, where: str = "") -> str:
    """A required string that is not empty."""
    value = optional(parent, field, str, where)
    if not value:
        raise WireError(where + field, "missing" if value is None else "empty")
    return value


def as_object(value: JSON, where: str) -> dict[str, JSON]:
    """A value that must be an object; ``where`` is its own path."""
    if not isinstance(value, dict):
        raise mismatch(where, dict, value)
    return value


def as_pod(value: JSON, where: str, parse: Callable[[Mapping[str, JSON]], Pod] = parse_pod) -> Pod:
    """A value that must be a Pod; ``where`` is its own path, and ``parse`` reads it."""
    try:
        pod = parse(as_object(value, where))
    except InvalidObjectError as error:
        raise WireError(where, error.summary) from error
    at = f"{where}." if where else ""
    limited(pod.name, f"{at}metadata.name", NAME)
    limited(pod.namespace, f"{at}metadata.namespace", NAMESPACE)
    limited(pod.uid, f"{at}metadata.uid", NAME)
    return pod


def name_of(value: JSON, where: str) -> str:
    """The name in the metadata of a value that must be an API object; ``where`` is its own path."""
    metadata = optional(as_object(value, where), "metadata", dict, f"{where}.") or {}
    return limited(text(metadata, "name", f"{where}.metadata."), f"{where}.metadata.name", NAME)


def limited(value: str, field: str, most: int) -> str:
    """A name, which is remembered and logged. So it must not be longer than a name in a cluster can be.

    Raises:
        WireError: the name is longer than ``most`` characters.
    """
    if len(value) > most:
        raise WireError(field, f"must be no more than {most} characters, not {len(value)}: {value[:40]}...")
    return value


def mismatch(where: str, kind: type, value: object) -> WireError:
    """The error that a value has the wrong type."""
    return WireError(where, f"expected {_NAMES[kind]}, not {_beginning(value)}")


def _beginning(value: object) -> str:
    """The beginning of the value's JSON. The rest, which may be long or nested deeply, is not written."""
    text = ""
    for piece in _encoder.iterencode(value):
        text += piece
        if len(text) > 40:
            return f"{text[:37]}..."
    return text


class Names(Sequence[str]):
    """A JSON list of strings that is decoded when it is first read.

    Attributes:
        json: the list.
    """

    def __init__(self, json: bytes, count: int) -> None:
        self.json = json
        self._count = count

    @classmethod
    def of(cls, json: bytes) -> "Names | None":
        """The names in a text that is JSON; None if counting does not show that it is a list of strings.

        A flat list of n elements has at least n - 1 commas, and at most 2n quotes. If every comma separates elements,
        and there are two quotes per element, then every element is a string.
        """
        count = json.count(b",") + 1 if b'"' in json else 0
        is_flat = json[:1] == b"[" and json.find(b"[", 1) < 0 and b"{" not in json
        is_plain = json.isascii() and b"\\" not in json
        is_list = is_flat and is_plain and json.count(b'"') == 2 * count and (count > 0 or json == b"[]")
        return cls(json, count) if is_list else None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._decoded[index]

    @cached_property
    def _decoded(self) -> list[str]:
        names: list[str] = orjson.loads(self.json)
        return names


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """ExtenderArgs, of filter and prioritize.

    Attributes:
        names: the nodes asked about, in the order sent.
        nodes: name to the Node as it was sent, with ``nodeCacheCapable: false``; None if only names were sent.
    """

    pod: Pod
    names: Sequence[str]
    nodes: Mapping[str, Mapping[str, JSON]] | None = None


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """ExtenderPreemptionArgs: the victims that the scheduler has chosen, per node."""

    pod: Pod
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class BindArgs:
    """ExtenderBindingArgs."""

    name: str
    namespace: str
    uid: str
    node: str


class _NamesMode(msgspec.Struct):
    """ExtenderArgs with names alone, as kube-scheduler sends them. Its parts are not decoded yet."""

    Pod: msgspec.Raw
    NodeNames: msgspec.Raw
    Nodes: None = None


class _Metadata(msgspec.Struct, rename={"version": "resourceVersion"}):
    uid: str = ""
    version: str = ""


class _Versioned(msgspec.Struct):
    """An object whose version alone is read."""

    metadata: _Metadata


KnownPod: TypeAlias = Callable[[str, str], Pod | None]
"""Returns the pod of a uid in a resourceVersion, if it was read before; else None."""

_versioned: Final = msgspec.json.Decoder(_Versioned)
_names_mode: Final = msgspec.json.Decoder(_NamesMode)
_names: Final = msgspec.json.Decoder(list[str])

_PODS: Final = 16
"""Pods that are remembered: those of a few schedulers."""

_POD_BYTES: Final = 256 * 1024
"""The longest Pod that is remembered. Almost all are shorter."""


def unknown_pod(_uid: str, _version: str) -> None:
    """A `KnownPod` that knows none."""


def decode_filter(body: bytes, known: KnownPod = unknown_pod) -> FilterArgs:
    """ExtenderArgs. A null list is an empty one. A pod that is known in its version is not read again.

    Raises:
        WireError: the body is something else.
    """
    return _plain(body, known) or decode_whole(body, parse_pod)


def decode_whole(body: bytes, parse: Callable[[Mapping[str, JSON]], Pod] = parse_whole_pod) -> FilterArgs:
    """Like `decode_filter`, with names or with whole nodes; ``parse`` reads the pod. Errors name the field."""
    root = root_of(body)
    pod = as_pod(required(root, "Pod", dict), "Pod", parse)
    nodes, names = optional(root, "Nodes", dict), optional(root, "NodeNames", list) or []
    if "NodeNames" not in root and "Nodes" not in root:
        raise WireError("NodeNames", "missing, and so is Nodes: one of them must be given")
    if nodes is not None:
        items = optional(nodes, "items", list, "Nodes.") or []
        by_name = {name_of(item, f"Nodes.items[{index}]"): item for index, item in enumerate(items)}
        return FilterArgs(pod, tuple(by_name), by_name)
    try:
        "".join(names)  # the fastest check that all are strings: there may be thousands
    except TypeError as error:
        wrong = next(index for index, name in enumerate(names) if not isinstance(name, str))
        raise mismatch(f"NodeNames[{wrong}]", str, names[wrong]) from error
    return FilterArgs(pod, names)


def _plain(body: bytes, known: KnownPod) -> FilterArgs | None:
    """A request with names alone, read fast; None if there is something unusual, for which `decode_whole` is."""
    try:
        parts = _names_mode.decode(body)
        pod = _pod(bytes(parts.Pod), known)
        names = _names.decode(parts.NodeNames) if pod.needs_devices else Names.of(bytes(parts.NodeNames))
    except (msgspec.MsgspecError, orjson.JSONDecodeError, UnicodeDecodeError, RecursionError, WireError):
        return None
    return None if names is None else FilterArgs(pod, names)


def _pod(json: bytes, known: KnownPod) -> Pod:
    """A Pod. prioritize is sent the same text as filter was, so it is not read again."""
    metadata = _versioned.decode(json).metadata
    found = known(metadata.uid, metadata.version)
    if found is not None:
        return found
    return _remembered_pod(json) if len(json) <= _POD_BYTES else _read_pod(json)


@lru_cache(maxsize=_PODS)
def _remembered_pod(json: bytes) -> Pod:
    return _read_pod(json)


def _read_pod(json: bytes) -> Pod:
    return as_pod(orjson.loads(json), "Pod", parse_waiting_pod)


def decode_preempt(body: bytes) -> PreemptArgs:
    """ExtenderPreemptionArgs, with either map; victims are told by uid in both.

    Raises:
        WireError: the body is something else.
    """
    root = root_of(body)
    pod = as_pod(required(root, "Pod", dict), "Pod")
    fields = ("NodeNameToVictims", "NodeNameToMetaVictims")
    given = {field: optional(root, field, dict) or {} for field in fields}
    if not any(field in root for field in fields):
        raise WireError(fields[1], f"missing, and so is {fields[0]}: one of them must be given")
    victims = {}
    for field, entries in given.items():
        for node, entry in entries.items():
            victims[node] = _victims(entry, f"{field}[{node}]")
    return PreemptArgs(pod, victims)


def decode_bind(body: bytes) -> BindArgs:
    """ExtenderBindingArgs.

    Raises:
        WireError: the body is something else, or a field is empty.
    """
    root = root_of(body)
    fields = (("PodName", NAME), ("PodNamespace", NAMESPACE), ("PodUID", NAME), ("Node", NAME))
    return BindArgs(*(limited(text(root, field), field, most) for field, most in fields))


def encode_filter(args: FilterArgs, result: FilterResult) -> bytes:
    """ExtenderFilterResult, with names or whole nodes, as the request had them, and with the reasons in words.

    Raises:
        WireError: a Node is nested too deeply to be sent back.
    """
    noun, passed = request_nouns(args.pod), result.passed
    failed, unresolvable = result.failed.in_words(noun), result.unresolvable.in_words(noun)
    reply: dict[str, object] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable}
    if args.nodes is None:
        reply["NodeNames"] = orjson.Fragment(passed.json) if isinstance(passed, Names) else passed
        return as_line(reply)
    reply["Nodes"] = {"items": [args.nodes[name] for name in passed]}
    try:
        return as_line(reply)
    except orjson.JSONEncodeError as error:
        # The nodes could be read. But the encoder of JSON does not go as deep as the decoder.
        raise WireError("Nodes", f"the nodes can't be sent back: {error}") from error


class _HostPriority(msgspec.Struct, gc=False):
    """HostPriority. There may be thousands, so Python's garbage collector does not track them."""

    Host: str
    Score: int


_scores: Final = msgspec.json.Encoder()


def encode_scores(names: Iterable[str], scores: Iterable[int]) -> bytes:
    """HostPriorityList: a bare array. Scores are integers from 0 to 10: a float would fail the scheduler's decoder."""
    return _scores.encode(list(map(_HostPriority, names, scores))) + b"\n"


def encode_victims(victims: Mapping[str, Victims]) -> bytes:
    """ExtenderPreemptionResult; pods are always given by uid."""
    entries = {
        node: {"Pods": [{"UID": uid} for uid in entry.uids], "NumPDBViolations": entry.pdb_violations}
        for node, entry in victims.items()
    }
    return as_line({"NodeNameToMetaVictims": entries})


def encode_bound() -> bytes:
    """ExtenderBindingResult after success."""
    return as_line({})


def encode_error(message: str, code: str = "") -> bytes:
    """An error, for any verb; with a code if programs must recognize it.

    Filter and bind have a field ``Error``. Preempt has no such field: the scheduler reads an empty map, and evicts no
    pod. Prioritize expects a list, not an object: the scheduler goes on without our scores.
    """
    return as_line({"Error": message, "Code": code} if code else {"Error": message})


def as_line(reply: object) -> bytes:
    """JSON with a line feed at its end, for terminals. Decoders skip it."""
    return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)


def _victims(value: JSON, where: str) -> Victims:
    entry = as_object(value, where)
    uids = []
    for index, pod in enumerate(optional(entry, "Pods", list, f"{where}.") or []):
        at = f"{where}.Pods[{index}]"
        if (metadata := optional(as_object(pod, at), "metadata", dict, f"{at}.")) is not None:
            uids.append(text(metadata, "uid", f"{at}.metadata."))
        else:
            uids.append(text(pod, "UID", f"{at}."))
    violations = optional(entry, "NumPDBViolations", int, f"{where}.") or 0
    return Victims(tuple(uids), violations)
