"""Nodes for which a ResourceQuota has refused a pod's special claim: for how long, and for how many pods."""

from extender.cluster.objects.pods import Pod
from extender.framework.passed_over_nodes import FIRST_PAUSE, MOST_NODES, MOST_PAUSE, MOST_PODS, OverQuotaNodes


def pod_of(namespace: str, name: str) -> Pod:
    return Pod(namespace, name, f"uid-{namespace}-{name}")


def test_a_node_is_passed_over_for_twice_as_long_after_each_refusal() -> None:
    now, pod, pauses = 0.0, pod_of("ns", "p"), list[float]()
    nodes = OverQuotaNodes(lambda: now)
    for _ in range(8):
        nodes.note(pod, "n")
        began = now
        while nodes.among(pod, ["n", "m"]) == {"n"}:
            now += 1.0
        pauses.append(now - began)
    assert pauses[:2] == [FIRST_PAUSE, 2 * FIRST_PAUSE]
    assert pauses[-2:] == [MOST_PAUSE, MOST_PAUSE]


def test_a_namespace_with_many_pods_makes_no_other_forget() -> None:
    nodes, pod = OverQuotaNodes(lambda: 0.0), pod_of("ns", "p")
    nodes.note(pod, "n")
    for number in range(2 * MOST_PODS):
        nodes.note(pod_of("many", f"p{number}"), "n")
    assert nodes.among(pod, ["n"]) == {"n"}
    assert not nodes.among(pod_of("many", "p0"), ["n"])


def test_the_latest_nodes_of_a_pod_are_remembered() -> None:
    nodes, pod = OverQuotaNodes(lambda: 0.0), pod_of("ns", "p")
    names = [f"n{number}" for number in range(MOST_NODES + 1)]
    for name in names:
        nodes.note(pod, name)
    assert nodes.among(pod, names) == set(names[1:])
