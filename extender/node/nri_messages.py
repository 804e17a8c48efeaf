"""The messages of the Node Resource Interface of container runtimes, by the numbers of the fields that are used.

Sources: ``pkg/api/api.proto`` of github.com/containerd/nri v0.12; ``request.proto`` of github.com/containerd/ttrpc
v1.2; ``google/rpc/status.proto``.
"""

from typing import Final

from extender.tools.protobuf import Declarations, Messages

MESSAGES: Final[Declarations] = {
    # --- ttrpc ----------------------------------------------------------------------------------------------
    "Request": {1: "service string", 2: "method string", 3: "payload bytes", 4: "timeout_nano int"},
    "Response": {1: "status Status", 2: "payload bytes"},
    "Status": {1: "code int", 2: "message string"},
    # --- nri.pkg.api.v1alpha1 -------------------------------------------------------------------------------
    "RegisterPluginRequest": {1: "plugin_name string", 2: "plugin_idx string", 3: "NRI_version string"},
    # Requests about one container have the same fields, whatever they are called.
    "UpdateContainersRequest": {1: "update [ContainerUpdate]"},
    "UpdateContainersResponse": {1: "failed [ContainerUpdate]"},
    "ConfigureRequest": {2: "runtime_name string", 3: "runtime_version string"},
    "ConfigureResponse": {2: "events int"},
    "SynchronizeRequest": {1: "pods [PodSandbox]", 2: "containers [Container]", 3: "more bool"},
    "SynchronizeResponse": {1: "update [ContainerUpdate]", 2: "more bool"},
    "ContainerRequest": {1: "pod PodSandbox", 2: "container Container"},
    "CreateContainerResponse": {1: "adjust ContainerAdjustment"},
    "Empty": {},
    "PodSandbox": {
        1: "id string",
        2: "name string",
        3: "uid string",
        4: "namespace string",
        8: "linux LinuxPodSandbox",
    },
    "LinuxPodSandbox": {3: "cgroup_parent string"},
    "Container": {
        1: "id string",
        2: "pod_sandbox_id string",
        3: "name string",
        4: "state int",
        8: "env [string]",
        11: "linux LinuxContainer",
        20: "CDI_devices [CDIDevice]",
    },
    "CDIDevice": {1: "name string"},
    "LinuxContainer": {3: "resources LinuxResources"},
    "LinuxResources": {2: "cpu LinuxCPU"},
    "LinuxCPU": {1: "shares OptionalUInt64", 6: "cpus string", 7: "mems string"},
    "OptionalUInt64": {1: "value int"},
    "ContainerAdjustment": {6: "linux LinuxContainerAdjustment"},
    "LinuxContainerAdjustment": {2: "resources LinuxResources"},
    "ContainerUpdate": {1: "container_id string", 2: "linux LinuxContainerUpdate", 3: "ignore_failure bool"},
    "LinuxContainerUpdate": {1: "resources LinuxResources"},
}

_declared: Final = Messages(MESSAGES)
new, read = _declared.new, _declared.read
