"""What is explained over HTTP and on the command line: a pod whose devices another pod holds."""

from tests.kit.clusters import GPU, Object, claim, local_slice, node, pod

ALLOCATED: Object = {"finalizers": ["resource.kubernetes.io/delete-protection"]}
IN_USE = (
    GPU,
    *(each for name in ("a", "b") for each in (node(name), local_slice(name))),
    claim("c"),
    claim("taken", allocated=["a/gpu-0"], at="a", users=["somebody"], metadata=ALLOCATED),
    claim("taken-too", allocated=["b/gpu-0"], users=["somebody"], metadata=ALLOCATED),
    pod("p", "c"),
    pod("somebody", "taken", "taken-too", on="a"),
    pod("plain"),
)
