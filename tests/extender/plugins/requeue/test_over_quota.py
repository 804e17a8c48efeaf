"""Pods whose claims a ResourceQuota has refused: for whom devices are kept, and when."""

from itertools import pairwise

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import SPECIAL
from extender.cluster.objects.pods import Pod
from extender.framework.passed_over_nodes import FIRST_PAUSE, MOST_PAUSE, MOST_PODS
from extender.kube.api import Event, EventType
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.requeue.over_quota import TURN_SECONDS, OverQuota
from tests.kit.clusters import Object, claim, parsed, pod, state_of

RESOURCE = "example.com/gpu"
NAMES = ("p", "q", "r")


def asks(name: str, namespace: str = "ns") -> Object:
    """A pod whose claim is made at bind, because it asks for an extended resource."""
    made = pod(name, resources={RESOURCE: "1"})
    metadata = made["metadata"] | {"namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return {**made, "metadata": metadata}


def of(name: str, namespace: str = "ns") -> Pod:
    return parsed(asks(name, namespace))


class Scene:
    """Refused pods, the cluster, and the time."""

    def __init__(self, *objects: Object) -> None:
        self.now = 0.0
        self.state: ClusterState = state_of(objects)
        self.pods = OverQuota(lambda: self.now)
        self._seen = self.state.snapshot

    def change(self, event: EventType, obj: Object) -> None:
        """An event comes, and the pods follow."""
        resource = PODS if obj["kind"] == "Pod" else CLAIMS
        self.state.apply(Event(event, resource, obj))
        before, self._seen = self._seen, self.state.snapshot
        self.pods.follow(self.state.since(before.version), before, self._seen)

    def refused(self, *pods: Pod) -> None:
        for each in pods:
            self.pods.note(each)

    def turns(self, *pods: Pod) -> list[str]:
        """The pods that have a turn now, if all of them ask."""
        return [str(each) for each in pods if self.pods.take_turn(each)]


def test_a_pod_waits_twice_as_long_after_each_refusal() -> None:
    scene, asked, waits = Scene(), of("p"), list[float]()
    for _ in range(8):
        scene.refused(asked)
        began = scene.now
        scene.now += TURN_SECONDS if waits else 0.0
        while not scene.turns(asked):
            scene.now += 1.0
        waits.append(scene.now - began)
    assert waits[0] == FIRST_PAUSE
    assert waits[-2:] == [MOST_PAUSE, MOST_PAUSE]
    assert all(one <= other for one, other in pairwise(waits))


def test_of_each_namespace_one_pod_at_a_time_has_a_turn() -> None:
    scene = Scene()
    pods = [of(name, namespace) for name in NAMES for namespace in ("a", "b")]
    scene.refused(*pods)
    scene.now += FIRST_PAUSE
    assert scene.turns(*pods) == ["a/p", "b/p"]
    scene.refused(of("p", "a"), of("p", "a"))
    scene.now += TURN_SECONDS - 1
    assert scene.turns(*pods) == []
    scene.now += 1
    assert scene.turns(*pods) == ["b/p", "a/q"]


def test_a_pod_that_was_never_refused_has_its_turn_among_those_that_were() -> None:
    """Otherwise, new pods could keep the devices that no refused pod may keep."""
    scene, fresh, plain = Scene(), of("q"), parsed(pod("plain", "c"))
    assert scene.turns(fresh, of("r")) == ["ns/q", "ns/r"]
    scene.refused(of("p"))
    assert scene.turns(plain, fresh, of("r"), of("p"), plain, of("q", "other")) == [
        *("ns/plain", "ns/q", "ns/plain", "other/q")
    ]


def test_the_next_pod_has_its_turn_as_soon_as_one_has_its_claim_or_its_node() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": of("q").uid, "controller": True}
    made = claim("q-c", metadata={"annotations": {SPECIAL: "true"}, "ownerReferences": [owner]})
    scene = Scene(*(asks(name) for name in NAMES))
    scene.refused(*map(of, NAMES))
    scene.now += FIRST_PAUSE
    assert scene.turns(*map(of, NAMES)) == ["ns/p"]
    scene.change(EventType.MODIFIED, {**asks("p"), "spec": {**asks("p")["spec"], "nodeName": "a"}})
    assert scene.turns(of("q"), of("r")) == ["ns/q"]
    scene.change(EventType.ADDED, made)
    assert scene.turns(of("r")) == ["ns/r"]
    assert len(scene.pods) == 1


def test_a_claim_that_is_gone_ends_the_pauses_of_its_namespace_and_not_its_turns() -> None:
    scene = Scene(*map(asks, NAMES), asks("p", "other"), claim("done"), claim("done-too"))
    scene.refused(*map(of, NAMES), of("p", "other"))
    scene.change(EventType.MODIFIED, claim("done", allocated=["a/gpu-0"]))
    assert scene.turns(*map(of, NAMES)) == []
    scene.change(EventType.DELETED, claim("done"))
    assert scene.turns(*map(of, NAMES), of("p", "other")) == ["ns/p"]
    scene.change(EventType.DELETED, claim("done-too"))
    assert scene.turns(*map(of, NAMES)) == []
    scene.now += TURN_SECONDS
    assert scene.turns(*map(of, NAMES)) == ["ns/p"]


def test_pods_that_are_gone_are_forgotten() -> None:
    scene = Scene(*map(asks, NAMES))
    scene.refused(*map(of, NAMES))
    scene.change(EventType.DELETED, asks("q"))
    assert len(scene.pods) == 2


def test_a_namespace_with_many_pods_makes_no_other_forget() -> None:
    scene = Scene()
    scene.refused(of("p"), *(of(f"p{number}", "many") for number in range(2 * MOST_PODS)))
    assert len(scene.pods) == MOST_PODS
    assert scene.turns(of("p")) == []
