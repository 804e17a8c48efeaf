"""What the policy fragmentation remembers is bounded, however many shapes there are.

``FRAGMENTATION_NODES`` sets the number of nodes; `make test-laws` takes 5,000.
"""

import gc
import os
import tracemalloc
from dataclasses import replace

from allocator import Features, parse_claim
from allocator.policies import Shape
from extender import Settings
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import SchedulingSettings
from extender.faces.assembly import make_solver
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.shapes import Shapes
from extender.framework.filter import filter_nodes
from extender.kube.resources import CLAIMS, CLASSES, NODES, SLICES
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, node, parsed, pod, request

SIZE = int(os.environ.get("FRAGMENTATION_NODES", "100"))
SHAPES = 200
BY_FRAGMENTATION = Settings(scheduling=SchedulingSettings(policy="fragmentation"))


def asked(number: int) -> Object:
    return request(count=1 + number % 4, selectors=[f'device.attributes["{DRIVER}"].model != "m{number}"'])


def cpu(number: int) -> int:
    """In thousandths of a core."""
    return 100 * number


def test_memory_stops_growing_long_before_all_shapes_were_decided() -> None:
    """64 signatures and 32 amounts of CPU are remembered. Nodes have 8 kinds of leftovers, and differ in their CPU."""
    names = [f"n{number}" for number in range(SIZE)]
    state = ClusterState(counts_cpu=True)
    state.replace(CLASSES, [GPU], 1)
    state.replace(NODES, [node(name, allocatable={"cpu": f"{8000 + n}m"}) for n, name in enumerate(names)], 1)
    model = {"model": {"string": "m"}}
    state.replace(SLICES, [local_slice(name, 1 + n % 8, attributes=model) for n, name in enumerate(names)], 1)
    claims = [claim(f"c{number}", asked(number)) for number in range(SHAPES)]
    state.replace(CLAIMS, claims, 1)
    weights = {Shape(parse_claim(each).spec.requests, cpu(number)): 1.0 for number, each in enumerate(claims)}
    found = make_solver(BY_FRAGMENTATION)
    by = replace(found, shapes=Shapes(found.selectors, Features(), weights))
    decider = Decider(by, state)
    decider.follow(state.snapshot)
    sizes = []
    tracemalloc.start()
    try:
        for number in range(SHAPES):
            asking = parsed(pod(f"p{number}", f"c{number}", resources={"cpu": f"{cpu(number)}m"}))
            assert filter_nodes(asking, names, state.snapshot, by, decider=decider).passed
            if number % (SHAPES // 4) == SHAPES // 4 - 1:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[3] < 1.15 * sizes[1], sizes
