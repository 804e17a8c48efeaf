"""The library as a planner uses it: clusters that are copied, changed, compared and asked."""

import inspect
import re
from collections.abc import Iterator

import pytest

import extender
from extender import Cluster, ManifestsError, QuestionError, UnknownPodError
from tests.kit.clusters import GPU, Object, claim, claim_template, local_slice, node, pod
from tests.kit.places import ROOT


def wanting(name: str, *, template: str = "gpu") -> Object:
    """A pod with a claim from a template."""
    raw = pod(name)
    raw["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return raw


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes with two GPUs each, and five pods that want one each."""
    nodes = [each for name in ("a", "b") for each in (node(name), local_slice(name, 2))]
    return Cluster.from_objects([GPU, claim_template(), *nodes, *(wanting(f"p{index}") for index in range(5))])


# --- what prints ------------------------------------------------------------------------------------------------


def shown(cluster: Cluster) -> Iterator[tuple[str, object]]:
    """Everything that prints itself."""
    yield "placements", cluster.schedule()
    yield "explanation", cluster.explain("ns/p4")
    yield "what if", cluster.what_if({"drain": ["a"]})
    yield "advice", cluster.defragment()
    yield "devices", cluster.devices()
    yield "audit", cluster.audit()
    yield "difference", cluster.diff(Cluster())


def test_what_a_cluster_answers_has_one_line_a_text_and_a_table_for_notebooks(cluster: Cluster) -> None:
    for name, each in shown(cluster):
        line = repr(each)
        assert line.startswith("<"), name
        assert line.endswith(">"), name
        assert "\n" not in line, name
        assert len(str(each).splitlines()) >= 1, name
        html = each._repr_html_()  # type: ignore[attr-defined]
        assert html.startswith("<table>"), name


def test_the_text_of_placements_is_the_table_of_simulate_and_its_summary(cluster: Cluster) -> None:
    lines = str(cluster.schedule()).splitlines()
    assert lines[0].split() == ["POD", "NODE", "DEVICES", "OR", "REASON"]
    assert lines[-1] == "4 of 5 pods placed, 1 waits: 1 for devices"
    assert len(lines) == 7


def test_an_explanation_prints_itself(cluster: Cluster) -> None:
    cluster.schedule()
    found = cluster.explain("ns/p4")
    assert str(found).startswith(f"{found.summary}\n")
    assert repr(found) == f"<Explanation of pod ns/p4: {found.summary}>"


def test_markup_in_names_is_escaped_in_notebooks() -> None:
    odd = {**wanting("p"), "spec": {"schedulerName": "<b>", "resourceClaims": [], "containers": []}}
    assert "<b>" not in Cluster.from_objects([GPU, node("a"), odd]).schedule()._repr_html_()


def test_a_cluster_says_in_one_line_what_it_has(cluster: Cluster) -> None:
    assert repr(cluster) == "<Cluster: 2 nodes, 4 devices, 5 pods, 5 of them pending>"
    cluster.schedule()
    assert repr(cluster) == "<Cluster: 2 nodes, 4 devices, 5 pods, 1 of them pending>"


def test_placements_and_devices_are_rows_for_data_frames(cluster: Cluster) -> None:
    rows = cluster.schedule().rows()
    assert [(each["pod"], each["node"], each.get("device")) for each in rows][-2:] == [
        ("ns/p3", "b", "gpu-1"),
        ("ns/p4", None, None),
    ]
    (free,) = {each["state"] for each in cluster.devices(free=True)} or {"none"}
    assert free == "none"
    assert [each["device"] for each in cluster.devices(node="a")] == ["gpu-0", "gpu-1"]


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"state": "fre"}, "there is no state fre; did you mean free?"),
        ({"driver": "gpu.exmple.com"}, "there is no driver gpu.exmple.com; did you mean gpu.example.com?"),
        ({"pool": "c"}, "there is no pool c"),
        ({"node": "nowhere"}, "there is no node nowhere"),
    ],
)
def test_devices_by_a_name_that_does_not_exist_are_an_error(
    cluster: Cluster, filters: dict[str, str], told: str
) -> None:
    with pytest.raises(LookupError, match=f"^{re.escape(told)}"):
        cluster.devices(**filters)  # type: ignore[arg-type]


# --- copies -----------------------------------------------------------------------------------------------------


def test_what_is_done_to_a_copy_leaves_the_cluster_as_it_is(cluster: Cluster) -> None:
    cluster.schedule()
    study = cluster.copy()
    study.remove("Pod", "ns/p0")
    assert [each.pod for each in study.schedule() if each.node] == ["ns/p4"]
    assert repr(cluster) == "<Cluster: 2 nodes, 4 devices, 5 pods, 1 of them pending>"
    assert [each.node for each in cluster.schedule()] == [""]
    assert not study.audit()
    assert not cluster.audit()


def test_what_is_done_to_a_cluster_leaves_its_copies_as_they_are(cluster: Cluster) -> None:
    study = cluster.copy()
    cluster.schedule()
    assert repr(study) == "<Cluster: 2 nodes, 4 devices, 5 pods, 5 of them pending>"
    assert len([each for each in study.schedule() if each.node]) == 4


def test_a_copy_and_its_original_make_objects_with_the_same_uids(cluster: Cluster) -> None:
    one, other = cluster.copy(), cluster.copy()
    one.add(wanting("new"))
    other.add(wanting("new"))
    assert one.pods[-1].uid == other.pods[-1].uid
    one.add(wanting("newer"))
    assert len({each.uid for each in one.pods}) == 7


def test_a_difference_names_the_pods_that_have_another_place(cluster: Cluster) -> None:
    cluster.schedule()
    study = cluster.copy()
    assert not study.diff(cluster)
    study.apply(node("c"), local_slice("c"))
    study.schedule()
    assert list(cluster.diff(study)) == [
        {"kind": "Pod", "name": "ns/p4", "here": "pending", "there": "c gpu.example.com/c/gpu-0"},
        {"kind": "Node", "name": "c", "here": "-", "there": "there"},
    ]


# --- changes ----------------------------------------------------------------------------------------------------


def test_apply_adds_what_is_new_and_changes_what_is_there(cluster: Cluster) -> None:
    cluster.apply({**node("a"), "spec": {"unschedulable": True}}, node("c"))
    assert {each.node for each in cluster.schedule()} == {"b", ""}
    assert sorted(cluster.snapshot.nodes) == ["a", "b", "c"]


def test_apply_reads_files_and_does_nothing_the_second_time() -> None:
    cluster = Cluster()
    cluster.apply(ROOT / "config/example/nodes.yaml", ROOT / "config/example/classes.yaml")
    before = cluster.snapshot.version
    cluster.apply(ROOT / "config/example/nodes.yaml")
    assert cluster.snapshot.version == before


def test_apply_keeps_where_a_pod_runs(cluster: Cluster) -> None:
    cluster.schedule()
    labelled = wanting("p0")
    labelled["metadata"]["labels"] = {"team": "a"}
    cluster.apply(labelled)
    first = cluster.pods[0]
    assert (first.labels, bool(first.node_name)) == ({"team": "a"}, True)
    assert not cluster.audit()


def test_the_spec_of_a_pod_can_not_be_changed(cluster: Cluster) -> None:
    with pytest.raises(ManifestsError, match=r"Pod ns/p0: spec: field is immutable; remove the pod first"):
        cluster.apply(wanting("p0", template="other"))


def test_apply_refuses_what_is_invalid_and_goes_on_if_it_may(cluster: Cluster) -> None:
    wrong = {**node("d"), "spec": {"unschedulable": "maybe"}}
    with pytest.raises(ManifestsError, match=r"spec\.unschedulable"):
        cluster.apply(wrong)
    told: list[str] = []
    cluster.apply(wrong, node("e"), wanting("p0", template="other"), refused=told.append)
    assert (len(told), "e" in cluster.snapshot.nodes) == (2, True)


def test_remove_takes_a_name_with_its_namespace_and_says_what_was_meant(cluster: Cluster) -> None:
    cluster.remove("Pod", "ns/p0")
    cluster.remove("Pod", "p1", "ns")
    assert [pod.name for pod in cluster.pods] == ["p2", "p3", "p4"]
    with pytest.raises(KeyError, match=r"Pod ns/p22 does not exist; did you mean ns/p2\?"):
        cluster.remove("Pod", "ns/p22")
    with pytest.raises(KeyError, match=r"there is no kind Podd; did you mean Pod\?"):
        cluster.remove("Podd", "ns/p2")


# --- answers ----------------------------------------------------------------------------------------------------


def test_what_if_leaves_the_cluster_as_it_is(cluster: Cluster) -> None:
    cluster.schedule()
    answer = cluster.what_if({"drain": ["a"]})
    assert [each.pod for each in answer.pods if each.then and not each.then.node] == ["ns/p0", "ns/p1", "ns/p4"]
    assert [each.node for each in cluster.schedule()] == [""]
    assert not cluster.diff(cluster.copy())
    with pytest.raises(QuestionError, match="drain"):
        cluster.what_if({"drain": ["nowhere"]})
    with pytest.raises(QuestionError, match="dran"):
        cluster.what_if({"dran": ["a"]})


def test_an_audit_names_the_rule_that_a_claim_breaks() -> None:
    twice = [claim(name, allocated=["a/gpu-0"], at="a") for name in ("c", "d")]
    rows = Cluster.from_objects([GPU, node("a"), local_slice("a"), *twice]).audit()
    assert [(each["rule"], each["claims"]) for each in rows] == [("device held twice", ["ns/c", "ns/d"])]


def test_room_is_looked_for_one_pod_or_for_all(cluster: Cluster) -> None:
    cluster.schedule()
    assert [each.pods for each in cluster.defragment("ns/p4").shapes] == [("ns/p4",)]
    with pytest.raises(UnknownPodError, match="did you mean ns/p4"):
        cluster.defragment("ns/p44")


# --- the package ------------------------------------------------------------------------------------------------


def test_the_package_shows_its_names_and_no_more() -> None:
    assert set(dir(extender)) == {*extender.__all__, "__version__"}
    assert all(getattr(extender, name) is not None for name in extender.__all__)


def test_signatures_show_no_private_defaults() -> None:
    public = (each for name, each in inspect.getmembers(Cluster, inspect.isfunction) if not name.startswith("_"))
    defaults = [each.default for one in public for each in inspect.signature(one).parameters.values()]
    assert not [each for each in defaults if callable(each) and each is not inspect.Parameter.empty]
