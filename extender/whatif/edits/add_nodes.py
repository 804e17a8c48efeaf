"""``nodes``: nodes that do not exist, by a node template or like a node of the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as numbers
from typing import ClassVar, Final, Self

from allocator import Node, Problem
from allocator.tools import JSON, Fields, hint, label_key, shown
from extender.cluster.objects.nodes import NodeObject
from extender.planning.new_nodes import with_new_node
from extender.planning.templates.blueprints import Blueprint, learned
from extender.planning.templates.catalog import HOSTNAME, OF_KUBERNETES
from extender.whatif.edits.edit import Edit, read_count, refuse_unknown
from extender.whatif.fork import Fork, NewNode

_FIELDS: Final = frozenset({"template", "like", "count", "labels"})


@dataclass(frozen=True, slots=True)
class AddNodes(Edit):
    """Nodes that do not exist: by a node template, or like a node of the cluster; one of the names is empty.

    Attributes:
        at: path of the edit in the question.
        count: of the nodes.
        labels: more labels than the template or the node has.
    """

    field: ClassVar[str] = "nodes"
    words: ClassVar[str] = "nodes that do not exist"
    example: ClassVar[JSON] = {"template": "falcon", "count": 2}

    at: str
    template: str
    like: str
    count: int
    labels: Mapping[str, str]

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """An edit for each entry."""
        return [cls._read(each) for each in question.children(cls.field)]

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        refuse_unknown(fields, _FIELDS)
        template, like = fields.text("template"), fields.text("like")
        if bool(template) == bool(like):
            fields.problem("", "needs template (the name of a node template) or like (the name of a node), one of them")
        labels = fields.text_mapping("labels")
        for key in labels:
            if wrong := label_key(key):
                fields.problem(f"labels[{shown(key)}]", wrong)
        return cls(fields.path, template, like, read_count(fields), labels)

    @property
    def number(self) -> int:
        """The nodes."""
        return self.count

    def apply(self, fork: Fork) -> None:
        """Add the nodes, with what such nodes bring."""
        start = self._start(fork)
        if start is None:
            return
        source = self.template or self.like
        names = (name for number in numbers(1) if (name := f"new-{source}-{number}") not in fork.snapshot.nodes)
        for name, _ in zip(names, range(self.count), strict=False):
            labels = {**start.node.labels, **self.labels, HOSTNAME: name}
            node = replace(start, node=replace(start.node, name=name, labels=labels), created=fork.now)
            blueprints = self._blueprints(node.node, start, fork)
            fork.snapshot = with_new_node(node, blueprints, fork.snapshot)
            fork.nodes.append(NewNode(name, ", ".join(each.origin for each in blueprints)))

    def _blueprints(self, node: Node, start: NodeObject, fork: Fork) -> Sequence[Blueprint]:
        if self.template:
            return fork.supply.blueprints(node)
        model = learned([start.node], fork.before, fork.features)
        return [] if model is None else [model]

    def _start(self, fork: Fork) -> NodeObject | None:
        """The node that new ones are like, without what is only its own; None if there is none, which is noted."""
        if self.like:
            node = fork.before.nodes.get(self.like)
            if node is None:
                known = hint(self.like, fork.before.nodes)
                fork.problems.append(Problem(f"{self.at}.like", f"node {self.like} does not exist{known}"))
                return None
            return replace(node, taints=tuple(t for t in node.taints if not t.key.startswith(OF_KUBERNETES)))
        templates = {each.name: each for each in fork.supply.catalog.templates}
        if self.template not in templates:
            known = hint(self.template, templates) or (
                "" if templates else ": there are none (setting autoscaler.nodeTemplates)"
            )
            text = f"node template {self.template} does not exist{known}"
            fork.problems.append(Problem(f"{self.at}.template", text))
            return None
        return NodeObject(Node(self.template, templates[self.template].labels))
