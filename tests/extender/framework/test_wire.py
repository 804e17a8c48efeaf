"""extender/v1 on the wire: Go's field names in their exact case, both modes, and what is refused in which words."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.objects.pods import Pod
from extender.framework import wire
from extender.framework.filter import FilterResult
from extender.framework.victims import Victims
from extender.framework.wire import Names, WireError

POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}}
NODE = {"metadata": {"name": "a", "labels": {"zone": "1"}}, "status": {"nodeInfo": {"x": [1, None, 2.5]}}}


def body(**fields: Any) -> bytes:
    return orjson.dumps({"Pod": POD, **fields})


def test_names_mode() -> None:
    args = wire.decode_filter(body(Nodes=None, NodeNames=["b", "a"]))
    assert (args.pod.namespace, args.pod.name, args.pod.uid) == ("ns", "p", "u")
    assert (list(args.names), args.nodes) == (["b", "a"], None)


def test_a_pod_in_the_same_words_is_read_once() -> None:
    again = body(NodeNames=["c"])
    assert wire.decode_filter(body(NodeNames=["b", "a"])).pod is wire.decode_filter(again).pod
    other = {**POD, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 2}}}]}}
    assert wire.decode_filter(body(Pod=other, NodeNames=["c"])).pod.cpu == 2000


@pytest.mark.parametrize(("uid", "version", "is_read"), [("u", "7", False), ("u", "8", True), ("v", "7", True)])
def test_a_pod_that_is_known_in_its_version_is_not_read_again(uid: str, version: str, is_read: bool) -> None:
    known = Pod("ns", "known", "u", "7")
    sent = {**POD, "metadata": {**POD["metadata"], "uid": uid, "resourceVersion": version}}
    args = wire.decode_filter(body(Pod=sent, NodeNames=["a"]), lambda *asked: known if asked == ("u", "7") else None)
    assert (args.pod is not known) is is_read


def test_whole_nodes_come_back_as_they_were_sent() -> None:
    args = wire.decode_filter(body(Nodes={"metadata": {}, "items": [NODE]}, NodeNames=None))
    assert list(args.names) == ["a"]
    reply = orjson.loads(wire.encode_filter(args, FilterResult(["a"])))
    assert reply == {"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Nodes": {"items": [NODE]}}


@pytest.mark.parametrize(
    "fields", [{"NodeNames": None}, {"NodeNames": []}, {"Nodes": {"items": None}}, {"Nodes": {"items": []}}], ids=str
)
def test_null_and_empty_lists_are_no_nodes(fields: dict[str, Any]) -> None:
    assert list(wire.decode_filter(body(**fields)).names) == []


BARE = {**POD, "spec": {"containers": [{"name": "main"}]}}
"""A pod that needs no devices: its names are not decoded."""


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a"],
        ["node-1", "node-2"],
        ["a,b", 'c"d', "e\\f", "g[h", "{i}", "ü", ""],
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [0, orjson.OPT_INDENT_2])
def test_names_come_back_as_they_were_sent(names: list[str], options: int) -> None:
    args = wire.decode_filter(orjson.dumps({"Pod": BARE, "Nodes": None, "NodeNames": names}, option=options))
    assert orjson.loads(wire.encode_filter(args, FilterResult(args.names)))["NodeNames"] == names
    assert (len(args.names), list(args.names), args.names[:1]) == (len(names), names, names[:1])


texts = st.text('ab,"[]{}\\ü', max_size=3)


@given(
    st.recursive(
        st.none() | st.integers(0, 9) | texts,
        lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
        max_leaves=8,
    )
)
def test_what_is_taken_for_names_unread_is_a_list_of_strings(value: object) -> None:
    for json in (orjson.dumps(value), orjson.dumps(value, option=orjson.OPT_INDENT_2)):
        names = Names.of(json)
        if names is not None:
            assert list(names) == value
            assert len(names) == len(list(names))
            assert all(isinstance(name, str) for name in names)


FILTER_REFUSED: list[tuple[bytes, str]] = [
    (b"", "the body is empty: expected a JSON object"),
    (b"[]", "expected an object, not []"),
    (b"null", "expected an object, not null"),
    (b'"x"', 'expected an object, not "x"'),
    (orjson.dumps({"NodeNames": []}), "Pod: missing"),
    (orjson.dumps({"Pod": None, "NodeNames": []}), "Pod: null"),
    (orjson.dumps({"Pod": [1], "NodeNames": []}), "Pod: expected an object, not [1]"),
    (orjson.dumps({"pod": POD, "NodeNames": []}), "pod: unknown field; did you mean Pod?"),
    (orjson.dumps({"Pod": POD, "nodenames": []}), "nodenames: unknown field; did you mean NodeNames?"),
    (orjson.dumps({"Pod": POD, "nodes": {}}), "nodes: unknown field; did you mean Nodes?"),
    (body(Nodes={"Items": []}), "Nodes.Items: unknown field; did you mean items?"),
    (orjson.dumps({"Pod": POD}), "NodeNames: missing, and so is Nodes: one of them must be given"),
    (body(NodeNames="a"), 'NodeNames: expected a list, not "a"'),
    (body(NodeNames={"a": 1}), 'NodeNames: expected a list, not {"a":1}'),
    (body(NodeNames=["a", 5]), "NodeNames[1]: expected a string, not 5"),
    (body(NodeNames=[None]), "NodeNames[0]: expected a string, not null"),
    (body(Nodes=[]), "Nodes: expected an object, not []"),
    (body(Nodes={"items": {}}), "Nodes.items: expected a list, not {}"),
    (body(Nodes={"items": ["a"]}), 'Nodes.items[0]: expected an object, not "a"'),
    (body(Nodes={"items": [{}]}), "Nodes.items[0].metadata.name: missing"),
    (body(Nodes={"items": [{"metadata": {"name": ""}}]}), "Nodes.items[0].metadata.name: empty"),
    (body(Nodes={"items": [{"metadata": {"name": 1}}]}), "Nodes.items[0].metadata.name: expected a string, not 1"),
    (body(NodeNames=True), "NodeNames: expected a list, not true"),
    (orjson.dumps({"Pod": {"metadata": {"name": 5}}, "NodeNames": []}), "Pod: metadata.name"),
    (
        body(NodeNames="x" * 100),
        'NodeNames: expected a list, not "' + "x" * 36 + "...",
    ),
    (
        b'{"Pod":%b,"NodeNames":[]}' % (b"[" * 1000 + b"]" * 1000),
        "Pod: expected an object, not " + "[" * 37 + "...",
    ),
    (b"[" * 1100 + b"]" * 1100, "the body is not JSON: depth limit exceeded"),
    (
        b'{"Pod":{"metadata":{"name":%b}},"NodeNames":[]}' % (b"[" * 1000 + b"]" * 1000),
        "Pod: metadata.name: " + "[" * 64 + "... is not a string",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "message"), FILTER_REFUSED, ids=[message for _, message in FILTER_REFUSED])
def test_a_filter_request_of_another_form_is_refused_by_field(sent: bytes, message: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.decode_filter(sent)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", 5], "NodeNames[1]: expected a string, not 5"),
        ([["a"], "b"], 'NodeNames[0]: expected a string, not ["a"]'),
        ([{"a": "b"}, 1], 'NodeNames[0]: expected a string, not {"a":"b"}'),
    ],
)
def test_names_that_are_none_are_refused_for_pods_without_devices_too(names: list[Any], message: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.decode_filter(orjson.dumps({"Pod": BARE, "NodeNames": names}))
    assert str(caught.value) == message


@pytest.mark.parametrize("sent", [b"{", b'{"Pod": NaN}', b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 5000, b"{} {}"])
def test_what_is_not_json_is_called_that(sent: bytes) -> None:
    with pytest.raises(WireError, match=r"^the body is not JSON: "):
        wire.decode_filter(sent)


CLAIMING = POD | {"spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}}


@pytest.mark.parametrize("pod", [CLAIMING, POD], ids=["with devices", "without"])
def test_names_that_are_no_text_are_called_that(pod: dict[str, Any]) -> None:
    sent = orjson.dumps({"Pod": pod, "NodeNames": ["a"]}).replace(b'["a"]', b'["\xff"]')
    with pytest.raises(WireError, match=r"^the body is not JSON: "):
        wire.decode_filter(sent)


def test_unknown_fields_are_ignored() -> None:
    assert list(wire.decode_filter(body(NodeNames=["a"], Later={"x": 1})).names) == ["a"]


META = {"n": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}}
FULL = {"n": {"Pods": [{"metadata": {"uid": "u1"}}, {"metadata": {"uid": "u2"}}], "NumPDBViolations": 1}}


@pytest.mark.parametrize("fields", [{"NodeNameToMetaVictims": META}, {"NodeNameToVictims": FULL}], ids=["uids", "pods"])
def test_victims_are_told_by_uid_in_both_modes(fields: dict[str, Any]) -> None:
    args = wire.decode_preempt(body(**fields))
    assert args.victims == {"n": Victims(("u1", "u2"), 1)}
    assert orjson.loads(wire.encode_victims(args.victims)) == {"NodeNameToMetaVictims": META}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "NodeNameToMetaVictims: missing, and so is NodeNameToVictims: one of them must be given"),
        ({"nodeNameToMetaVictims": {}}, "nodeNameToMetaVictims: unknown field; did you mean NodeNameToMetaVictims?"),
        ({"NodeNameToMetaVictims": []}, "NodeNameToMetaVictims: expected an object, not []"),
        ({"NodeNameToMetaVictims": {"n": []}}, "NodeNameToMetaVictims[n]: expected an object, not []"),
        (
            {"NodeNameToMetaVictims": {"n": {"Pods": [5]}}},
            "NodeNameToMetaVictims[n].Pods[0]: expected an object, not 5",
        ),
        ({"NodeNameToMetaVictims": {"n": {"Pods": [{}]}}}, "NodeNameToMetaVictims[n].Pods[0].UID: missing"),
        (
            {"NodeNameToVictims": {"n": {"Pods": [{"metadata": {}}]}}},
            "NodeNameToVictims[n].Pods[0].metadata.uid: missing",
        ),
        (
            {"NodeNameToMetaVictims": {"n": {"NumPDBViolations": 0.5}}},
            "NodeNameToMetaVictims[n].NumPDBViolations: expected an integer, not 0.5",
        ),
    ],
)
def test_a_preempt_request_of_another_form_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.decode_preempt(body(**fields))
    assert str(caught.value) == message


def test_null_victims_are_none() -> None:
    assert wire.decode_preempt(body(NodeNameToVictims=None, NodeNameToMetaVictims=None)).victims == {}
    assert wire.decode_preempt(body(NodeNameToMetaVictims={"n": {"Pods": None}})).victims == {"n": Victims(())}


BIND = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a"}


def test_bind() -> None:
    assert wire.decode_bind(orjson.dumps(BIND)) == wire.BindArgs("p", "ns", "u", "a")


@pytest.mark.parametrize("field", sorted(BIND))
@pytest.mark.parametrize(("value", "problem"), [(None, "missing"), ("", "empty"), (3, "expected a string, not 3")])
def test_bind_needs_every_field(field: str, value: object, problem: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.decode_bind(orjson.dumps({**BIND, field: value}))
    assert str(caught.value) == f"{field}: {problem}"


def test_scores_are_a_bare_array_of_integers() -> None:
    assert wire.encode_scores(["a", "b"], [0, 10]) == b'[{"Host":"a","Score":0},{"Host":"b","Score":10}]\n'


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 10))))
def test_scores_go_with_names_whatever_is_in_a_name(scored: list[tuple[str, int]]) -> None:
    sent = wire.encode_scores([name for name, _ in scored], [score for _, score in scored])
    assert orjson.loads(sent) == [{"Host": name, "Score": score} for name, score in scored]
    assert sent.endswith(b"]\n")


def test_a_pod_that_is_bound_is_an_empty_object() -> None:
    assert orjson.loads(wire.encode_bound()) == {}


def test_an_error_is_its_text() -> None:
    assert orjson.loads(wire.encode_error('no "x"\n')) == {"Error": 'no "x"\n'}
