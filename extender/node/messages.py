"""The messages of plugins of the kubelet, and of our own plugins: CCI drivers. By the numbers of their fields.

Sources: ``k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto`` and ``k8s.io/kubelet/pkg/apis/dra/v1/api.proto`` of
Kubernetes 1.37, which are those of 1.34 and later; the text of KEP-3675.
"""

from typing import Final

from extender.tools.protobuf import Declarations, Messages

_ERROR: Final = "error string"

MESSAGES: Final[Declarations] = {
    # --- pluginregistration ---------------------------------------------------------------------------------
    "InfoRequest": {},
    "PluginInfo": {1: "type string", 2: "name string", 3: "endpoint string", 4: "supported_versions [string]"},
    "RegistrationStatus": {1: "plugin_registered bool", 2: _ERROR},
    "RegistrationStatusResponse": {},
    # --- k8s.io.kubelet.pkg.apis.dra.v1 ---------------------------------------------------------------------
    "NodePrepareResourcesRequest": {1: "claims [Claim]"},
    "NodePrepareResourcesResponse": {1: "claims {NodePrepareResourceResponse}"},
    "NodePrepareResourceResponse": {1: "devices [Device]", 2: _ERROR},
    "NodeUnprepareResourcesRequest": {1: "claims [Claim]"},
    "NodeUnprepareResourcesResponse": {1: "claims {NodeUnprepareResourceResponse}"},
    "NodeUnprepareResourceResponse": {1: _ERROR},
    "Claim": {1: "namespace string", 2: "uid string", 3: "name string"},
    "Device": {
        1: "request_names [string]",
        2: "pool_name string",
        3: "device_name string",
        4: "cdi_device_ids [string]",
        5: "share_id string",
    },
    # --- cci.v1alpha1 ---------------------------------------------------------------------------------------
    "AdmitRequest": {
        1: "namespace string",
        2: "claim_uid string",
        3: "claim_name string",
        4: "availableCpus string",
        5: "pod string",
        6: "container string",
        7: "resource_handle string",
    },
    "ResourceSet": {1: "cpuset string", 2: "exclusive bool"},
    "AdmitResponse": {1: "rSet ResourceSet", 2: "err string"},
    "AddResourceRequest": {1: "cgroup string", 2: "pod string", 3: "container string", 4: "container_id string"},
    "AddResourceResponse": {1: "err string"},
    "RemoveResourceRequest": {
        1: "namespace string",
        2: "claim_uid string",
        3: "claim_name string",
        4: "container_id string",
    },
    "RemoveResourceResponse": {1: "err string"},
}

_declared: Final = Messages(MESSAGES)
new, read = _declared.new, _declared.read
