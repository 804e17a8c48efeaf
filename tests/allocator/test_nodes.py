"""Node selectors as Kubernetes' scheduler reads them, and from where devices can be reached."""

import pytest

from allocator import Node, NodeSelector, Placement, selector_matches
from allocator.model.nodes import NodeSelectorTerm, Requirement
from allocator.node_selectors import placement_matches

NODE = Node("node-1", {"zone": "a", "cores": "8", "cold": "-8", "empty": ""})

REQUIREMENTS = [
    # key, operator, values, does the node match
    ("zone", "In", ("a", "b"), True),
    ("zone", "In", ("b",), False),
    ("zone", "In", (), False),
    ("gone", "In", ("a",), False),
    ("empty", "In", ("",), True),
    ("zone", "NotIn", ("b",), True),
    ("zone", "NotIn", ("a", "b"), False),
    ("gone", "NotIn", ("a",), True),
    ("zone", "Exists", (), True),
    ("empty", "Exists", (), True),
    ("gone", "Exists", (), False),
    ("zone", "DoesNotExist", (), False),
    ("gone", "DoesNotExist", (), True),
    ("cores", "Gt", ("7",), True),
    ("cores", "Gt", ("8",), False),
    ("cores", "Lt", ("9",), True),
    ("cores", "Lt", ("8",), False),
    ("cores", "Gt", ("-9",), True),
    ("cold", "Lt", ("+7",), True),
    ("gone", "Gt", ("1",), False),
    ("gone", "Lt", ("1",), False),
    ("zone", "Gt", ("1",), False),
    ("empty", "Lt", ("1",), False),
    ("cores", "Gt", ("x",), False),
    ("cores", "Gt", ("7.5",), False),
    ("cores", "Gt", ("1", "2"), False),
    ("cores", "Lt", ("9" * 18,), True),
    ("cores", "Lt", (str(2**63),), False),
    ("cores", "Lt", ("9" * 5000,), False),
    ("zone", "Like", ("a",), False),
    ("zone", "", (), False),
]


@pytest.mark.parametrize(("key", "operator", "values", "expected"), REQUIREMENTS)
def test_a_requirement_matches_as_in_kube_scheduler(
    key: str, operator: str, values: tuple[str, ...], expected: bool
) -> None:
    selector = NodeSelector((NodeSelectorTerm((Requirement(key, operator, values),)),))
    assert selector_matches(selector, NODE) is expected


YES, NO = Requirement("zone", "In", ("a",)), Requirement("zone", "In", ("b",))
NAMED, OTHER = (Requirement("metadata.name", "In", (name,)) for name in ("node-1", "node-2"))

SELECTORS = [
    # terms, does the node match
    ((), False),
    ((NodeSelectorTerm(),), False),
    ((NodeSelectorTerm((YES,)),), True),
    ((NodeSelectorTerm((YES, NO)),), False),
    ((NodeSelectorTerm((NO,)), NodeSelectorTerm((YES,))), True),
    ((NodeSelectorTerm(), NodeSelectorTerm((YES,))), True),
    ((NodeSelectorTerm((), (NAMED,)),), True),
    ((NodeSelectorTerm((), (OTHER,)),), False),
    ((NodeSelectorTerm((YES,), (OTHER,)),), False),
    ((NodeSelectorTerm((YES,), (NAMED,)),), True),
    ((NodeSelectorTerm((NAMED,)),), False),
    ((NodeSelectorTerm((), (YES,)),), False),
    ((NodeSelectorTerm((), (Requirement("metadata.name", "NotIn", ("node-2",)),)),), True),
]


@pytest.mark.parametrize(("terms", "expected"), SELECTORS)
def test_any_term_with_all_its_requirements_matches(terms: tuple[NodeSelectorTerm, ...], expected: bool) -> None:
    assert selector_matches(NodeSelector(terms), NODE) is expected


IN_ZONE, NOT_IN_ZONE = (NodeSelector((NodeSelectorTerm((r,)),)) for r in (YES, NO))

PLACEMENTS = [
    (Placement("node-1"), True),
    (Placement("node-2"), False),
    (Placement(node_selector=IN_ZONE), True),
    (Placement(node_selector=NOT_IN_ZONE), False),
    (Placement(all_nodes=True), True),
    (Placement(), False),
    (Placement("node-2", IN_ZONE, all_nodes=True), False),
    (Placement(None, NOT_IN_ZONE, all_nodes=True), True),
]


@pytest.mark.parametrize(("placement", "expected"), PLACEMENTS)
def test_a_node_name_goes_before_all_nodes_and_a_selector(placement: Placement, expected: bool) -> None:
    assert placement_matches(placement, NODE) is expected
