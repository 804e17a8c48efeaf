"""A question from JSON, strictly: each mistake is told with the path of its field."""

from collections.abc import Iterator, Mapping
from typing import Final

from allocator import Fields, Problem, dns_label, dns_subdomain, label_key, shown
from extender.config.wording import suggestion
from extender.kube.api import ObjectKey
from extender.whatif.question import NewNodes, NewPods, Question, QuestionError, RequestEdit
from extender.whatif.requests import VALUES, read_spec, read_values

MOST_ENTRIES: Final = 100
"""Edits, drained nodes, pods that do not exist, and nodes that do not exist: the most of each."""

_TOP: Final = frozenset({"edits", "pods", "nodes", "drain"})
_EDIT: Final = VALUES | {"pod", "claim", "request"}
_POD: Final = frozenset({"name", "namespace", "priority", "count", "requests"})
_REQUEST: Final = VALUES | {"name"}
_NODES: Final = frozenset({"template", "like", "count", "labels"})
_INT32: Final = 2**31
_MOST_NAMED: Final = 10


def read_question(data: Mapping[str, object]) -> Question:
    """The question.

    Raises:
        QuestionError: all mistakes in it.
    """
    problems: list[Problem] = []
    top = Fields(data, "", problems)
    _refuse_unknown(top, _TOP)
    too_many = [
        Problem(name, f"at most {MOST_ENTRIES} are possible, not {len(entries)}")
        for name in sorted(_TOP)
        if isinstance(entries := top.data.get(name), list) and len(entries) > MOST_ENTRIES
    ]
    if too_many:  # before they are read: each costs time, and all together far more
        raise QuestionError(*too_many)
    question = Question(
        edits=tuple(_edit(each) for each in top.children("edits")),
        pods=tuple(_pods(each) for each in top.children("pods")),
        nodes=tuple(_nodes(each) for each in top.children("nodes")),
        drained=top.texts("drain"),
    )
    counts = {
        "edits": len(question.edits),
        "pods": sum(each.count for each in question.pods),
        "nodes": sum(each.count for each in question.nodes),
        "drain": len(question.drained),
    }
    problems += (
        Problem(name, f"at most {MOST_ENTRIES} are possible, not {count}")
        for name, count in counts.items()
        if count > MOST_ENTRIES
    )
    problems += _twice(question)
    if problems:
        raise QuestionError(*problems[:_MOST_NAMED])
    return question


def _edit(fields: Fields) -> RequestEdit:
    _refuse_unknown(fields, _EDIT)
    pod, request = _pod_key(fields), fields.required_text("request")
    if not any(fields.has(name) for name in VALUES):
        fields.problem("", f"changes nothing: give it {', '.join(sorted(VALUES))}")
    return RequestEdit(fields.path, pod, fields.text("claim"), request, read_values(fields))


def _pod_key(fields: Fields) -> ObjectKey:
    namespace, _, name = fields.required_text("pod").rpartition("/")
    return ObjectKey(namespace or "default", name)


def _pods(fields: Fields) -> NewPods:
    _refuse_unknown(fields, _POD)
    name, namespace = fields.text("name") or "what-if", fields.text("namespace") or "default"
    for field, wrong in (("name", dns_subdomain(name)), ("namespace", dns_label(namespace))):
        if wrong:
            fields.problem(field, f"{shown(fields.text(field))} {wrong}")
    requests = fields.children("requests")
    for each in requests:
        _refuse_unknown(each, _REQUEST)
    if not requests:
        fields.problem("requests", "is required: the devices that each of the pods asks for")
    priority = fields.integer("priority")
    if not -_INT32 <= priority < _INT32:
        fields.problem("priority", f"{priority} is not a whole number of 32 bits")
    spec = read_spec(requests, fields.at("requests"))
    return NewPods(fields.path, namespace, name, priority, _count(fields), spec)


def _nodes(fields: Fields) -> NewNodes:
    _refuse_unknown(fields, _NODES)
    template, like = fields.text("template"), fields.text("like")
    if bool(template) == bool(like):
        fields.problem("", "needs template (the name of a node template) or like (the name of a node), one of them")
    labels = fields.text_mapping("labels")
    for key in labels:
        if wrong := label_key(key):
            fields.problem(f"labels[{shown(key)}]", wrong)
    return NewNodes(fields.path, template, like, _count(fields), labels)


def _count(fields: Fields) -> int:
    count = fields.integer("count", 1)
    if count < 1:
        fields.problem("count", f"{count} is not 1 or more")
    return max(1, count)


def _twice(question: Question) -> Iterator[Problem]:
    """Drained nodes, edited requests and names of new pods that are there twice."""
    for at, names in (
        ("drain", list(question.drained)),
        ("edits", [f"request {each.request} of pod {each.pod} {each.claim}".rstrip() for each in question.edits]),
        ("pods", [f"pod {each.namespace}/{each.name}" for each in question.pods]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Problem(f"{at}[{index}]", f"{name} is there twice")


def _refuse_unknown(fields: Fields, known: frozenset[str]) -> None:
    for key in fields.data:
        if key not in known:
            fields.problem(key if len(key) < 64 else f"{key[:60]}...", f"unknown field{suggestion(key, known)}")
