"""Random allocator cases, from a seed: small crowded worlds in which features meet."""

from random import Random
from typing import Any, Final

from tests.conformance.features import GATES, SPECIAL

Json = dict[str, Any]

_V1: Final = "resource.k8s.io/v1"
DRIVERS: Final = ("gpu.example.com", "nic.example.com")
ROOT: Final = "pci.example.com/root"

_SELECTORS: Final = (
    "device.driver == 'gpu.example.com'",
    "device.attributes['gpu.example.com'].model == 'a'",
    "device.attributes['gpu.example.com'].index < 3",
    "device.attributes['pci.example.com'].root == 'r0'",
    "device.capacity['gpu.example.com'].memory.compareTo(quantity('4Gi')) >= 0",
    "'model' in device.attributes[device.driver] && device.attributes[device.driver].model != 'c'",
    "device.attributes[device.driver].?model.orValue('') == 'b'",
    "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.2.0'))",
    "device.allowMultipleAllocations",
    "device.attributes['pci.example.com'].roots.includes('r1')",
    "has(device.attributes.gpu) || true",
)
_ATTRIBUTES: Final = (
    ROOT,
    "gpu.example.com/model",
    "gpu.example.com/index",
    "nic.example.com/model",
    "x.example.com/d",
)
_EXPRESSIONS: Final = (
    "device.driver",
    "device.attributes['gpu.example.com'].model",
    "device.attributes[device.driver].?index.orValue(7)",
    "device.attributes[device.driver].?index.orValue(0) % 2 == 0",
    "['a', device.driver]",
    "[]",
)


class Dice:
    """Choices of one case."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.unruly = random.random() < 0.15
        """Whether selectors are drawn that may fail."""

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.random.random() < probability

    def some(self, options: tuple[str, ...] | list[str], most: int) -> list[str]:
        """Some of the options, at most this number, in any order."""
        return self.random.sample(options, self.random.randint(0, min(most, len(options))))

    def selectors(self, most: int) -> list[Json]:
        """CEL selectors."""
        usable = list(_SELECTORS) if self.unruly else [_SELECTORS[0], _SELECTORS[5], _SELECTORS[6], _SELECTORS[8]]
        return [{"cel": {"expression": text}} for text in self.some(usable, most)]

    def config(self, tag: str, requests: list[str]) -> list[Json]:
        """Opaque configuration, for some of the requests."""
        if not self.chance(0.3):
            return []
        config: Json = {"opaque": {"driver": self.random.choice(DRIVERS), "parameters": {"tag": tag}}}
        named = self.some(requests, 2)
        return [{**config, "requests": named} if named else config]


def random_case(seed: int) -> Json:
    """One case, the same for the same seed; ``runs`` is left to whoever answers it."""
    dice = Dice(Random(seed))
    always_on = 1.0 if dice.chance(0.75) else 0.8
    features = {name: dice.chance(always_on) for name in GATES}
    nodes = [_node(dice, f"node-{number}") for number in range(2)]
    slices = [each for number in range(dice.random.randint(1, 4)) for each in _pool(dice, number)]
    dice.random.shuffle(slices)
    return {
        "name": f"random-{seed}",
        "suite": "fuzz",
        "seed": seed,
        "features": features,
        "claims": [
            _special_claim(dice, number) if dice.chance(0.1) else _claim(dice, number)
            for number in range(dice.random.choice((1, 1, 2)))
        ],
        "deviceClasses": [_class(dice, name) for name in ("gpu", "any")],
        "resourceSlices": slices,
        "nodes": nodes,
        **_taken(dice, slices),
    }


def _node(dice: Dice, name: str) -> Json:
    node: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"rack": dice.random.choice(("0", "1")), "name": name}},
    }
    if dice.chance(0.3):
        node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    return node


def _class(dice: Dice, name: str) -> Json:
    selectors = [{"cel": {"expression": _SELECTORS[0]}}] if name == "gpu" else []
    return {
        "apiVersion": _V1,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {
            "selectors": selectors,
            "config": dice.config(name, []),
            **({"extendedResourceName": "example.com/gpu"} if name == "gpu" else {}),
        },
    }


def _pool(dice: Dice, number: int) -> list[Json]:
    """The slices of one pool; now and then with some of an older generation."""
    driver = dice.random.choice(DRIVERS)
    newest = _generation(dice, driver, number, 2)
    if not dice.chance(0.1):
        return newest
    older = _generation(dice, driver, number, 1)
    return [*newest, *dice.random.sample(older, dice.random.randint(0, len(older)))]


def _generation(dice: Dice, driver: str, number: int, generation: int) -> list[Json]:
    """The slices of one generation; now and then one is missing, or a name is there twice."""
    pool: Json = {"name": f"pool-{number}", "generation": generation}
    counters = [f"set-{i}" for i in range(dice.random.choice((0, 0, 1, 2)))]
    listing = [[_device(dice, number, i, counters) for i in range(dice.random.randint(1, 5))]]
    if dice.chance(0.3):
        listing.append([_device(dice, number, i, counters) for i in range(4, 4 + dice.random.randint(0, 3))])
    per_device = dice.chance(0.15)
    place = _place(dice)
    specs: list[Json] = []
    for devices in listing:
        spec: Json = {"devices": [{**d, **_place(dice)} for d in devices] if per_device else devices}
        if dice.chance(0.1):
            spec["skipNodeOperations"] = dice.random.choice((["NodePrepareResources", "NodeUnprepareResources"], ["*"]))
        specs.append(spec)
    if counters and not dice.chance(0.02):
        specs.append({"sharedCounters": [_counter_set(dice, name) for name in counters]})
    total = len(specs) + (1 if dice.chance(0.06) else 0)
    return [
        {
            "apiVersion": _V1,
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{number}-{generation}-{index}"},
            "spec": {
                "driver": driver,
                "pool": {**pool, "resourceSliceCount": total},
                **({"perDeviceNodeSelection": True} if per_device else place),
                **spec,
            },
        }
        for index, spec in enumerate(specs)
    ]


def _place(dice: Dice) -> Json:
    roll = dice.random.random()
    if roll < 0.6:
        return {"nodeName": dice.random.choice(("node-0", "node-0", "node-1"))}
    if roll < 0.8:
        return {"allNodes": True}
    expressions = [
        {"key": key, "operator": "In", "values": dice.random.sample(("0", "1", "node-0"), 2)}
        for key in dice.some(["rack", "name"], 2) or ["rack"]
    ]
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def _counter_set(dice: Dice, name: str) -> Json:
    return {"name": name, "counters": {"a": {"value": str(dice.random.randint(1, 4))}, "b": {"value": "2"}}}


def _device(dice: Dice, pool: int, index: int, counters: list[str]) -> Json:
    device: Json = {"name": f"dev-{pool}-{index if not dice.chance(0.003) else 0}", "attributes": {}}
    attributes = device["attributes"]
    if dice.chance(0.8):
        attributes["model"] = {"string": dice.random.choice("abc")}
    if dice.chance(0.8):
        attributes["index"] = {"int": index}
    if dice.chance(0.7):
        attributes[ROOT] = {"string": f"r{dice.random.randint(0, 1)}"}
    if dice.chance(0.2):
        attributes["pci.example.com/roots"] = {"strings": dice.some(["r0", "r1", "r2"], 3) or ["r0"]}
        attributes[ROOT] = {"strings": dice.some(["r0", "r1", "r2"], 2) or ["r0"]}
    if dice.chance(0.2):
        attributes["version"] = {"version": dice.random.choice(("1.0.0", "1.3.0-rc.1", "2.0.0"))}
    if dice.chance(0.1):
        attributes["x.example.com/d"] = dice.random.choice(_LISTS) if dice.chance(0.95) else {}
    if dice.chance(0.7):
        device["capacity"] = {"memory": _capacity(dice)}
    if dice.chance(0.25):
        device["allowMultipleAllocations"] = True
    if dice.chance(0.15):
        device["taints"] = [{"key": dice.random.choice("kl"), "value": "v", "effect": dice.random.choice(_EFFECTS)}]
    if dice.chance(0.1):
        device["bindingConditions"], device["bindingFailureConditions"] = ["ready"], ["broken"]
        device["bindsToNode"] = dice.chance(0.5)
    if counters and dice.chance(0.8):
        device["consumesCounters"] = [_consumption(dice, name) for name in dice.some(counters, 2) or counters[:1]]
    return device


_AMOUNTS: Final = ("1Gi", "1500Mi", "3Gi", "700m", "16Gi")
_ODD_AMOUNTS: Final = ("0", "1n", "1", "4503599627370497m", "8Ei", "9223372036854775807", "1e30")
_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")
_LISTS: Final[tuple[Json, ...]] = (
    {"bools": [True]},
    {"ints": [7, 8]},
    {"ints": [7]},
    {"int": 7},
    {"versions": ["1.0.0", "1.0.0+b"]},
    {"version": "1.0.0"},
)


def _consumption(dice: Dice, counter_set: str) -> Json:
    name = counter_set if not dice.chance(0.005) else "unknown"
    used: Json = {"counterSet": name, "counters": {"a": {"value": str(dice.random.randint(0, 2))}}}
    if dice.chance(0.15):
        used["compatibilityGroups"] = dice.some(["x", "y"], 2)
    return used


def _capacity(dice: Dice) -> Json:
    total = dice.random.choice((2, 4, 8))
    capacity: Json = {"value": f"{total}Gi"}
    roll = dice.random.random()
    if roll < 0.15:
        capacity["requestPolicy"] = {
            "default": "1Gi",
            "validValues": ["1Gi", "2Gi", "3Gi"][: dice.random.randint(1, 3)],
        }
    elif roll < 0.35:
        bounds = {"min": dice.random.choice(("1Gi", "500m", "1"))}
        if dice.chance(0.6):
            bounds["step"] = dice.random.choice(("1Gi", "500m", "3"))
        if dice.chance(0.6):
            bounds["max"] = f"{total}Gi"
        capacity["requestPolicy"] = {"default": bounds["min"], "validRange": bounds}
    return capacity


def _claim(dice: Dice, number: int) -> Json:
    names = [f"req-{i}" for i in range(dice.random.choice((1, 1, 2, 3)))]
    requests = [_request(dice, name) for name in names]
    labels = [*names, *(f"{r['name']}/{s['name']}" for r in requests for s in r.get("firstAvailable", ()))]
    devices: Json = {"requests": requests}
    constraints = [_constraint(dice, labels) for _ in range(dice.random.choice((0, 0, 1, 1, 2)))]
    if constraints:
        devices["constraints"] = constraints
    config = [c for i in range(2) for c in dice.config(f"claim-{number}-{i}", labels)]
    if config:
        devices["config"] = config
    metadata = {"name": f"claim-{number}", "namespace": "default"}
    claim = {"apiVersion": _V1, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}
    return {**claim, **_status(dice)} if dice.chance(0.1) else claim


def _status(dice: Dice) -> Json:
    """What drivers said of an earlier allocation; no allocator reads it."""
    conditions = [{"type": kind, "status": dice.random.choice(("True", "False"))} for kind in ("ready", "broken")]
    device = {"driver": DRIVERS[0], "pool": "pool-0", "device": "dev-0-0", "conditions": conditions}
    return {"status": {"devices": [device]}}


def _special_claim(dice: Dice, number: int) -> Json:
    """The claim that a scheduler makes for the extended resources of a pod with up to three containers."""
    requests = [
        {
            "name": f"container-{container}-request-0",
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": dice.random.randint(1, 3)},
        }
        for container in range(dice.random.randint(1, 3))
    ]
    return {
        "apiVersion": _V1,
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": "default", "annotations": {SPECIAL: "true"}},
        "spec": {"devices": {"requests": requests}},
    }


def _request(dice: Dice, name: str) -> Json:
    if dice.chance(0.2):
        alternatives = [{"name": f"sub-{i}", **_ask(dice, most=2)} for i in range(dice.random.randint(1, 3))]
        return {"name": name, "firstAvailable": alternatives}
    exactly = _ask(dice, most=3)
    if dice.chance(0.07):
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _ask(dice: Dice, most: int) -> Json:
    name = "gone" if dice.chance(0.005) else dice.random.choice(("any", "any", "gpu"))
    ask: Json = {"deviceClassName": name, "selectors": dice.selectors(1)}
    if dice.chance(0.12):
        ask["allocationMode"] = "All"
    else:
        count = dice.random.randint(1, most) if dice.chance(0.996) else 33
        ask |= {"allocationMode": "ExactCount", "count": count}
    if dice.chance(0.25):
        amount = dice.random.choice(_AMOUNTS if dice.chance(0.9) else _ODD_AMOUNTS)
        ask["capacity"] = {"requests": {dice.random.choice(("memory", "gpu.example.com/memory")): amount}}
    if dice.chance(0.2):
        ask["tolerations"] = [_toleration(dice) for _ in range(dice.random.randint(1, 2))]
    if dice.chance(0.1):
        names = dice.some(["x.example.com/d", ROOT], 2)
        ask["derivedAttributes"] = [{"name": n, "expression": dice.random.choice(_EXPRESSIONS)} for n in names]
    return ask


def _toleration(dice: Dice) -> Json:
    toleration: Json = {"operator": "Exists", **({"key": "k"} if dice.chance(0.5) else {})}
    if dice.chance(0.3):
        toleration = {"key": "k", "operator": "Equal", "value": dice.random.choice("vw")}
    if dice.chance(0.3):
        toleration["effect"] = dice.random.choice(_EFFECTS[:2])
    return toleration


def _constraint(dice: Dice, labels: list[str]) -> Json:
    kind = "matchAttribute" if dice.chance(0.6) else "distinctAttribute"
    constraint: Json = {kind: dice.random.choice(_ATTRIBUTES)}
    named = dice.some(labels, 3)
    return {**constraint, "requests": named} if named else constraint


def _taken(dice: Dice, slices: list[Json]) -> Json:
    """What others hold: whole devices, and shares of those that may be shared."""
    held: list[Json] = []
    shared: list[Json] = []
    used: list[Json] = []
    for each in slices:
        spec = each["spec"]
        for device in spec.get("devices", ()):
            identity = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
            if not dice.chance(0.12):
                continue
            if not device.get("allowMultipleAllocations"):
                held.append(identity)
            else:
                shared.append({**identity, "shareID": f"share-{len(shared)}"})
                if "capacity" in device:
                    used.append({**identity, "capacity": {"memory": dice.random.choice(("1Gi", "2Gi"))}})
    return {"allocatedDevices": held, "allocatedSharedDeviceIDs": shared, "aggregatedCapacity": used}
