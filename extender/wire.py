"""kube-scheduler's extender/v1 JSON: requests to values, answers to bytes.

Field names are Go's (the Go types have no JSON tags) and are read in exactly that case; the Pods and Nodes inside are
ordinary Kubernetes objects. Source: ``k8s.io/kube-scheduler/extender/v1``. Unknown fields are ignored, as Go does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import orjson

from allocator.errors import InvalidObjectError
from allocator.model import JSON
from extender.cluster.objects import Pod, parse_pod
from extender.verbs.preempt import Victims

_T = TypeVar("_T")

_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


class WireError(Exception):
    """A request that no kube-scheduler sends.

    Attributes:
        field: path of the field, as ``NodeNames[3]``; empty for the body as a whole.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"{field}: {problem}" if field else problem)


@dataclass(frozen=True, slots=True)
class FilterArgs:
    """ExtenderArgs, of filter and prioritize.

    Attributes:
        names: the nodes asked about, in the order sent.
        nodes: name to the very Node that was sent, with ``nodeCacheCapable: false``; None when only names were sent.
    """

    pod: Pod
    names: Sequence[str]
    nodes: Mapping[str, Mapping[str, JSON]] | None = None


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """ExtenderPreemptionArgs: whom the scheduler would evict, per node."""

    pod: Pod
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class BindArgs:
    """ExtenderBindingArgs."""

    name: str
    namespace: str
    uid: str
    node: str


def decode_filter(body: bytes) -> FilterArgs:
    """ExtenderArgs. A null list is an empty one.

    Raises:
        WireError: the body is something else.
    """
    root = _root(body)
    pod = _pod(root)
    if "NodeNames" not in root and "Nodes" not in root:
        raise WireError("NodeNames", "missing, and so is Nodes: one of them must be given")
    if (nodes := _optional(root, "Nodes", dict)) is not None:
        items = _optional(nodes, "items", list, "Nodes.") or []
        by_name = {_node_name(item, index): item for index, item in enumerate(items)}
        return FilterArgs(pod, tuple(by_name), by_name)
    names = _optional(root, "NodeNames", list) or []
    try:
        "".join(names)  # the quickest way to see that all are strings: there may be thousands
    except TypeError as error:
        wrong = next(index for index, name in enumerate(names) if not isinstance(name, str))
        raise _mismatch(f"NodeNames[{wrong}]", str, names[wrong]) from error
    return FilterArgs(pod, names)


def decode_preempt(body: bytes) -> PreemptArgs:
    """ExtenderPreemptionArgs, with either map; victims are told by uid in both.

    Raises:
        WireError: the body is something else.
    """
    root = _root(body)
    pod = _pod(root)
    fields = ("NodeNameToVictims", "NodeNameToMetaVictims")
    if not any(field in root for field in fields):
        raise WireError(fields[1], f"missing, and so is {fields[0]}: one of them must be given")
    victims = {}
    for field in fields:
        for node, entry in (_optional(root, field, dict) or {}).items():
            victims[node] = _victims(entry, f"{field}[{node}]")
    return PreemptArgs(pod, victims)


def decode_bind(body: bytes) -> BindArgs:
    """ExtenderBindingArgs.

    Raises:
        WireError: the body is something else, or a field is empty.
    """
    root = _root(body)
    return BindArgs(*(_text(root, field) for field in ("PodName", "PodNamespace", "PodUID", "Node")))


def encode_filter(
    args: FilterArgs, passed: Sequence[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> bytes:
    """ExtenderFilterResult, with names or with the very Nodes that were sent, as the request had them."""
    reply: dict[str, object] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable}
    if args.nodes is None:
        reply["NodeNames"] = passed
    else:
        reply["Nodes"] = {"items": [args.nodes[name] for name in passed]}
    return as_line(reply)


def encode_scores(scores: Iterable[tuple[str, int]]) -> bytes:
    """HostPriorityList: a bare array. Scores are integers from 0 to 10: a float would fail the scheduler's decoder."""
    return as_line([{"Host": host, "Score": score} for host, score in scores])


def encode_victims(victims: Mapping[str, Victims]) -> bytes:
    """ExtenderPreemptionResult, always by uid, whatever the request had."""
    entries = {
        node: {"Pods": [{"UID": uid} for uid in entry.uids], "NumPDBViolations": entry.pdb_violations}
        for node, entry in victims.items()
    }
    return as_line({"NodeNameToMetaVictims": entries})


def encode_bound() -> bytes:
    """ExtenderBindingResult of a pod that is bound."""
    return as_line({})


def encode_error(message: str) -> bytes:
    """The answer "could not tell", for any verb.

    Filter and bind have a field ``Error``. Preempt has none and reads the rest as an empty map: nobody is evicted. For
    prioritize an object is not a list: the scheduler goes on without our scores, as it would with an empty list.
    """
    return as_line({"Error": message})


def as_line(reply: object) -> bytes:
    """JSON that ends its line, as terminals like it; decoders skip the line's end."""
    return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)


def _root(body: bytes) -> dict[str, JSON]:
    if not body:
        raise WireError("", "the body is empty: expected a JSON object")
    try:
        root = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise WireError("", f"the body is not JSON: {error}") from error
    if not isinstance(root, dict):
        raise _mismatch("", dict, root)
    return root


def _pod(root: Mapping[str, JSON]) -> Pod:
    if (raw := _optional(root, "Pod", dict)) is None:
        raise WireError("Pod", "missing" if "Pod" not in root else "null")
    try:
        return parse_pod(raw)
    except InvalidObjectError as error:
        raise WireError("Pod", "; ".join(map(str, error.problems))) from error


def _node_name(item: JSON, index: int) -> str:
    where = f"Nodes.items[{index}]"
    if not isinstance(item, dict):
        raise _mismatch(where, dict, item)
    metadata = _optional(item, "metadata", dict, f"{where}.") or {}
    return _text(metadata, "name", f"{where}.metadata.")


def _victims(entry: JSON, where: str) -> Victims:
    if not isinstance(entry, dict):
        raise _mismatch(where, dict, entry)
    uids = []
    for index, pod in enumerate(_optional(entry, "Pods", list, f"{where}.") or []):
        at = f"{where}.Pods[{index}]"
        if not isinstance(pod, dict):
            raise _mismatch(at, dict, pod)
        if (metadata := _optional(pod, "metadata", dict, f"{at}.")) is not None:
            uids.append(_text(metadata, "uid", f"{at}.metadata."))
        else:
            uids.append(_text(pod, "UID", f"{at}."))
    violations = _optional(entry, "NumPDBViolations", int, f"{where}.") or 0
    return Victims(tuple(uids), violations)


def _text(parent: Mapping[str, JSON], field: str, where: str = "") -> str:
    value = _optional(parent, field, str, where)
    if not value:
        raise WireError(where + field, "missing" if value is None else "empty")
    return value


def _optional(parent: Mapping[str, JSON], field: str, kind: type[_T], where: str = "") -> _T | None:
    value = parent.get(field)
    if value is None:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _mismatch(where + field, kind, value)
    return value


def _mismatch(where: str, kind: type, value: object) -> WireError:
    shown = orjson.dumps(value).decode()
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return WireError(where, f"expected {_NAMES[kind]}, not {shown}")
