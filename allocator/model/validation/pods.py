"""Rules for what pods and the templates of workloads say about devices, other resources, and where they run.

Source: pkg/apis/core/validation, Kubernetes 1.37. The fields of pods are many: rules for those that are read are here.
"""

from collections.abc import Collection, Mapping
from typing import Final

from allocator.model import field_rules as rules
from allocator.model.quantity import Quantity
from allocator.model.validation.amounts import amounts, check_requests, of_container, of_pod
from allocator.model.validation.core import NODE_EFFECTS, label_selector
from allocator.model.validation.metadata import check_described, check_labels
from allocator.tools.fields import Fields, Problem
from allocator.tools.names import dns_label, dns_subdomain, label_key, label_value
from allocator.tools.printable import shown
from allocator.tools.spelling import did_you_mean, nearest

POD_SPECS: Final[Mapping[str, str]] = {
    "v1 Pod": "spec",
    "v1 ReplicationController": "spec.template.spec",
    "apps/v1 DaemonSet": "spec.template.spec",
    "apps/v1 Deployment": "spec.template.spec",
    "apps/v1 ReplicaSet": "spec.template.spec",
    "apps/v1 StatefulSet": "spec.template.spec",
    "batch/v1 Job": "spec.template.spec",
    "batch/v1 CronJob": "spec.jobTemplate.spec.template.spec",
}
"""Where the spec of a pod stands, by API version and kind."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_RESTARTS: Final = ("Always", "OnFailure", "Never")
_MAX_PORT: Final = 65535
_MAX_WEIGHT: Final = 100


def pod_problems(obj: Mapping[str, object]) -> tuple[Problem, ...]:
    """What an API server would refuse in the spec of a pod, as far as it is read.

    Args:
        obj: decoded JSON of a pod or a workload; other objects have no problem here.
    """
    path = POD_SPECS.get(f"{obj.get('apiVersion')} {obj.get('kind')}", "")
    if not path:
        return ()
    spec = around = Fields(obj, "", [])
    for name in path.split("."):
        around, spec = spec, spec.child(name)
    if path != "spec":
        check_described(around.child("metadata"))
    _check(spec)
    return tuple(spec.problems)


def _check(spec: Fields) -> None:
    """What containers use and ask for, and what says where the pod may run."""
    claims = spec.children("resourceClaims")
    names = [each.text("name") for each in claims]
    rules.unique(spec, "resourceClaims", names)
    for each in claims:
        rules.text(each, "name", dns_label)
        for source in ("resourceClaimName", "resourceClaimTemplateName"):
            rules.text(each, source, dns_subdomain, required=False)
    taken: set[tuple[object, ...]] = set()
    for kind in ("initContainers", "containers"):
        for container in spec.children(kind):
            rules.text(container, "name", dns_label)
            rules.one_of(container, "restartPolicy", _RESTARTS, required=False)
            _claims(container.child("resources"), names)
            check_requests(container.child("resources"), of_container)
            _ports(container, taken if kind == "containers" else set())
    containers = [*spec.children("initContainers"), *spec.children("containers")]
    rules.unique(spec, "containers", filter(None, (each.text("name") for each in containers)))
    check_requests(spec.child("resources"), of_pod)
    _whole_pod(spec)
    for gate in spec.children("schedulingGates"):
        rules.text(gate, "name", label_key)
    rules.unique(spec, "schedulingGates", (each.text("name") for each in spec.children("schedulingGates")))
    rules.one_of(spec, "restartPolicy", _RESTARTS, required=False)
    rules.one_of(spec, "preemptionPolicy", ("PreemptLowerPriority", "Never"), required=False)
    volumes = spec.children("volumes")
    rules.unique(spec, "volumes", filter(None, (each.text("name") for each in volumes)))
    for volume in volumes:
        rules.text(volume, "name", dns_label)
        if volume.has("persistentVolumeClaim"):
            rules.text(volume.child("persistentVolumeClaim"), "claimName", lambda _: "")
    check_labels(spec, "nodeSelector")
    _affinity(spec.child("affinity"))
    for toleration in spec.children("tolerations"):
        _toleration(toleration)
    _spread(spec)


def _claims(resources: Fields, claims: Collection[str]) -> None:
    """The claims that a container uses: each once, and whole or request by request."""
    seen: set[str] = set()
    for use in resources.children("claims"):
        name, request = use.text("name"), use.text("request")
        if name not in claims:
            use.problem(
                "name", f"{shown(name)} is not in the pod's resourceClaims{did_you_mean(nearest(name, claims))}"
            )
        key = f"{name}/{request}" if request else name
        if key in seen or name in seen or (not request and any(each.startswith(f"{name}/") for each in seen)):
            use.problem("name", f"{shown(name)} is there twice")
        seen.add(key)


def _whole_pod(spec: Fields) -> None:
    """The resources of the whole pod are enough for those of its containers."""
    pod = spec.child("resources")
    containers, before = spec.children("containers"), spec.children("initContainers")
    limits = _read(pod, "limits")
    for container in (*containers, *before):
        for name, limit in _read(container.child("resources"), "limits").items():
            if name in limits and limit > limits[name]:
                container.problem(f"resources.limits[{name}]", f"is more than the pod's limit of {limits[name]}")
    for name, request in _read(pod, "requests").items():
        together = peak = Quantity.from_int(0)
        for container in before:
            own = _request(container, name)
            peak = max(peak, together + own)
            together = together + own if container.text("restartPolicy") == "Always" else together
        for container in containers:
            together = together + _request(container, name)
        if max(peak, together) > request:
            pod.problem(f"requests[{name}]", f"is less than the requests of the containers, {max(peak, together)}")


def _request(container: Fields, name: str) -> Quantity:
    """What a container requests; its limit, if it has no request."""
    resources = container.child("resources")
    limits, requests = _read(resources, "limits"), _read(resources, "requests")
    return requests.get(name, limits.get(name, Quantity.from_int(0)))


def _read(resources: Fields, name: str) -> Mapping[str, Quantity]:
    """Amounts whose problems are told elsewhere."""
    return amounts(Fields(resources.data, "", []), name)


def _ports(container: Fields, taken: set[tuple[object, ...]]) -> None:
    """The ports of a container.

    Args:
        container: the container.
        taken: protocol, address and number of each port of the node that containers before it take.
    """
    ports = container.children("ports")
    rules.unique(container, "ports", filter(None, (each.text("name") for each in ports)))
    for port in ports:
        place = (port.text("protocol") or "TCP", port.text("hostIP"), port.integer("hostPort"))
        if port.integer("hostPort") and place in taken:
            port.problem("hostPort", f"{port.integer('hostPort')} is there twice")
        taken.add(place)
        for name, least in (("containerPort", 1), ("hostPort", 0)):
            if not least <= port.integer(name) <= _MAX_PORT:
                port.problem(name, f"{port.integer(name)} is not a port")
        rules.one_of(port, "protocol", ("TCP", "UDP", "SCTP"), required=False)


def _affinity(affinity: Fields) -> None:
    """Affinity to nodes and to other pods."""
    nodes = affinity.child("nodeAffinity")
    if nodes.has(_REQUIRED):
        rules.node_selector(nodes.child(_REQUIRED))
    for each in nodes.children(_PREFERRED):
        _weight(each)
        rules.node_selector_term(each.child("preference"))
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in affinity.child(kind).children(_REQUIRED):
            _pod_term(term)
        for each in affinity.child(kind).children(_PREFERRED):
            _weight(each)
            _pod_term(each.child("podAffinityTerm"))


def _weight(term: Fields) -> None:
    if not 1 <= term.integer("weight") <= _MAX_WEIGHT:
        term.problem("weight", f"is not a number from 1 to {_MAX_WEIGHT}")


def _pod_term(term: Fields) -> None:
    rules.text(term, "topologyKey", label_key)
    rules.texts(term, "namespaces", dns_label)
    label_selector(term.child("labelSelector"))
    label_selector(term.child("namespaceSelector"))


def _toleration(toleration: Fields) -> None:
    key, operator, effect = toleration.text("key"), toleration.text("operator"), toleration.text("effect")
    rules.text(toleration, "key", label_key, required=False)
    rules.one_of(toleration, "operator", ("Equal", "Exists"), required=False)
    rules.one_of(toleration, "effect", NODE_EFFECTS, required=False)
    if operator != "Exists":
        rules.text(toleration, "value", label_value, required=False)
        if not key:
            toleration.problem("operator", "is Exists if there is no key")
    elif toleration.text("value"):
        toleration.problem("value", "must be left out for Exists")
    if toleration.has("tolerationSeconds") and effect != "NoExecute":
        toleration.problem("effect", "is NoExecute if there are tolerationSeconds")


def _spread(spec: Fields) -> None:
    constraints = spec.children("topologySpreadConstraints")
    for each in constraints:
        if each.integer("maxSkew") < 1:
            each.problem("maxSkew", "is not a number of pods from 1 on")
        if each.has("minDomains") and each.integer("minDomains") < 1:
            each.problem("minDomains", "is not a number from 1 on")
        if each.has("minDomains") and each.text("whenUnsatisfiable") == "ScheduleAnyway":
            each.problem("minDomains", "needs whenUnsatisfiable: DoNotSchedule")
        rules.text(each, "topologyKey", label_key)
        rules.one_of(each, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            rules.one_of(each, name, ("Honor", "Ignore"), required=False)
        label_selector(each.child("labelSelector"))
    keys = ((each.text("topologyKey"), each.text("whenUnsatisfiable")) for each in constraints)
    rules.unique(spec, "topologySpreadConstraints", keys)
