"""Random small clusters that reach every default filter of kube-scheduler: nodes, pods on them, and pods that wait.

The same cluster is read by the model and, through an API server, by a real kube-scheduler. All objects are what an API
server accepts. A cluster is made from its seed alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from extender.kube.api import RawObject

ZONE: Final = "zone"
HOST: Final = "kubernetes.io/hostname"
PLUGIN: Final = "example.com/gadget"
"""An extended resource that each node offers."""

_APPS: Final = ("web", "db", "job")
_TEAMS: Final = ("red", "blue")
_TAINTS: Final = (("dedicated", "batch"), ("dedicated", "web"), ("old", ""))
_UNITS: Final = (("cpu", "{}"), ("memory", "{}Gi"), ("ephemeral-storage", "{}Gi"), (PLUGIN, "{}"))


@dataclass(frozen=True, slots=True)
class FilterWorld:
    """A cluster.

    Attributes:
        namespaces, nodes, placed: objects; the pods among them have a node.
        waiting: pods without a node.
    """

    namespaces: Sequence[RawObject]
    nodes: Sequence[RawObject]
    placed: Sequence[RawObject]
    waiting: Sequence[RawObject]

    @property
    def objects(self) -> tuple[RawObject, ...]:
        """All objects, those first that others need."""
        return (*self.namespaces, *self.nodes, *self.placed, *self.waiting)


def filter_world(seed: int, prefix: str = "w", scheduler: str = "default-scheduler") -> FilterWorld:
    """The cluster of a seed.

    Args:
        seed: any number.
        prefix: of all names, so that clusters do not meet on one API server.
        scheduler: that the waiting pods ask for.
    """
    return _Maker(Random(seed), prefix, scheduler).world()


class _Maker:
    def __init__(self, random: Random, prefix: str, scheduler: str) -> None:
        self._random = random
        self._prefix = prefix
        self._scheduler = scheduler
        self._spaces = [f"{prefix}-{team}" for team in _TEAMS]
        self._ports: list[int] = []
        """Those that no container of the pod takes yet: an API server refuses a port that two containers take."""

    def world(self) -> FilterWorld:
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}}
            for name, team in zip(self._spaces, _TEAMS, strict=True)
        ]
        nodes = [self._node(f"{self._prefix}-{number}") for number in range(self._random.randint(2, 6))]
        names = [node["metadata"]["name"] for node in nodes]
        placed = [self._pod(f"placed-{number}", names) for number in range(self._random.randint(0, 9))]
        for pod in placed:
            pod["spec"]["nodeName"] = self._random.choice(names)
        waiting = [self._pod(f"waiting-{number}", names) for number in range(4)]
        for pod in waiting:
            pod["spec"]["schedulerName"] = self._scheduler
        return FilterWorld(namespaces, nodes, placed, waiting)

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    # --- nodes ----------------------------------------------------------------------------------------------

    def _node(self, name: str) -> RawObject:
        labels = {HOST: name} if self._chance(90) else {}
        labels |= {ZONE: self._random.choice("abc")} if self._chance(80) else {}
        labels |= {"disk": self._random.choice(("ssd", "hdd"))} if self._chance(50) else {}
        spec: dict[str, Any] = {}
        taints = [self._taint() for _ in range(self._random.choice((0, 0, 0, 0, 0, 1, 2)))]
        if self._chance(6):
            spec["unschedulable"] = True
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if taints:
            spec["taints"] = list({(each["key"], each["effect"]): each for each in taints}.values())
        offered = {name: unit.format(self._random.randint(3, 9)) for name, unit in _UNITS}
        offered["pods"] = str(self._random.choice((2, 3, 110)))
        if self._chance(30):
            offered["hugepages-2Mi"] = f"{self._random.randint(1, 4) * 2}Mi"
        status = {"capacity": offered, "allocatable": offered}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec} | {
            "status": status
        }

    def _taint(self) -> dict[str, str]:
        key, value = self._random.choice(_TAINTS)
        effect = self._random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        return {"key": key, "effect": effect} | ({"value": value} if value else {})

    # --- pods -----------------------------------------------------------------------------------------------

    def _pod(self, name: str, nodes: Sequence[str]) -> RawObject:
        labels = {"app": self._random.choice(_APPS)} if self._chance(85) else {}
        labels |= {"version": self._random.choice("12")} if self._chance(60) else {}
        self._ports = self._random.sample((80, 443, 8080), 3)
        containers = [self._container(f"c{number}") for number in range(self._random.choice((1, 1, 2)))]
        spec: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": 0}
        if self._chance(25):
            init = self._container("init")
            spec["initContainers"] = [init | ({"restartPolicy": "Always"} if self._chance(50) else {})]
        if self._chance(12):
            whole = {"cpu": "6", "memory": "7Gi"}
            spec["resources"] = {"requests": {"cpu": self._random.choice(("3", "5")), "memory": "3Gi"}, "limits": whole}
            for each in (*containers, *spec.get("initContainers", ())):
                each["resources"] = {"requests": {"cpu": "1"}}
        self._select(spec, nodes)
        self._near(spec)
        if self._chance(30):
            spec["topologySpreadConstraints"] = self._spread()
        namespace = self._random.choice(self._spaces)
        metadata = {"name": f"{self._prefix}-{name}", "namespace": namespace, "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _container(self, name: str) -> dict[str, Any]:
        requests = {kind: unit.format(self._random.randint(1, 2)) for kind, unit in _UNITS if self._chance(25)}
        resources: dict[str, Any] = {"requests": requests}
        limits = {PLUGIN: requests[PLUGIN]} if PLUGIN in requests else {}
        if self._chance(8):
            limits |= {"hugepages-2Mi": f"{self._random.randint(1, 2) * 2}Mi", "memory": "1Gi", "cpu": "1"}
            requests |= {"memory": "1Gi", "cpu": "1", "hugepages-2Mi": limits["hugepages-2Mi"]}
        elif self._chance(10):
            requests.pop("cpu", None)
            limits["cpu"] = "1500m"
        if limits:
            resources["limits"] = limits
        container: dict[str, Any] = {"name": name, "image": "image", "resources": resources}
        if self._chance(20):
            container["ports"] = [self._port()]
        return container

    def _port(self) -> dict[str, Any]:
        number = self._ports.pop()
        port: dict[str, Any] = {"containerPort": number}
        if self._chance(85):
            port["hostPort"] = number
        if self._chance(35):
            port["protocol"] = self._random.choice(("TCP", "UDP"))
        if self._chance(35) and "hostPort" in port:
            port["hostIP"] = self._random.choice(("0.0.0.0", "10.0.0.1", "10.0.0.2"))
        return port

    def _select(self, spec: dict[str, Any], nodes: Sequence[str]) -> None:
        if self._chance(8):
            spec["nodeSelector"] = {"disk": self._random.choice(("ssd", "hdd"))}
        if self._chance(15):
            spec.setdefault("affinity", {})["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [self._term(nodes)]}}
        if self._chance(35):
            spec["tolerations"] = [self._toleration() for _ in range(self._random.choice((1, 2)))]

    def _term(self, nodes: Sequence[str]) -> dict[str, Any]:
        if self._chance(15):
            return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._random.choice(nodes)]}]}
        operator = self._random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = self._random.sample("abc", 2) if operator in {"In", "NotIn"} else None
        return {"matchExpressions": [_expression(ZONE, operator, values)]}

    def _toleration(self) -> dict[str, str]:
        if self._chance(15):
            return {"operator": "Exists"}
        key, value = self._random.choice((*_TAINTS, ("node.kubernetes.io/unschedulable", "")))
        equal = {"key": key, "operator": "Equal", "value": value}
        toleration = equal if value and self._chance(60) else {"key": key, "operator": "Exists"}
        return toleration | ({"effect": self._random.choice(("NoSchedule", "NoExecute"))} if self._chance(50) else {})

    def _near(self, spec: dict[str, Any]) -> None:
        for kind, percent in (("podAffinity", 18), ("podAntiAffinity", 22)):
            if self._chance(percent):
                terms = [self._pod_term() for _ in range(self._random.choice((1, 1, 2)))]
                spec.setdefault("affinity", {})[kind] = {_REQUIRED: terms}

    def _pod_term(self) -> dict[str, Any]:
        term: dict[str, Any] = {"topologyKey": self._random.choice((ZONE, HOST))}
        if self._chance(95):
            term["labelSelector"] = self._selector()
        match self._random.randrange(6):
            case 0:
                term["namespaces"] = self._random.sample(self._spaces, self._random.choice((1, 2)))
            case 1:
                term["namespaceSelector"] = {}
            case 2:
                term["namespaceSelector"] = {"matchLabels": {"team": self._random.choice(_TEAMS)}}
        if "labelSelector" in term and self._chance(20):
            term[self._random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
        return term

    def _selector(self) -> dict[str, Any]:
        if self._chance(10):
            return {}
        if self._chance(60):
            return {"matchLabels": {"app": self._random.choice(_APPS)}}
        operator = self._random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = self._random.sample(_APPS, 2) if operator in {"In", "NotIn"} else None
        return {"matchExpressions": [_expression("app", operator, values)]}

    def _spread(self) -> list[dict[str, Any]]:
        return [self._constraint(key) for key in self._random.sample((ZONE, HOST), self._random.choice((1, 1, 2)))]

    def _constraint(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = {"topologyKey": key, "maxSkew": self._random.choice((1, 1, 2))}
        found["whenUnsatisfiable"] = "DoNotSchedule" if self._chance(85) else "ScheduleAnyway"
        if self._chance(95):
            found["labelSelector"] = self._selector()
        if self._chance(30) and found["whenUnsatisfiable"] == "DoNotSchedule":
            found["minDomains"] = self._random.randint(1, 4)
        if self._chance(30):
            found["nodeAffinityPolicy"] = self._random.choice(("Honor", "Ignore"))
        if self._chance(40):
            found["nodeTaintsPolicy"] = self._random.choice(("Honor", "Ignore"))
        if self._chance(20) and found.get("labelSelector"):
            found["matchLabelKeys"] = ["version"]
        return found


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _expression(key: str, operator: str, values: Sequence[str] | None) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({} if values is None else {"values": list(values)})
