"""Random small clusters as manifests, in which the pod ns/p asks for devices, with a bit of all that can be changed."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

from hypothesis import strategies as st

from allocator import GATES
from extender.cluster.objects.claims import POD_CLAIM_NAME
from tests.extender.answers.explain.scenes import MEMORY, MODEL, held, pool
from tests.kit.clusters import DRIVER, Object, claim, claim_template, device_class, node, pod, request, taint_rule

EXTENDED = "example.com/gpu"
OF_DRIVER = f'device.driver == "{DRIVER}"'
_OWN = f'device.attributes["{DRIVER}"]'
CONDITIONS = (
    *(f'{MODEL} == "{model}"' for model in ("a100", "A100", "h100", "v100-flex")),
    f'{MODEL} in ["h100", "h200"]',
    f'{MODEL}.startsWith("h")',
    f'{_OWN}.modle == "a100"',
    f'{_OWN}.colour == "red"',
    f"{_OWN}.index > 3",
    f"5 <= {_OWN}.index",
    f"{_OWN}.index == 7",
    f"{_OWN}.healthy",
    f'{_OWN}.version.isGreaterThan(semver("2.0.0"))',
    f'!{_OWN}.version.isLessThan(semver("1.5.0"))',
    f'{_OWN}.version.compareTo(semver("1.2.0")) < 0',
    *(f'{MEMORY}.compareTo(quantity("{size}")) >= 0' for size in ("40Gi", "60Gi", "80Gi")),
    f'{MEMORY} == quantity("24Gi")',
    f'{MEMORY}.isGreaterThan(quantity("40Gi"))',
    f'{MODEL} == "h100" || {_OWN}.index > 5',
)


@dataclass(frozen=True)
class World:
    """A cluster: its objects, and the feature gates that are not at their defaults."""

    objects: tuple[Object, ...]
    gates: Mapping[str, bool]


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 4)) == 4


def _sometimes(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 2)) == 2


@st.composite
def _devices(draw: st.DrawFn, name: str) -> Object:
    attributes: Object = {
        "model": {"string": draw(st.sampled_from(("a100", "h100", "v100-Flex")))},
        "index": {"int": draw(st.integers(0, 4))},
        "healthy": {"bool": draw(st.booleans())},
        "version": {"version": draw(st.sampled_from(("1.0.0", "1.4.2", "2.0.0")))},
        "root": {"string": draw(st.sampled_from(("left", "right")))},
    }
    capacity: Object = {"memory": {"value": draw(st.sampled_from(("20Gi", "40Gi", "80Gi")))}}
    found: Object = {"name": name, "attributes": attributes, "capacity": capacity}
    if _sometimes(draw):
        policy = draw(st.sampled_from((None, {"default": "1G", "validValues": ["1G", "2G", "4G"]}, _RANGE)))
        capacity["bandwidth"] = {"value": "10G"} | ({"requestPolicy": policy} if policy else {})
        capacity["memory"]["requestPolicy"] = {"default": "1Gi", "validRange": {"min": "1Gi"}}
        found["allowMultipleAllocations"] = True
    if _rarely(draw):
        found["taints"] = [{"key": "sick", "value": draw(st.sampled_from(("", "fan"))), "effect": "NoSchedule"}]
    if _sometimes(draw):
        counter_set = "silicone" if draw(st.integers(0, 9)) == 9 else "silicon"
        amount = {"memory": {"value": draw(st.sampled_from(("20Gi", "40Gi")))}}
        found["consumesCounters"] = [{"counterSet": counter_set, "counters": amount}]
    if _rarely(draw):
        found["bindsToNode"] = True
    if draw(st.integers(0, 9)) == 9:
        found |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
    return found


_RANGE: Object = {"default": "1G", "validRange": {"min": "1G", "max": "6G", "step": "1G"}}


@st.composite
def _pools(draw: st.DrawFn, at: str) -> list[Object]:
    devices = [draw(_devices(f"gpu-{number}")) for number in range(draw(st.integers(1, 4)))]
    counted = any("consumesCounters" in each for each in devices)
    mistake = draw(st.integers(0, 11))
    slices = 1 + counted + (mistake in {0, 1})
    spec = {"skipNodeOperations": ["NodePrepareResources", "NodeUnprepareResources"]} if mistake == 2 else {}
    found = [pool(at, *devices, resourceSliceCount=slices, spec=spec)]
    if counted and mistake != 3:
        found.append(pool(at, counters={"memory": {"value": "40Gi"}}, resourceSliceCount=slices))
    if mistake == 1:
        found.append(pool(at, deepcopy(devices[0]), part="again", resourceSliceCount=slices))
    return found


@st.composite
def _requested(draw: st.DrawFn) -> Object:
    """The fields of a request."""
    wanted: Object = request(
        device_class=draw(st.sampled_from(("gpu", "gpu", "gpu", "picky"))),
        count=draw(st.sampled_from((1, 1, 1, 2, 3))),
        selectors=[
            " && ".join(draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2)))
            for _ in range(draw(st.sampled_from((0, 1, 1, 2))))
        ],
    )["exactly"]
    if _rarely(draw):
        wanted |= {"allocationMode": "All"}
        del wanted["count"]
    if _sometimes(draw):
        names = draw(st.sampled_from((("bandwidth",), ("bandwidth", "memory"), ("memroy",), ("memory",))))
        amounts = st.sampled_from(("1", "3G", "5G", "8G", "30Gi", "60Gi"))
        wanted |= {"capacity": {"requests": {name: draw(amounts) for name in names}}}
    if _rarely(draw):
        wanted |= {"tolerations": [{"key": "sick", "operator": "Exists"}]}
    return wanted


@st.composite
def _requests(draw: st.DrawFn, name: str) -> Object:
    if _rarely(draw):
        return {"name": name, "firstAvailable": [{"name": sub, **draw(_requested())} for sub in ("one", "two")]}
    return {"name": name, "exactly": draw(_requested())}


@st.composite
def _asking(draw: st.DrawFn) -> list[Object]:
    """The pod and its claim, a template, or both; or a pod with an extended resource."""
    if _rarely(draw):
        return [pod("p", resources={EXTENDED: str(draw(st.integers(1, 2)))})]
    requests = [draw(_requests(f"r{number}")) for number in range(draw(st.sampled_from((1, 1, 1, 2))))]
    mine = claim("mine", *requests)
    if _sometimes(draw) and not any(each.get("allocationMode") == "All" for each in _parts(requests)):
        kind = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
        attribute = draw(st.sampled_from(("root", "root", "model", "rooot")))
        mine["spec"]["devices"]["constraints"] = [{kind: f"{DRIVER}/{attribute}"}]
    if not _sometimes(draw):
        return [mine, pod("p", "mine")]
    asking, template = pod("p"), claim_template("t") | {"spec": {"spec": mine["spec"]}}
    asking["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    if draw(st.booleans()):
        return [template, asking]
    asking["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    return [template, asking, _owned(mine, "p", "gpu")]


def _parts(requests: list[Object]) -> list[Object]:
    return [part for each in requests for part in each.get("firstAvailable", [each.get("exactly")])]


def _owned(made: Object, by: str, entry: str) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": by, "uid": f"uid-{by}", "controller": True}
    made["metadata"] |= {"ownerReferences": [owner], "annotations": {POD_CLAIM_NAME: entry}}
    return made


@st.composite
def _holders(draw: st.DrawFn, at: str, device: Object) -> list[Object]:
    """Who holds a device, if anybody."""
    if not _sometimes(draw):
        return []
    name = f"{at}-{device['name']}"
    user, own = held(name, f"{at}/{device['name']}", at=at, priority=draw(st.integers(0, 2)))
    if device.get("allowMultipleAllocations"):
        result = own["status"]["allocation"]["devices"]["results"][0]
        consumed = {each: "4G" if each == "bandwidth" else "15Gi" for each in device["capacity"]}
        result |= {"shareID": str(uuid5(NAMESPACE_URL, name)), "consumedCapacity": consumed}
    match draw(st.integers(0, 9)):
        case 0:
            own["metadata"]["finalizers"] = []
        case 1:
            del own["status"]["reservedFor"]
            return [own]
        case 2:
            own["status"]["reservedFor"] = [
                {"apiGroup": "lab.example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}
            ]
            return [own]
        case 3:
            own = _owned(own, name, own["metadata"]["name"])
    return [user, own]


def _drawn(device: Object) -> int:
    """Gi of the shared counter."""
    uses = device.get("consumesCounters", ())
    return sum(int(use["counters"]["memory"]["value"].removesuffix("Gi")) for use in uses)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A cluster of one to three nodes."""
    picky = draw(st.sampled_from((f'{MODEL} == "a100"', f'{_OWN}.modle == "a100"', f"{_OWN}.index < 2")))
    objects = [
        device_class(selectors=[OF_DRIVER], extended=EXTENDED),
        device_class("picky", selectors=[OF_DRIVER, picky]),
    ]
    objects += draw(_asking())
    for at in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        slices = draw(_pools(at))
        objects += [node(at), *slices]
        left = 40
        for device in {each["name"]: each for s in slices for each in s["spec"].get("devices", ())}.values():
            left -= (drawn := _drawn(device))
            found = draw(_holders(at, device)) if left >= 0 else []
            left += 0 if found else drawn
            objects += found
    if _rarely(draw):
        objects += [
            each | {"spec": each["spec"] | {"nodeName": None, "allNodes": True}} for each in draw(_pools("net"))
        ]
    if _rarely(draw):
        objects.append(taint_rule("maintenance", pool=draw(st.sampled_from(("a", "b")))))
    gates = {draw(st.sampled_from(sorted(GATES))): draw(st.booleans())} if _rarely(draw) else {}
    return World(tuple(objects), gates)
