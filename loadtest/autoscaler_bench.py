"""What autoscalers' sessions cost on a large cluster: 5,000 nodes with 8 devices each.

``python -m loadtest.autoscaler_bench`` works in one thread, without HTTP. Times are medians of CPU seconds, so that
others on the machine don't count; a calibration tells how fast it is.
"""

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Final

import yaml

from allocator import Limits, Selectors
from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.readiness import DriverDaemonSets, Expectations
from extender.autoscaler.scale_up.estimate import estimate, expand
from extender.autoscaler.scale_up.plan import EXPANDERS, NodeGroup, PendingPod, parse_demand, parse_room
from extender.autoscaler.sessions import SessionLimits, Sessions
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs import start_session
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.objects.pods import parse_pod
from extender.faces.grpc.server import decode_options, encode_expansion
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No, Solver
from extender.kube.resources import CLASSES, NODES, RESOURCES, SLICES, TEMPLATES
from extender.planning.templates import Catalog, load_templates
from extender.plugins.table import PLUGINS
from extender.tools.intake import at_once
from tests.kit.objects import synthetic
from tests.kit.objects.parts import api_object, claim_spec, exactly
from tests.kit.protobuf import request
from tests.kit.servers.memory import memory_api

RawObject = dict[str, Any]

NODES_THERE: Final = 5000
SESSIONS: Final = 8
BOOKINGS: Final = 1000
PODS: Final = 1000
GROUPS: Final = 100
MOST_SHAPES: Final = 30
EXPANDED_PODS: Final = 100
EXPANDED_SHAPES: Final = 10
EXPANDED_GROUPS: Final = 20
ANY_DEVICE: Final = MOST_SHAPES
"""The shape of claims that all devices will do for."""

DRIVER: Final = "gpu.example.com"
GROUP: Final = "example.com/group"
PODS_PER_NODE: Final = 8
_MEGABYTE: Final = 1_000_000
_LOOPS: Final = 5_000_000


def cluster() -> ClusterState:
    """The nodes and their slices, a class, and claim templates of all shapes."""
    state = ClusterState()
    objects = {
        NODES: (synthetic.node(number, number + 1) for number in range(NODES_THERE)),
        SLICES: (synthetic.resource_slice(number, number + 1) for number in range(NODES_THERE)),
        CLASSES: [synthetic.device_class(0, 1)],
        TEMPLATES: [*map(_claim_template, range(MOST_SHAPES)), _claim_template(ANY_DEVICE, "true")],
    }
    for resource in RESOURCES.values():
        state.replace(resource, objects.get(resource, ()), NODES_THERE)
    return state


def autoscaler(state: ClusterState) -> Autoscaler:
    """The verbs, with a template for each of the groups."""
    text = yaml.safe_dump({"nodeTemplates": [_node_template(group) for group in range(GROUPS)]})
    ids = count()
    sessions = Sessions(SessionLimits(count=SESSIONS), clock=time.monotonic, new_id=lambda: str(next(ids)))
    solver = Solver(Selectors(), time.monotonic, lambda: str(next(ids)), PLUGINS, limits=Limits(seconds=60.0))
    decider = Decider(solver, state)
    catalog = Catalog(load_templates(text, file="bench"))
    return Autoscaler(state, decider, catalog, sessions, 60.0, _expectations, Negotiating({}, memory_api()))


async def _expectations() -> Expectations:
    return Expectations(DriverDaemonSets(), datetime.now(UTC), timedelta())


def starts(subject: Autoscaler) -> float:
    """Seconds to start a session: the median of many."""
    return statistics.median(_timed(lambda: start_session(InSession(subject))) for _ in range(100))


def memory(subject: Autoscaler) -> float:
    """Bytes that eight sessions take, each with 100 pods booked on nodes that do not exist."""
    booked(subject, _started(subject), 100)
    gc.collect()
    tracemalloc.start()
    for _ in range(SESSIONS):
        session = subject.sessions.find(start_session(InSession(subject)))
        session.world = booked(subject, session.world, 100)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken


def booked(subject: Autoscaler, world: World, number: int) -> World:
    """The world with this number of pods on nodes that do not exist, eight on each."""
    pods = [parse_pod(_pod(index, 0)) for index in range(number)]
    nodes = [parse_node_object(_node(index, 0)) for index in range(-(-number // PODS_PER_NODE))]
    for index, pod in enumerate(pods):
        node = nodes[index // PODS_PER_NODE]
        after = world.with_nodes((node,)).with_pod(pod, node, subject.solver)
        world = _world(after)
    return world


def bookings(subject: Autoscaler, number: int, runs: int) -> float:
    """Seconds to book this number of pods in one session."""
    return statistics.median(_timed(lambda: booked(subject, _started(subject), number)) for _ in range(runs))


def filters(subject: Autoscaler, runs: int) -> float:
    """Seconds for the next pod of a shape on all nodes of the cluster, in a session that has booked the one before."""
    world, names = _started(subject), list(subject.state.snapshot.nodes)
    times = []
    for number in range(runs + 1):
        pod = parse_pod(_pod(number, ANY_DEVICE))
        began = time.process_time()
        passed = world.filter(pod, names, subject.decider).passed
        times.append(time.process_time() - began)
        world = _world(world.with_pod(pod, world.snapshot.nodes[passed[0]], subject.solver))
    return statistics.median(times[1:])


def plans(subject: Autoscaler, shapes: int, runs: int) -> float:
    """Seconds for a plan for 1,000 pods of this number of shapes over 100 groups."""
    raw = [_pod(index, index % shapes) for index in range(PODS)]
    pods = [PendingPod(parse_pod(each), parse_demand(each)) for each in raw]
    groups = [NodeGroup(f"group-{index}", parse_room(_node(index, index)), limit=20) for index in range(GROUPS)]
    world = _started(subject)
    choose = EXPANDERS["least-waste"]
    plan = estimate(world, pods, groups, choose, subject.solver)
    if plan.failed:
        raise RuntimeError(plan.failed[0][1])
    return statistics.median(_timed(lambda: estimate(world, pods, groups, choose, subject.solver)) for _ in range(runs))


def expansions(subject: Autoscaler, machines: int, runs: int) -> float:
    """Seconds for an answer of the gRPC expander about 100 pods of 10 shapes and 20 groups, from bytes to bytes.

    The groups share a number of machine types, as groups of several zones do.
    """
    raw = [_pod(index, index % EXPANDED_SHAPES) for index in range(EXPANDED_PODS)]
    options = {f"group-{index}": (20, raw) for index in range(EXPANDED_GROUPS)}
    body = request(options, {f"group-{index}": _node(index, index % machines) for index in range(EXPANDED_GROUPS)})
    world = _started(subject)

    def answered() -> bytes:
        args = at_once(decode_options(body))
        return encode_expansion(expand(world, args.pods, args.groups, subject.solver), args)

    answered()
    return statistics.median(_timed(answered) for _ in range(runs))


def _world(after: World | No) -> World:
    if isinstance(after, World):
        return after
    raise RuntimeError(after.reason)


def _started(subject: Autoscaler) -> World:
    return subject.sessions.find(start_session(InSession(subject))).world


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _claim_template(shape: int, expression: str = "") -> RawObject:
    expression = expression or f"device.attributes['{DRIVER}'].size >= {shape % 4} && {shape} >= 0"
    spec = claim_spec([exactly("gpu", DRIVER, 1 + shape % 3, expression)])
    metadata = {"resourceVersion": "1"}
    name = f"shape-{shape}"
    return api_object("ResourceClaimTemplate", name, namespace="default", metadata=metadata, spec={"spec": spec})


def _node_template(group: int) -> RawObject:
    """Eight devices; no two groups have the same."""
    attributes = {"size": {"int": group % 8}, "group": {"int": group}, "host": {"string": "$(NODE_NAME)"}}
    devices = [
        {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": f"{group + 10}Gi"}}}
        for index in range(8)
    ]
    return {"name": f"group-{group}", "labels": {GROUP: str(group)}, "slices": [{"driver": DRIVER, "devices": devices}]}


def _node(number: int, group: int) -> RawObject:
    name = f"new-{number}"
    labels = {GROUP: str(group), "kubernetes.io/hostname": name}
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return api_object("Node", name, metadata={"labels": labels}, status={"allocatable": allocatable})


def _pod(number: int, shape: int) -> RawObject:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    claims = [{"name": "gpu", "resourceClaimTemplateName": f"shape-{shape}"}]
    spec = {"containers": containers, "resourceClaims": claims}
    return api_object("Pod", f"pod-{number}", namespace="default", metadata={"uid": f"uid-{number}"}, spec=spec)


def _calibrate() -> float:
    def loop() -> None:
        for _ in range(_LOOPS):
            pass

    return _timed(loop)


def _line(what: str, value: float, unit: str, goal: float) -> str:
    verdict = "ok" if value <= goal else "MISS"
    return f"{what:<58} {value:8.2f} {unit:<3} (goal {goal:g})  {verdict}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    before = _calibrate()
    subject = autoscaler(cluster())
    print(_line("start of a session, 5,000 nodes, 40,000 devices", starts(subject) * 1000, "ms", 5))
    print(_line("8 sessions with 100 booked pods each", memory(subject) / _MEGABYTE, "MB", 50))
    few, many = (bookings(subject, number, runs) for number in (BOOKINGS // 4, BOOKINGS))
    print(_line(f"{BOOKINGS:,} bookings, for each", many / BOOKINGS * 1000, "ms", few / (BOOKINGS // 4) * 1000 * 1.5))
    print(_line("filter on 5,000 nodes in a session, next pod of a shape", filters(subject, runs) * 1000, "ms", 200))
    for shapes in (1, 10, MOST_SHAPES):
        print(_line(f"plan for 1,000 pods of {shapes} shapes, 100 groups", plans(subject, shapes, runs), "s", 5))
    # The service spares what lives long from garbage collection, too.
    gc.freeze()
    for machines in (5, EXPANDED_GROUPS):
        what = f"expander, 100 pods of 10 shapes, 20 groups of {machines} machines"
        print(_line(what, expansions(subject, machines, runs) * 1000, "ms", 100))
    print(f"calibration: {before:.2f} s before, {_calibrate():.2f} s after, for {_LOOPS:,} empty loops")


if __name__ == "__main__":
    main()
