"""Applies a proposal as a person would: reads its words, and edits the manifests of the cluster and the settings.

Nothing of a change is used but the texts that `explain` prints. An order stands behind the place where it is to be
carried out: ``in ResourceClaim ns/mine, request gpu, selector 0: write A instead of B``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from allocator.obstacles import conditions_of
from extender import Cluster, Placement
from extender.config.settings import Settings
from extender.planning.changes import ProposedChange
from tests.kit.clusters import Object
from tests.kit.objects.parts import api_object

_KINDS = {"pod": "Pod", "resourceclaim": "ResourceClaim"}
_DELETION = re.compile(r"kubectl delete (pod|resourceclaim) -n (\S+) (\S+?)(?:; |$)")
_GATE = re.compile(r"in the settings of dra-extender: featureGates: (\{.*?\});.*")
_POOL = re.compile(r"in its ResourceSlices \(.*?\): (.*)")
_ORDER = re.compile(
    r"in (DeviceClass|ResourceClaim|ResourceClaimTemplate|Node|Pod) ([^\s,:]+)(?:, (.*?))?: (.*)", re.DOTALL
)


class Manifests:
    """The objects of a cluster and its feature gates, as a person edits them."""

    def __init__(self, objects: Sequence[Object], gates: Mapping[str, bool]) -> None:
        self.objects = deepcopy(list(objects))
        self.gates = dict(gates)

    @property
    def settings(self) -> Settings:
        """The settings with the gates."""
        return Settings.model_validate({"featureGates": self.gates})

    def cluster(self, folder: Path) -> Cluster:
        """The cluster of the manifests, read from a file."""
        file = folder / "cluster.yaml"
        file.write_text(yaml.safe_dump_all(self.objects))
        return Cluster.from_manifests([file], settings=self.settings)

    def simulated(self, folder: Path) -> dict[str, Placement]:
        """Where `dra-extender simulate` puts the pods."""
        return {each.pod: each for each in self.cluster(folder).schedule()}

    def cordon_all_but(self, node: str) -> None:
        """Leave one node to choose."""
        for each in self._of_kind("Node"):
            each["spec"] = {"unschedulable": each["metadata"]["name"] != node}

    def apply(self, changes: Sequence[ProposedChange]) -> None:
        """Carry out the orders of a proposal."""
        for change in changes:
            if deletions := _DELETION.findall(change.how):
                for kind, namespace, name in deletions:
                    self._delete(_KINDS[kind], f"{namespace}/{name}", again="create it again" in change.text)
            elif gate := _GATE.fullmatch(change.how):
                self.gates |= yaml.safe_load(gate[1])
            elif orders := _POOL.fullmatch(change.how):
                self._correct_pool(change.text.split()[5].rstrip(":"), orders[1].split("; "))
            else:
                order = _ORDER.fullmatch(change.how)
                assert order, change.how
                self._edit(self._named(order[1], order[2]), order[3].split(", ") if order[3] else [], order[4])
                self._create_again(change.immutable)

    def _named(self, kind: str, key: str) -> Object:
        (found,) = [each for each in self._of_kind(kind) if _key(each) == key]
        return found

    def _of_kind(self, kind: str) -> Iterator[Object]:
        return (each for each in self.objects if each["kind"] == kind)

    def _delete(self, kind: str, key: str, *, again: bool) -> None:
        found = self._named(kind, key)
        if again:
            found["status"] = {}
        else:
            self.objects.remove(found)

    def _create_again(self, immutable: str) -> None:
        """An object is edited in its manifest. With a pod, the claims that were made for it are deleted as well."""
        pod = re.search(r"delete the template and pod (\S+), and create both again", immutable) or re.search(
            r"the spec of pod (\S+) is immutable: delete the pod and create it again", immutable
        )
        assert pod or not immutable or immutable.endswith("delete the claim and create it again")
        if pod:
            found = self._named("Pod", pod[1])
            found["status"] = {}
            owners = {id(o): [r["uid"] for r in o["metadata"].get("ownerReferences", ())] for o in self.objects}
            self.objects = [each for each in self.objects if found["metadata"]["uid"] not in owners[id(each)]]

    def _edit(self, written: Object, place: list[str], order: str) -> None:
        match written["kind"], place:
            case "Node", ["status.declaredFeatures"]:
                added = order.removeprefix("its kubelet adds ").removesuffix(", with this feature gate on")
                written.setdefault("status", {}).setdefault("declaredFeatures", []).append(added)
            case "Pod", [where, "resources"]:
                (container,) = [c for c in written["spec"]["containers"] if f"container {c['name']}" == where]
                for amounts in container["resources"].values():
                    amounts.update(yaml.safe_load(order.removeprefix("write ")))
            case "DeviceClass", [*where]:
                _edit_fields(written["spec"], where, order)
            case kind, [where, *more]:
                devices = (written["spec"]["spec"] if kind == "ResourceClaimTemplate" else written["spec"])["devices"]
                if where.startswith("request "):
                    _edit_fields(_request(devices, where.removeprefix("request ")), more, order)
                else:
                    number = int(where.removeprefix("constraints[").removesuffix("]"))
                    new = [] if order == "remove it" else [yaml.safe_load(order.removeprefix("write "))]
                    devices["constraints"][number : number + 1] = [
                        devices["constraints"][number] | each for each in new
                    ]

    def _correct_pool(self, pool: str, orders: Sequence[str]) -> None:
        """Be the driver of a pool."""
        slices = [
            s for s in self._of_kind("ResourceSlice") if f"{s['spec']['driver']}/{s['spec']['pool']['name']}" == pool
        ]
        newest = max(each["spec"]["pool"]["generation"] for each in slices)
        slices = sorted((s for s in slices if s["spec"]["pool"]["generation"] == newest), key=_key)
        for order in orders:
            devices = [device for each in slices for device in each["spec"].get("devices", ())]
            if found := re.search(r"write resourceSliceCount: (\d+)$", order):
                for each in slices:
                    each["spec"]["pool"]["resourceSliceCount"] = int(found[1])
            elif found := re.fullmatch(r"rename device number (\d+) with the name (\S+) to (\S+)", order):
                [device for device in devices if device["name"] == found[2]][1]["name"] = found[3]
            elif found := re.fullmatch(r"in device (\S+), write counterSet: (\S+) instead of (\S+)", order):
                for use in _uses(devices, found[1]):
                    use["counterSet"] = found[2] if use["counterSet"] == found[3] else use["counterSet"]
            elif found := re.fullmatch(r"in device (\S+), write counter (\S+) instead of (\S+)", order):
                for use in _uses(devices, found[1]):
                    use["counters"] = {found[2] if n == found[3] else n: v for n, v in use["counters"].items()}
            else:
                sets = order.removeprefix("publish sharedCounters in one more slice only: ")
                slices.append(self._publish(slices, yaml.safe_load(sets)))

    def _publish(self, slices: Sequence[Object], sets: Mapping[str, Mapping[str, object]]) -> Object:
        """Publish the counter sets in a slice of their own."""
        for each in slices:
            if each["spec"].pop("sharedCounters", None):
                each["spec"].setdefault("devices", [])
        counters = [
            {"name": name, "counters": {counter: {"value": str(amount)} for counter, amount in of_set.items()}}
            for name, of_set in sets.items()
        ]
        spec = deepcopy({name: value for name, value in slices[0]["spec"].items() if name != "devices"})
        added = api_object("ResourceSlice", "all-counters", spec=spec | {"sharedCounters": counters})
        self.objects.append(added)
        return added


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _uses(devices: Sequence[Object], name: str) -> list[Object]:
    return [use for device in devices if device["name"] == name for use in device["consumesCounters"]]


def _request(devices: Object, label: str) -> Object:
    name, _, alternative = label.partition("/")
    (found,) = [each for each in devices["requests"] if each["name"] == name]
    return (
        next(each for each in found["firstAvailable"] if each["name"] == alternative)
        if alternative
        else found["exactly"]
    )


def _edit_fields(fields: Object, place: Sequence[str], order: str) -> None:
    """Edit a request or a class."""
    match place:
        case []:
            for part in order.removeprefix("write ").split(", "):
                fields.update(yaml.safe_load(part))
        case ["tolerations"]:
            fields.setdefault("tolerations", []).append(yaml.safe_load(order.removeprefix("add ")))
        case ["capacity.requests"]:
            _edit_capacity(fields.setdefault("capacity", {}).setdefault("requests", {}), order)
        case [selector]:
            cel = fields["selectors"][int(selector.removeprefix("selector "))]["cel"]
            cel["expression"] = _edited(cel["expression"], order)


def _edit_capacity(requests: dict[str, Any], order: str) -> None:
    if order.startswith("remove "):
        del requests[order.removeprefix("remove ")]
    elif " instead of " in order:
        new, old = order.removeprefix("write ").split(" instead of ")
        requests[new] = requests.pop(old)
    else:
        requests.update(yaml.safe_load(order.removeprefix("write ")))


def _edited(expression: str, orders: str) -> str:
    """A selector after the orders for it. A removed condition becomes ``true``, so that later orders find theirs."""
    if orders == "remove it":
        return "true"
    if orders.startswith("remove "):
        orders = f"write true instead of {orders.removeprefix('remove ')}"
    if " instead of " not in orders:
        return orders.removeprefix("write ")
    for order in orders.split("; "):
        new, old = order.removeprefix("write ").split(" instead of ")
        conditions = conditions_of(expression)
        if old in conditions:
            expression = " && ".join(new if each == old else each for each in conditions)
        else:
            assert old in expression
            expression = re.sub(rf"{re.escape(old)}(?!\w)", new.replace("\\", r"\\"), expression)
    return expression
