"""Nodes that are alike but for one thing, and a pod to which it makes a difference: neither gets the other's answer."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from allocator import Allocation, AttributeValue, ConstraintKind, SelectorError
from allocator.model.features import ALL_FEATURES
from allocator.search.constraints import CONSTRAINTS, Constraint
from extender.kube.api import EventType
from tests.extender.framework.decisions.scenes import (
    Scene,
    asked,
    everything,
    named,
    pool_of,
    texts,
    tolerates,
    wants,
    zone,
)
from tests.kit.clusters import DRIVER, GPU, Object, network_slice, node, request, taint_rule

VALUE = f"device.attributes['{DRIVER}'].model"
ROOT = f"{DRIVER}/root"
HAS_ROOM = {"capacity": {"memory": {"value": "4Gi"}}}
IS_SMALL = {"capacity": {"memory": {"value": "1Gi"}}}
SHARED = HAS_ROOM | {"allowMultipleAllocations": True}
SICK = {"taints": [{"key": "sick", "value": "very", "effect": "NoSchedule"}]}
BINDS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
SKIPS: Object = {"skipNodeOperations": ["Prepare"]}


def model(**value: Any) -> Object:
    return {"attributes": {"model": value}}


def roots(*values: str) -> list[Object]:
    return [texts(root=value) for value in values]


def root_lists(*values: str) -> list[Object]:
    """Of each text, the letters."""
    return [{"attributes": {"root": {"strings": list(value)}}} for value in values]


def draws(parts: int, *, group: str = "") -> Object:
    drawn: Object = {"counterSet": "set", "counters": {"parts": {"value": str(parts)}}}
    return {"consumesCounters": [drawn | ({"compatibilityGroups": [group]} if group else {})]}


@dataclass(frozen=True)
class Pair:
    """Nodes "a" and "b", and what a pod asks for.

    Attributes:
        held: pool/device; with /share, some of its memory.
    """

    objects: Sequence[Object]
    wanted: Sequence[Object] = (request(),)
    match: str = ""
    held: Sequence[str] = ()


def devices(a: Sequence[Object], b: Sequence[Object], *wanted: Object, match: str = "") -> Pair:
    """Nodes with a pool each."""
    return Pair((node("a"), node("b"), pool_of("a", *a), pool_of("b", *b)), wanted or (request(),), match)


def holdings(both: Sequence[Object], held: Sequence[str], *wanted: Object, match: str = "") -> Pair:
    """Nodes with the same devices; on each node, other devices are held."""
    return Pair(devices(both, both).objects, wanted or (request(),), match, held)


def with_counters(pool: str, parts: int, *devices: Object) -> list[Object]:
    raw = pool_of(pool, *devices)
    counters = [{"name": "set", "counters": {"parts": {"value": str(parts)}}}]
    return [
        named(raw, pool, slices=2),
        named(raw, f"{pool}-counters", slices=2, devices=None, sharedCounters=counters),
    ]


def spread(name: str, *elsewhere: Object) -> list[Object]:
    """A node with one part of three, and devices that another node reaches and that draw on them as well."""
    far = [{**device, "name": f"far-{number}"} for number, device in enumerate(elsewhere)]
    near, counters = with_counters(name, 3, draws(1))
    beyond = named(near, f"{name}-elsewhere", nodeName="z", devices=far)
    return [node(name), *(named(each, each["metadata"]["name"], slices=3) for each in (near, counters, beyond))]


def counted(a: tuple[int, Sequence[Object]], b: tuple[int, Sequence[Object]], *wanted: Object) -> Pair:
    """Two nodes with shared counters: the amount on each, and its devices."""
    return Pair([node("a"), node("b"), *with_counters("a", a[0], *a[1]), *with_counters("b", b[0], *b[1])], wanted)


def zoned(a: Object, b: Object, *, pools: str = "pp", held: Sequence[str] = ()) -> Pair:
    """Slices that only the nodes of a zone reach, in one pool or in two; the device of each is named as its zone."""
    slices = [
        named(
            network_slice(pool),
            f"of-{name}",
            slices=1 + (pools[0] == pools[1]),
            **{"allNodes": None, "devices": [{"name": f"gpu-{name}"}], **zone(name), **spec},
        )
        for pool, name, spec in zip(pools, "ab", (a, b), strict=True)
    ]
    return Pair([*(node(name, labels={"zone": name}) for name in "ab"), *slices], held=held)


def each_its_own(name: str, **device: Any) -> Object:
    """A slice whose devices say for themselves where they are."""
    return {"nodeSelector": None, "perDeviceNodeSelection": True, "devices": [{"name": f"gpu-{name}", **device}]}


def declaring(raw: Object) -> Object:
    return raw | {"status": {**raw["status"], "declaredFeatures": ["DRAOptionalNodeOperations"]}}


TWO_TERMS = zone("a", "b")
FIRST, SECOND = texts(model="x"), texts(model="y")
IS_X = f'{VALUE} == "x"'
READS_ALL = f"device.attributes['{DRIVER}'].exists(name, name == 'model') && {VALUE} == \"1\""

DEVICES = {
    "a value that is read": devices([FIRST], [SECOND], wants(selector=IS_X)),
    "a number or a truth": devices([model(int=1)], [model(bool=True)], wants(selector=f"{VALUE} == 1")),
    "a text or a version": devices(
        [model(version="1.0.0"), model(string="1.0.0")],
        [model(version="1.0.0"), model(version="1.0.0")],
        wants(selector=f"type({VALUE}) == string"),
    ),
    "a list of texts or of versions": devices(
        [{"attributes": {"root": {"strings": ["1.0.0"]}}}] * 2,
        [{"attributes": {"root": {kind: ["1.0.0"]}}} for kind in ("strings", "versions")],
        wants(2),
        match=ROOT,
    ),
    "a text or a list of it": devices(
        [model(strings=["x"]), model(string="x")], [model(strings=["x"])] * 2, wants(selector=IS_X)
    ),
    "a text or a number, where all is read": devices([model(string="1")], [model(int=1)], wants(selector=READS_ALL)),
    "a taint": devices([{}], [SICK]),
    "a taint's effect": devices([{"taints": [{**SICK["taints"][0], "effect": "None"}]}], [SICK]),
    "a taint's key": devices(
        [SICK],
        [{"taints": [{**SICK["taints"][0], "key": "hot"}]}],
        tolerates(key="sick", operator="Exists"),
    ),
    "a taint's value": devices(
        [SICK],
        [{"taints": [{**SICK["taints"][0], "value": "barely"}]}],
        tolerates(key="sick", operator="Equal", value="very"),
    ),
    "capacity": devices([HAS_ROOM], [IS_SMALL], wants(cache="2Gi")),
    "a capacity's policy": devices(
        [SHARED],
        [
            SHARED
            | {"capacity": {"memory": {"value": "4Gi", "requestPolicy": {"default": "1Gi", "validValues": ["1Gi"]}}}}
        ],
        wants(cache="2Gi"),
    ),
    "may be shared": devices([SHARED], [HAS_ROOM], wants(cache="1Gi"), wants(cache="1Gi", name="more")),
    "which is shared": devices(
        [SHARED | FIRST, HAS_ROOM | SECOND],
        [HAS_ROOM | FIRST, SHARED | SECOND],
        wants(selector=IS_X, cache="1Gi"),
        wants(selector=IS_X, cache="1Gi", name="more"),
    ),
    "values in common": devices(roots("r", "r"), roots("r", "s"), wants(2), match=ROOT),
    "values in common or none": devices(roots("r", "r"), [{}, {}], wants(2), match=ROOT),
    "elements in common": devices(root_lists("rs", "st"), root_lists("rs", "tu"), wants(2), match=ROOT),
    "parts drawn": counted((3, [draws(1), draws(1)]), (3, [draws(3), draws(1)]), wants(2)),
    "parts there": counted((3, [draws(1), draws(1)]), (1, [draws(1), draws(1)]), wants(2)),
    "parts drawn elsewhere": Pair([*spread("a", draws(1)), *spread("b", draws(3))], held=["a/far-0", "b/far-0"]),
    "compatibility groups": counted(
        (3, [draws(1, group="x"), draws(1, group="x")]), (3, [draws(1, group="x"), draws(1, group="y")]), wants(2)
    ),
}
"""What is published of devices."""

HOLDINGS = {
    "one of several": holdings([{}, {}], ["a/gpu-0"], wants(2)),
    "one of those that differ": holdings([FIRST, SECOND], ["a/gpu-0", "b/gpu-1"], wants(selector=IS_X)),
    "one of those without a taint": holdings([{}, SICK], ["a/gpu-0", "b/gpu-1"]),
    "one of those with a value in common": holdings(roots("r", "r", "s"), ["a/gpu-0", "b/gpu-2"], wants(2), match=ROOT),
    "the first, where all are asked for": holdings([SICK, SICK], ["a/gpu-0", "b/gpu-1"], everything()),
    "the first, with admin access": holdings(
        [IS_SMALL, IS_SMALL, HAS_ROOM], ["a/gpu-0", "b/gpu-1"], wants(name="admin", adminAccess=True), request()
    ),
    "the whole or a share": holdings([SHARED], ["a/gpu-0", "b/gpu-0/1Gi"], wants(cache="1Gi")),
    "a share, or all of it besides": holdings([SHARED], ["a/gpu-0/1Gi", "b/gpu-0/1Gi", "b/gpu-0"], wants(cache="1Gi")),
    "how much of it": holdings([SHARED], ["a/gpu-0/1Gi", "b/gpu-0/4Gi"], wants(cache="1Gi")),
    "other parts of the same, elsewhere": Pair(
        [*spread("a", draws(1), draws(3)), *spread("b", draws(1), draws(3))], held=["a/far-0", "b/far-1"]
    ),
}
"""What is held of devices that are the same."""

PLACES = {
    "a rule's taint": Pair(
        [*devices([{}], [{"name": "other"}]).objects, taint_rule("r", driver=DRIVER, device="gpu-0")]
    ),
    "which roaming pool": zoned({}, {}, pools="pq", held=["q/gpu-b"]),
    "which devices of a roaming pool": zoned({}, {}, held=["p/gpu-b"]),
    "terms of the slice": zoned({}, TWO_TERMS | zone("b", "c")),
    "terms of the device": zoned(each_its_own("a", **zone("a")), each_its_own("b", **zone("b", "c"))),
    "terms, or the node's own": zoned(each_its_own("a", nodeName="a"), each_its_own("b", **zone("b", "c"))),
    "tied to its node": zoned(zone("a", "c") | {"devices": [{"name": "gpu-a", "bindsToNode": True}]}, zone("b", "c")),
    "reach of the device": Pair(
        [
            node("a"),
            node("b"),
            named(
                network_slice("net"),
                "net",
                allNodes=None,
                perDeviceNodeSelection=True,
                devices=[{"name": "gpu-0", "nodeName": "a"}, {"name": "gpu-1", "nodeName": "b", **SICK}],
            ),
        ]
    ),
    "a driver's calls skipped by the slice": Pair(
        [node("a"), node("b"), pool_of("a", {}), named(pool_of("b", {}), "b", **SKIPS)]
    ),
    "a driver's calls skipped by the node": Pair(
        [declaring(node("a")), node("b"), *(named(pool_of(name, {}), name, **SKIPS) for name in "ab")]
    ),
    "values in common from pool to pool": Pair(
        [node("a"), node("b")]
        + [
            named(
                pool_of(name, texts(root=root)),
                f"{name}-{pool}",
                pool={"name": f"{name}-{pool}", "generation": 1, "resourceSliceCount": 1},
            )
            for name, pool, root in (("a", 0, "r"), ("a", 1, "r"), ("b", 0, "r"), ("b", 1, "s"))
        ],
        [wants(2)],
        ROOT,
    ),
}
"""Where devices are, and what comes over them from elsewhere."""

PAIRS = {**DEVICES, **{f"held: {name}": pair for name, pair in HOLDINGS.items()}, **PLACES}


def scene_of(pair: Pair) -> Scene:
    scene = Scene(GPU, *pair.objects, features=ALL_FEATURES)
    for number, (pool, device, *size) in enumerate(each.split("/") for each in pair.held):
        share = f"share-{number}" if size else ""
        scene.takes(pool, device, share=share, size=size[0] if size else "", uid=f"uid-{number}")
    return scene


def fresh(scene: Scene, name: str, pair: Pair) -> object:
    """A node's answer without any memory."""
    snapshot = scene.state.snapshot
    claims = (asked(*pair.wanted, match=pair.match),)
    answer = scene.decider.solver.judge(snapshot, snapshot.nodes[name].node, claims)
    return (answer.merit, None) if isinstance(answer, Allocation) else (None, answer.reason)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids="".join)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_neither_of_two_nodes_gets_the_others_answer(pair: Pair, names: tuple[str, str]) -> None:
    scene = scene_of(pair)
    first, second = (fresh(scene, name, pair) for name in names)
    decided = scene.ask(*pair.wanted, names=names, match=pair.match)
    assert first != second, "this makes no difference"
    assert [(verdict.merit, verdict.reason) for verdict in decided.verdicts] == [first, second]


class Neighbors(Constraint):
    """A kind of constraint that reads the values themselves: whole numbers in a row."""

    __slots__ = ()
    start: ClassVar[Hashable] = frozenset()
    _state: frozenset[AttributeValue]

    def admits(self, value: AttributeValue) -> Hashable:
        return self._state | {value}

    def holds(self) -> bool:
        found = sorted(each for each in self._state if isinstance(each, int))
        return found[-1] - found[0] == len(found) - 1


def test_nodes_whose_devices_have_other_values_are_not_alike_to_a_kind_that_reads_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(CONSTRAINTS, ConstraintKind.MATCH, Neighbors)
    near, far = ([model(int=value) for value in values] for values in ((1, 2), (1, 5)))
    pair = devices(near, far, wants(2), match=f"{DRIVER}/model")
    decided = scene_of(pair).ask(*pair.wanted, names=("a", "b"), match=pair.match)
    assert [verdict.merit is not None for verdict in decided.verdicts] == [True, False]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (network_slice("net", 0), EventType.MODIFIED),
        (network_slice("net"), EventType.DELETED),
        (network_slice("net") | {"spec": pool_of("b", {})["spec"]}, EventType.MODIFIED),
    ],
    ids=["its devices gone", "itself gone", "of one node now"],
)
def test_a_pool_that_roams_changes_for_all_nodes(raw: Object, kind: EventType) -> None:
    scene = Scene(GPU, node("a"), node("c"), network_slice("net"))
    before = scene.ask(names=("a", "c"))
    scene.happens(raw, kind)
    after = scene.ask(names=("a", "c"))
    found = [[verdict.merit is not None for verdict in decided.verdicts] for decided in (before, after)]
    assert found == [[True, True], [False, False]]


def test_what_is_held_of_a_pool_that_roams_goes_by_name() -> None:
    def published(*names: str) -> Object:
        devices = [{"name": name, **fields} for name, fields in zip(names, (FIRST, SECOND), strict=True)]
        return named(network_slice("net"), "net", devices=devices)

    scene = Scene(GPU, node("a"), published("gpu-0", "gpu-1"))
    scene.takes("net", "gpu-0")
    before = scene.ask(wants(selector=IS_X), names=("a",))
    scene.happens(published("gpu-1", "gpu-0"))
    after = scene.ask(wants(selector=IS_X), names=("a",))
    assert [decided.verdicts[0].merit is not None for decided in (before, after)] == [False, True]


def test_a_value_of_an_unknown_type_fails_the_claims_where_it_is_read() -> None:
    """No selector can be evaluated on such a device; none of the nodes that are fine speaks for its node."""
    found = devices([{}], [model()], wants(selector="true"))
    scene = scene_of(found)
    scene.ask(*found.wanted, names=("a",))
    with pytest.raises(SelectorError, match="unsupported value"):
        scene.ask(*found.wanted, names=("a", "b"))
