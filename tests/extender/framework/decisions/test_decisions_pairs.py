"""The law of nodes that are alike but for one thing: neither gets the other's answer, or its own of before.

`test_decisions_alike.py` has the things that are known to make a difference, one by one; here chance looks for more.
Each world is about one theme and has next to nothing else in it, so that what differs often matters.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocation, AllocatorError, Features
from allocator.model.features import ALL_FEATURES
from extender.kube.api import EventType
from tests.extender.framework.decisions.scenes import Scene, asked, everything, named, pool_of, tolerates, wants, zone
from tests.kit.clusters import DRIVER, GPU, Object, node, taint_rule

EXAMPLES: Final = int(os.environ.get("DECIDING_EXAMPLES", "300"))
MODEL = f"device.attributes['{DRIVER}'].model"
ROOT = f"{DRIVER}/root"
HAS_MODEL = f"'model' in device.attributes['{DRIVER}']"
READS_ALL = f"device.attributes['{DRIVER}'].exists(name, name == 'model') && {MODEL} == \"x\""
SICK = {"key": "sick", "value": "very", "effect": "NoSchedule"}

Facts = Mapping[str, Any]
"""What is so of a node, and of its devices: name of a fact (of a device with its number) to a value."""

OF_NODES: Final[dict[str, Sequence[Any]]] = {
    "declares": (False, True),
    "place": ("its own", "zone", "zones", "each its own", "each in zone", "each in zones"),
    "skips": (False, True),
    "parts": (2, 1, 3),
    "sick": (False, True),
}
OF_DEVICES: Final[dict[str, Sequence[Any]]] = {
    "root": ("r", "s", "rs", "st", None),
    "model": ("x", "y", 1, True, None),
    "taint": (None, SICK, SICK | {"value": "barely"}, SICK | {"key": "hot"}, SICK | {"effect": "None"}),
    "rule": (False, True),
    "shared": (True, True, False),
    "size": ("2Gi", "2Gi", "1Gi", None),
    "held": ((), (), (), (), ("whole",), ("whole",), ("1Gi",)),
    "shares": ((), ("whole",), ("1Gi",), ("2Gi",), ("1Gi", "whole"), ("1Gi", "1Gi")),
    "draws": (1, 2, 0),
    "binds": (False, True),
    "waits": (False, True),
    "reach": ("own", "own", "other", "both"),
}
VALUES: Final = OF_NODES | OF_DEVICES


@dataclass(frozen=True)
class Theme:
    """A kind of world.

    Attributes:
        facts: that are up to chance; others are plain or absent.
        wishes: requests, and an attribute to match; a pod has one of them.
        devices: how many a node may have.
        two_pools: the last device of each node is in another pool than the others.
        one_pool: the nodes' slices are of the same pool.
        one_slice: they are one slice, whose devices say for themselves who reaches them.
    """

    facts: Sequence[str]
    wishes: Sequence[tuple[Sequence[Object], str]]
    devices: Sequence[int] = (1, 1, 2, 3)
    two_pools: bool = False
    one_pool: bool = False
    one_slice: bool = False


ONE_OR_ALL = [([wants()], ""), ([wants(2)], ""), ([everything()], ""), ([wants(adminAccess=True), wants(name="b")], "")]
SOME_MEMORY = [
    ([wants(cache="1Gi")], ""),
    ([wants(cache="2Gi")], ""),
    ([wants(cache="1Gi"), wants(cache="1Gi", name="more")], ""),
    ([wants(2, cache="1Gi")], ""),
    ([wants()], ""),
]
IN_COMMON = [([wants(2)], ROOT), ([wants(), wants(name="more")], ROOT), ([wants(3)], ROOT)]
TOLERATING = [
    ([wants()], ""),
    ([wants(2)], ""),
    ([tolerates(operator="Exists")], ""),
    ([tolerates(key="sick", operator="Exists")], ""),
    ([tolerates(key="sick", operator="Equal", value="very")], ""),
]
SELECTED = [([wants(selector=each)], "") for each in (HAS_MODEL, f'{MODEL} == "x"', f"{MODEL} == 1", READS_ALL)]
X_AND_ANY = [wants(selector=f'{HAS_MODEL} && {MODEL} == "x"'), wants(name="more")]
TWO_SELECTED = [([wants(2, selector=HAS_MODEL)], ""), (X_AND_ANY, "")]
TWO_SIZES = [([wants(cache="2Gi"), wants(name="more")], ""), ([wants(2, cache="1Gi")], "")]
IN_ORDER = [([everything()], ""), ([wants(adminAccess=True), wants(name="b")], "")]
PLACING = ("declares", "place", "skips", "binds")

THEMES: Final = {
    "what is read": Theme(["model", "held"], [*SELECTED, ([wants(2, selector=HAS_MODEL)], "")]),
    "which of them is held": Theme(["model", "held"], TWO_SELECTED, (2, 3)),
    "which size is held": Theme(["size", "held"], TWO_SIZES, (2, 3)),
    "what is held": Theme(["shares", "taint"], [*ONE_OR_ALL, *SOME_MEMORY]),
    "shares": Theme(["shared", "size", "shares"], SOME_MEMORY),
    "values in common": Theme(["root", "held"], IN_COMMON, (2, 3)),
    "values in common from pool to pool": Theme(["root"], IN_COMMON, (2, 3), two_pools=True),
    "taints": Theme(["taint", "rule"], TOLERATING),
    "which of them a rule taints": Theme(["rule", "held"], TOLERATING, (2, 3)),
    "counters": Theme(["parts", "draws", "held"], ONE_OR_ALL),
    "places": Theme(PLACING, ONE_OR_ALL),
    "places in one pool": Theme(PLACING, ONE_OR_ALL, one_pool=True),
    "pools that others reach": Theme(["held", "place"], ONE_OR_ALL, (2, 3), two_pools=True),
    "a pool that others reach": Theme(["held", "place"], ONE_OR_ALL, one_pool=True),
    "who reaches a device": Theme(["reach", "held"], ONE_OR_ALL, (1, 2), one_pool=True, one_slice=True),
    "what comes first": Theme(["sick", "held"], IN_ORDER, (2, 3)),
    "readiness": Theme(["waits", "held"], ONE_OR_ALL, (2, 3), two_pools=True),
}


def names_of(fact: str, devices: int) -> list[str]:
    """A fact of a node, or of each of its devices."""
    return [fact] if fact in OF_NODES else [f"{fact} {number}" for number in range(devices)]


@dataclass(frozen=True)
class Pair:
    """Nodes "a" and "b", which share everything but one fact or two, or their order, and what a pod asks for.

    Attributes:
        devices: of each node.
    """

    theme: Theme
    devices: int
    sides: Mapping[str, Facts]
    wanted: Sequence[Object]
    match: str


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    theme = THEMES[draw(st.sampled_from(sorted(THEMES)))]
    devices = draw(st.sampled_from(theme.devices))
    names = [names_of(fact, devices) for fact in theme.facts]
    values = {each: st.sampled_from(VALUES[fact]) for fact, of in zip(theme.facts, names, strict=True) for each in of}
    common = draw(st.fixed_dictionaries(values))
    if draw(st.booleans()):
        order = draw(st.sampled_from(names).flatmap(st.permutations))
        different = {name: common[other] for name, other in zip(sorted(order), order, strict=True)}
    else:
        changed = draw(st.lists(st.sampled_from(names).flatmap(st.sampled_from), min_size=1, max_size=2))
        different = {name: draw(values[name]) for name in changed}
    wanted, match = draw(st.sampled_from(theme.wishes))
    return Pair(theme, devices, {"a": common, "b": common | different}, wanted, match)


# --- the world of a pair -------------------------------------------------------------------------------------


def device(facts: Facts, number: int, place: Object) -> Object:
    def fact(name: str) -> Any:
        return facts.get(f"{name} {number}")

    found: Object = {"name": f"gpu-{number}", "attributes": {}, **place}
    if fact("size"):
        found["capacity"] = {"memory": {"value": fact("size")}}
    if fact("root"):
        found["attributes"]["root"] = {"strings": list(fact("root"))} if len(fact("root")) > 1 else text(fact("root"))
    if fact("model") is not None:
        kinds = {bool: "bool", int: "int", str: "string"}
        found["attributes"]["model"] = {kinds[type(fact("model"))]: fact("model")}
    if taint := fact("taint") or (SICK if facts.get("sick") else None):
        found["taints"] = [taint]
    if fact("draws"):
        counters = {"parts": {"value": str(fact("draws"))}}
        found["consumesCounters"] = [{"counterSet": "set", "counters": counters}]
    if fact("waits"):
        found |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    flags = {"allowMultipleAllocations": fact("shared"), "bindsToNode": fact("binds")}
    return found | {name: True for name, value in flags.items() if value}


def text(value: str) -> Object:
    return {"string": value}


def slices(side: str, facts: Facts, pair: Pair) -> Iterator[Object]:
    """Those of a node's pools, which are called after it, but for one that both nodes have."""
    kind = facts.get("place", "its own")
    place, each_its_own = place_of(side, kind), kind.startswith("each")
    devices = [device(facts, number, place if each_its_own else {}) for number in range(pair.devices)]
    fields: Object = {"nodeName": None, "perDeviceNodeSelection": True} if each_its_own else {"nodeName": None, **place}
    if facts.get("skips"):
        fields["skipNodeOperations"] = ["Prepare"]
    if pair.theme.one_slice:
        yield common_slice(pair)
        return
    if pair.theme.one_pool:
        listed = [{**each, "name": f"{side}-{each['name']}"} for each in devices]
        yield named(pool_of("p"), f"{side}-slice", slices=2, **fields, devices=listed)
        return
    count = 2 if "parts" in facts else 1
    if pair.theme.two_pools:
        yield named(pool_of(f"{side}-more"), f"{side}-more", **fields, devices=[devices.pop()])
    yield named(pool_of(side), side, slices=count, **fields, devices=devices)
    if "parts" in facts:
        counters = [{"name": "set", "counters": {"parts": {"value": str(facts["parts"])}}}]
        yield named(pool_of(side), f"{side}-counters", slices=count, devices=None, sharedCounters=counters)


def common_slice(pair: Pair) -> Object:
    """One for both nodes."""
    zones = {side: {"own": zone(side), "other": zone(other), "both": zone("a", "b")} for side, other in ("ab", "ba")}
    devices = [
        {**device(facts, number, zones[side][facts[f"reach {number}"]]), "name": f"{side}-gpu-{number}"}
        for side, facts in sorted(pair.sides.items())
        for number in range(pair.devices)
    ]
    return named(pool_of("p"), "slice", nodeName=None, perDeviceNodeSelection=True, devices=devices)


def place_of(side: str, kind: str) -> Object:
    """For whom slices or devices are: the node, its zone, or its zone and another one."""
    match kind.rpartition(" ")[-1]:
        case "zone":
            return zone(side)
        case "zones":
            return zone(side, "c")
        case _:
            return {"nodeName": side}


def cluster_node(side: str, facts: Facts) -> Object:
    raw = node(side, labels={"zone": side})
    features = ["DRAOptionalNodeOperations"] if facts.get("declares") else []
    return raw | {"status": {**raw["status"], "declaredFeatures": features}}


def identity(side: str, number: int, pair: Pair) -> tuple[str, str]:
    """Pool and name of a device."""
    if pair.theme.one_pool:
        return "p", f"{side}-gpu-{number}"
    return f"{side}-more" if pair.theme.two_pools and number == pair.devices - 1 else side, f"gpu-{number}"


def arrange(scene: Scene, pair: Pair, before: Mapping[str, Facts]) -> None:
    """Make the world that of a pair; what is held is left alone where it is the same as before."""
    for side, facts in pair.sides.items():
        for raw in (cluster_node(side, facts), *slices(side, facts, pair)):
            scene.happens(raw)
        for number in range(pair.devices):
            pool, name = identity(side, number, pair)
            rule = taint_rule(f"rule-{side}-{number}", driver=DRIVER, pool=pool, device=name)
            scene.happens(rule, EventType.MODIFIED if facts.get(f"rule {number}") else EventType.DELETED)
            if (held := holding(facts, number)) != holding(before[side], number):
                hold(scene, pool, name, held)


def holding(facts: Facts, number: int) -> Sequence[str]:
    return (*facts.get(f"held {number}", ()), *facts.get(f"shares {number}", ()))


def hold(scene: Scene, pool: str, name: str, sizes: Sequence[str]) -> None:
    """This is what is held of a device."""
    for number in range(2):
        uid = f"uid-{pool}-{name}-{number}"
        scene.state.forget(uid)
        if number < len(sizes):
            share = {} if sizes[number] == "whole" else {"share": f"share-{number}", "size": sizes[number]}
            scene.takes(pool, name, **share, uid=uid)


def swapped(pair: Pair) -> Pair:
    return replace(pair, sides={"a": pair.sides["b"], "b": pair.sides["a"]})


def fresh(scene: Scene, pair: Pair, names: Sequence[str]) -> object:
    """What is found without any memory."""
    snapshot, solver = scene.state.snapshot, scene.decider.solver
    claims = (asked(*pair.wanted, match=pair.match),)
    try:
        answers = [solver.judge(snapshot, snapshot.nodes[name].node, claims) for name in names]
    except AllocatorError as error:
        return type(error), str(error)
    return [(each.merit, None) if isinstance(each, Allocation) else (None, each.reason) for each in answers]


def decided(scene: Scene, pair: Pair, names: tuple[str, ...]) -> object:
    try:
        verdicts = scene.ask(*pair.wanted, names=names, match=pair.match).verdicts
    except AllocatorError as error:
        return type(error), str(error)
    return [(verdict.merit, verdict.reason) for verdict in verdicts]


@settings(max_examples=EXAMPLES)
@given(pairs(), st.permutations("ab").map(tuple), st.sampled_from([ALL_FEATURES, Features()]))
def test_neither_of_two_nodes_gets_the_others_answer_nor_that_of_before(
    pair: Pair, names: tuple[str, ...], features: Features
) -> None:
    scene = Scene(GPU, features=features)
    before: Mapping[str, Facts] = {"a": {}, "b": {}}
    for each in (pair, swapped(pair)):
        arrange(scene, each, before)
        assert decided(scene, each, names) == fresh(scene, each, names)
        before = each.sides
