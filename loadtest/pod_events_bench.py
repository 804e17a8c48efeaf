"""What an event of a pod without devices costs, and what is kept of such a pod.

``python -m loadtest.pod_events_bench`` reads events of made-up pods as the service does. Figures are microseconds of
processor time for an event, the least of some rounds, and a ratio to decoding the same events.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from extender.cluster.cluster_state import ClusterState
from extender.kube.plain_pods import plain_pod_of_event
from tests.kit.measure import calibration
from tests.kit.objects import synthetic

_PODS: Final = 10_000
_ROUNDS: Final = 7


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=_PODS)
    pods = parser.parse_args().pods
    print(f"calibration: {calibration():.2f} s")
    added, changed, gone = _events("ADDED", pods), _events("MODIFIED", pods, cpu="2"), _events("DELETED", pods)
    decoding = _least(lambda: [None for line in added if orjson.loads(line) is None], pods)
    print(f"events of {len(added[0]):,} bytes, decoded {decoding:38.1f} us")
    print(f"kept of a pod {_kept(added):50.0f} bytes")
    reading = _least(lambda: [None for line in added if plain_pod_of_event(line) is None], pods)
    steps: Sequence[tuple[str, Sequence[bytes], Sequence[bytes]]] = (
        ("new", (), added),
        ("nothing that counts is different", added, added),
        ("another amount of CPU", added, changed),
        ("gone", added, gone),
    )
    print(f"only read {reading:54.1f} us  {reading / decoding:5.2f}x")
    for what, before, events in steps:
        found = min(_told(before, events) for _ in range(_ROUNDS)) / pods * 1e6
        print(f"{what:<55} {found:8.1f} us  {found / decoding:5.2f}x")


def _events(kind: str, pods: int, cpu: str = "1") -> list[bytes]:
    found = []
    for number in range(pods):
        pod = synthetic.pod(number, number + 1, claims=False)
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        found.append(orjson.dumps({"type": kind, "object": pod}))
    return found


def _least(work: Callable[[], object], pods: int) -> float:
    found = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found) / pods * 1e6


def _told(before: Sequence[bytes], events: Sequence[bytes]) -> float:
    """Seconds of processor time for events, after other events."""
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True)
    _tell(state, before)
    began = time.process_time()
    _tell(state, events)
    return time.process_time() - began


def _tell(state: ClusterState, events: Sequence[bytes]) -> None:
    for line in events:
        pod = plain_pod_of_event(line)
        if pod is None:
            raise RuntimeError("the pod needs devices")
        state.count_pod(pod)


def _kept(events: Sequence[bytes]) -> float:
    """Bytes for each pod."""
    tracemalloc.start()
    state = ClusterState(counts_cpu=True, cpu_of_all_pods=True, log_size=1)
    _tell(state, events)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(events)


if __name__ == "__main__":
    main()
