"""Node templates and learning: what a node brings before it is there, and which files are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from allocator import Features, Node
from extender.planning.templates import NODE_NAME, Blueprint, Catalog, Supply, TemplateError, load_templates
from tests.extender.autoscaler.scenes import GROUP, machine, node_template, templates_of, world_of
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, network_slice, node, snapshot_of


def brings(supply: Supply, name: str, **labels: str) -> dict[str, list[str]]:
    """Pool to the devices that a node brings."""
    found = supply.blueprints(Node(name, labels))
    slices = [each for blueprint in found for each in blueprint.build(name)]
    return {str(each.pool): [device.id.device for device in each.devices] for each in slices}


def supply_of(*entries: Object, objects: tuple[Object, ...] = (), learn: str = "") -> Supply:
    return world_of(objects, *entries, learn=learn).supply


# --- templates ----------------------------------------------------------------------------------------------


def test_a_node_brings_what_the_templates_say_whose_labels_it_carries() -> None:
    nic = {
        "name": "nic",
        "labels": {"net": "fast"},
        "slices": [{"driver": "nic.example.com", "devices": [{"name": "n"}]}],
    }
    supply = supply_of(node_template("big", 2), node_template("small"), nic)
    assert brings(supply, "x", **{GROUP: "big", "other": "label"}) == {f"{DRIVER}/x": ["gpu-0", "gpu-1"]}
    assert brings(supply, "x", **{GROUP: "small", "net": "fast"}) == {
        f"{DRIVER}/x": ["gpu-0"],
        "nic.example.com/x": ["n"],
    }
    assert brings(supply, "x", **{GROUP: "unknown"}) == {}


def test_the_placeholder_is_the_nodes_name_in_pools_and_attributes() -> None:
    entry = node_template(
        "g", 1, attributes={"host": {"string": f"on {NODE_NAME}"}, "hosts": {"strings": [NODE_NAME, "b"]}}
    )
    entry["slices"][0] |= {"pool": {"name": f"{NODE_NAME}-gpus"}}
    (built,) = templates_of(entry)[0].blueprint.build("n1")
    assert (built.pool.pool, built.devices[0].id) == ("n1-gpus", (DRIVER, "n1-gpus", "gpu-0"))
    assert built.devices[0].attributes == {f"{DRIVER}/host": "on n1", f"{DRIVER}/hosts": ("n1", "b")}
    assert built.placement is not None
    assert built.placement.node_name == "n1"


def test_what_does_not_depend_on_the_node_is_shared_between_nodes() -> None:
    (template,) = templates_of(node_template("g", 1, attributes={"model": {"string": "a"}}))
    one, other = (next(iter(template.blueprint.build(name))).devices[0] for name in ("n1", "n2"))
    assert one.attributes is other.attributes


def test_slices_of_one_pool_are_counted() -> None:
    entry = node_template("g")
    counters = {"name": "memory", "counters": {"memory": {"value": "80Gi"}}}
    entry["slices"].append({"driver": DRIVER, "sharedCounters": [counters]})
    pool = world_of((), entry).with_nodes(()).supply.blueprints(Node("n", {GROUP: "g"}))[0]
    assert [each.slice_count for each in pool.build("n")] == [2, 2]


def edited(change: Callable[[Object], object]) -> Object:
    entry = node_template("g")
    change(entry)
    return entry


def spec(entry: Object) -> Object:
    found: Object = entry["slices"][0]
    return found


BAD: dict[str, tuple[Any, str]] = {
    "no name": (edited(lambda e: e.pop("name")), "nodeTemplates[0].name: is required"),
    "no labels": (
        edited(lambda e: e.pop("labels")),
        "nodeTemplates[0].labels: is required: the labels that tell such nodes",
    ),
    "a label that is no string": (
        edited(lambda e: e["labels"].update(x=True)),
        "nodeTemplates[0].labels[x]: true is not a string",
    ),
    "no slices": (
        edited(lambda e: e.pop("slices")),
        "nodeTemplates[0].slices: is required: the spec of each slice that such a node publishes; [] for none",
    ),
    "a misspelt key": (edited(lambda e: e.update(lables={})), 'lables: unknown key, did you mean "labels"?'),
    "no driver": (edited(lambda e: spec(e).pop("driver")), "template g.slices[0].driver: "),
    "a quantity that is none": (
        node_template("g", capacity={"memory": {"value": "80Gx"}}),
        'template g.slices[0].devices[0].capacity[memory].value: "80Gx" is not a quantity',
    ),
    "a device name that no API server takes": (
        edited(lambda e: spec(e)["devices"][0].update(name="GPU 0")),
        "template g.slices[0].devices[0].name: ",
    ),
    "an unknown field of a device": (
        node_template("g", capasity={}),
        "template g.slices[0].devices[0].capasity: unknown field; did you mean capacity?",
    ),
    "the placeholder in a device's name": (
        edited(lambda e: spec(e)["devices"][0].update(name=f"{NODE_NAME}-gpu")),
        "template g.slices[0].devices[0].name: ",
    ),
    "a device twice": (
        edited(lambda e: spec(e)["devices"].append({"name": "gpu-0"})),
        "gpu-0",
    ),
    "devices of the network": (
        edited(lambda e: spec(e).update(allNodes=True)),
        "template g.slices[0].allNodes: devices that are attached to the network are the cluster's",
    ),
    "another node's name": (
        edited(lambda e: spec(e).update(nodeName="node-1")),
        f'template g.slices[0].nodeName: "node-1" is not {NODE_NAME}, which it is when left out',
    ),
    "one pool for all nodes": (
        edited(lambda e: spec(e).update(pool={"name": "gpus"})),
        f"template g.slices[0].pool.name: must contain {NODE_NAME}, or all such nodes would share one pool",
    ),
    "a slice that is missing": (
        edited(lambda e: spec(e).update(pool={"resourceSliceCount": 2})),
        f"template g: pool {DRIVER}/{NODE_NAME}: 1 of 2 slices are there",
    ),
    "counters that are not there": (
        node_template("g", consumesCounters=[{"counterSet": "x", "counters": {"memory": {"value": "1"}}}]),
        f"template g: pool {DRIVER}/{NODE_NAME}: device gpu-0 consumes unknown counter set x",
    ),
    "the placeholder elsewhere": (
        node_template("g", taints=[{"key": "k", "effect": "NoSchedule", "value": NODE_NAME}]),
        f"template g: {NODE_NAME} may stand in pool names and attributes, nowhere else",
    ),
    "a name twice": ([node_template("g"), node_template("g", driver="x.example.com")], "template g is there twice"),
}


@pytest.mark.parametrize(("entries", "problem"), BAD.values(), ids=BAD)
def test_a_template_that_can_not_be_used_is_refused(entries: Object | list[Object], problem: str) -> None:
    with pytest.raises(TemplateError) as caught:
        templates_of(*(entries if isinstance(entries, list) else [entries]))
    assert any(problem in each for each in caught.value.problems), caught.value.problems
    assert all(each.startswith("templates.yaml: ") for each in caught.value.problems)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("labels", {"x": 1}, "labels[x]: 1 is not a string"),
        ("labels", ["x"], 'labels: ["x"] is not an object'),
        ("slices", {"x": 1}, 'slices: {"x": 1} is not a list'),
        ("slices", [1], "slices[0]: 1 is not an object"),
    ],
)
def test_what_is_there_but_of_a_wrong_type_is_told_once(key: str, value: object, problem: str) -> None:
    with pytest.raises(TemplateError) as caught:
        templates_of({**node_template("g"), key: value})
    assert caught.value.problems == (f"templates.yaml: nodeTemplates[0].{problem}",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodeTemplates: [", "line 1: "),
        ("[1, 2]", "expected nodeTemplates at the top, not [1, 2]"),
        ("nodeTemplates: 7", "nodeTemplates: 7 is not a list"),
        ("templates: []", "templates: unknown key, did you mean"),
    ],
)
def test_a_file_that_can_not_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(TemplateError) as caught:
        load_templates(text, file="t.yaml")
    assert f"t.yaml: {problem}" in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "nodeTemplates: []", "nodeTemplates:"])
def test_a_file_may_have_no_templates(text: str) -> None:
    assert load_templates(text, file="t.yaml") == ()


CONFLICTS: dict[str, tuple[Object, Object, bool]] = {
    "the same labels": ({"a": "1"}, {"a": "1"}, True),
    "other labels, which a node may carry too": ({"a": "1"}, {"b": "1"}, True),
    "one that is narrower": ({"a": "1"}, {"a": "1", "b": "2"}, True),
    "values that exclude each other": ({"a": "1"}, {"a": "2"}, False),
    "one value that does": ({"a": "1", "b": "1"}, {"a": "1", "b": "2"}, False),
}


@pytest.mark.parametrize(("one", "other", "is_conflict"), CONFLICTS.values(), ids=CONFLICTS)
def test_two_templates_that_may_both_speak_for_a_driver_of_a_node_conflict(
    one: Object, other: Object, is_conflict: bool
) -> None:
    pair = ({**node_template("x"), "labels": one}, {**node_template("y"), "labels": other})
    if is_conflict:
        with pytest.raises(TemplateError, match=f"templates x and y contradict each other: .* driver {DRIVER}"):
            templates_of(*pair)
    else:
        assert len(templates_of(*pair)) == 2
    elsewhere = {**node_template("y", driver="nic.example.com"), "labels": other}
    assert len(templates_of(pair[0], elsewhere)) == 2


def test_all_problems_are_told_at_once() -> None:
    text = yaml.safe_dump({"nodeTemplates": [edited(lambda e: e.pop("labels")), edited(lambda e: e.pop("slices"))]})
    with pytest.raises(TemplateError) as caught:
        load_templates(text, file="t.yaml")
    assert len(caught.value.problems) == 2


# --- learning -----------------------------------------------------------------------------------------------

TAINTED: Object = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}


def learned(*objects: Object, name: str = "new") -> Blueprint | None:
    snapshot = snapshot_of(GPU, *objects)
    found = Supply(Catalog(group_label=GROUP), snapshot).blueprints(Node(name, {GROUP: "g"}))
    return found[0] if found else None


def test_a_node_brings_what_a_real_node_of_its_group_has_less_what_is_allocated() -> None:
    held = claim("c", allocated=["a/gpu-0"], at="a")
    objects = (machine("a", "g"), local_slice("a", 2), machine("b", "other"), local_slice("b", 7), held)
    assert brings(supply_of(objects=objects, learn=GROUP), "new", **{GROUP: "g"}) == {
        f"{DRIVER}/new": ["gpu-0", "gpu-1"]
    }


def test_templates_go_before_what_could_be_learned() -> None:
    supply = supply_of(node_template("g", 5), objects=(machine("a", "g"), local_slice("a", 2)), learn=GROUP)
    assert len(brings(supply, "new", **{GROUP: "g"})[f"{DRIVER}/new"]) == 5


def test_nothing_is_learned_without_the_setting_the_label_or_a_node() -> None:
    objects = (machine("a", "g"), local_slice("a", 2))
    assert brings(supply_of(objects=objects), "new", **{GROUP: "g"}) == {}
    assert brings(supply_of(objects=objects, learn=GROUP), "new") == {}
    assert brings(supply_of(objects=objects, learn=GROUP), "new", **{GROUP: "h"}) == {}


def test_devices_of_the_network_are_not_learned() -> None:
    blueprint = learned(machine("a", "g"), local_slice("a"), network_slice("net", 3))
    assert blueprint is not None
    assert [str(each.pool) for each in blueprint.build("new")] == [f"{DRIVER}/new"]


def incomplete(name: str) -> Object:
    raw = local_slice(name, 9)
    raw["spec"]["pool"]["resourceSliceCount"] = 2
    return raw


MODELS: dict[str, tuple[tuple[Object, ...], str | None]] = {
    "the one with most devices": ((local_slice("a", 1), local_slice("b", 2)), "b"),
    "none that is publishing": ((local_slice("a", 1), incomplete("b")), "a"),
    "the one with fewest tainted": ((local_slice("a", 2, **TAINTED), local_slice("b", 2)), "b"),
    "the first of equal ones": ((local_slice("a", 2), local_slice("b", 2)), "a"),
    "none": ((incomplete("a"),), None),
}


@pytest.mark.parametrize(("slices", "model"), MODELS.values(), ids=MODELS)
def test_the_best_node_of_a_group_is_the_model(slices: tuple[Object, ...], model: str | None) -> None:
    blueprint = learned(machine("a", "g"), machine("b", "g"), *slices)
    assert (blueprint and blueprint.origin) == (model and f"learned from node {model}")


def test_a_real_node_does_not_learn_from_itself() -> None:
    assert learned(machine("a", "g"), local_slice("a"), name="a") is None


def test_the_models_name_becomes_the_new_nodes_where_it_is_a_value_of_its_own() -> None:
    raw = local_slice("a", 1, attributes={"host": {"string": "a"}, "model": {"string": "a100"}})
    blueprint = learned(machine("a", "g"), raw)
    assert blueprint is not None
    (built,) = blueprint.build("new")
    assert built.devices[0].attributes == {f"{DRIVER}/host": "new", f"{DRIVER}/model": "a100"}


def test_a_pool_that_is_not_named_after_its_node_becomes_one_for_each_new_node() -> None:
    raw = local_slice("a", 1)
    raw["spec"]["pool"] |= {"name": "gpus"}
    blueprint = learned(machine("a", "g"), raw)
    assert blueprint is not None
    assert [each.pool.pool for name in ("n1", "n2") for each in blueprint.build(name)] == ["n1/gpus", "n2/gpus"]


def test_only_the_newest_generation_is_learned() -> None:
    old, new = local_slice("a", 4), local_slice("a", 1)
    new["metadata"]["name"] = "slice-new"
    new["spec"]["pool"]["generation"] = 2
    blueprint = learned(machine("a", "g"), old, new)
    assert blueprint is not None
    assert blueprint.device_count == 1


def test_features_decide_what_is_complete() -> None:
    snapshot = snapshot_of(GPU, machine("a", "g"), local_slice("a"), node("x"))
    catalog = Catalog(group_label=GROUP, features=Features(partitionable_devices=False))
    assert len(Supply(catalog, snapshot).blueprints(Node("new", {GROUP: "g"}))) == 1
