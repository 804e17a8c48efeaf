"""The messages of Cluster Autoscaler's expander, and Kubernetes' objects in them (`extender.tools.protobuf`).

Sources: ``k8s.io/api/core/v1/generated.proto`` and ``k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`` of
Kubernetes 1.36; ``expander/grpcplugin/protos/expander.proto`` of Cluster Autoscaler. Its releases up to 1.34.0 have the
fields 2 and 4, the later ones the fields 3 and 5.
"""

from typing import Final

from extender.grpc.field_counts import FieldCounts
from extender.tools.protobuf import Declarations, Messages

_AMOUNTS: Final = "{Quantity}"

MESSAGES: Final[Declarations] = {
    # --- grpcplugin -----------------------------------------------------------------------------------------
    "BestOptionsRequest": {1: "options [Option]", 2: "nodeMap {bytes}", 3: "nodeBytesMap {bytes}"},
    "BestOptionsResponse": {1: "options [Option]"},
    "Option": {1: "nodeGroupId string", 2: "nodeCount int", 3: "debug string", 4: "pod [bytes]", 5: "podBytes [bytes]"},
    # --- k8s.io/apimachinery --------------------------------------------------------------------------------
    "ObjectMeta": {
        1: "name string",
        3: "namespace string",
        5: "uid string",
        6: "resourceVersion string",
        8: "creationTimestamp Time",
        9: "deletionTimestamp Time",
        11: "labels {string}",
        12: "annotations {string}",
        13: "ownerReferences [OwnerReference]",
    },
    "OwnerReference": {
        1: "kind string",
        3: "name string",
        4: "uid string",
        5: "apiVersion string",
        6: "controller bool",
    },
    "Quantity": {1: "string string"},
    "Time": {1: "seconds int", 2: "nanos int"},
    # --- Pod ------------------------------------------------------------------------------------------------
    "Pod": {1: "metadata ObjectMeta", 2: "spec PodSpec", 3: "status PodStatus"},
    "PodSpec": {
        1: "volumes [Volume]",
        2: "containers [Container]",
        7: "nodeSelector {string}",
        10: "nodeName string",
        18: "affinity Affinity",
        19: "schedulerName string",
        20: "initContainers [Container]",
        22: "tolerations [Toleration]",
        25: "priority int",
        31: "preemptionPolicy string",
        32: f"overhead {_AMOUNTS}",
        33: "topologySpreadConstraints [TopologySpreadConstraint]",
        38: "schedulingGates [Named]",
        39: "resourceClaims [PodResourceClaim]",
        40: "resources ResourceRequirements",
    },
    "PodStatus": {
        1: "phase string",
        2: "conditions [PodCondition]",
        7: "startTime Time",
        11: "nominatedNodeName string",
        15: "resourceClaimStatuses [PodResourceClaimStatus]",
        18: "extendedResourceClaimStatus PodExtendedResourceClaimStatus",
    },
    "PodCondition": {
        1: "type string",
        2: "status string",
        4: "lastTransitionTime Time",
        5: "reason string",
        6: "message string",
    },
    "Container": {
        1: "name string",
        6: "ports [ContainerPort]",
        8: "resources ResourceRequirements",
        24: "restartPolicy string",
    },
    "ContainerPort": {2: "hostPort int", 3: "containerPort int", 4: "protocol string"},
    "ResourceRequirements": {1: f"limits {_AMOUNTS}", 2: f"requests {_AMOUNTS}", 3: "claims [ResourceClaim]"},
    "ResourceClaim": {1: "name string", 2: "request string"},
    "PodResourceClaim": {1: "name string", 3: "resourceClaimName string", 4: "resourceClaimTemplateName string"},
    "PodResourceClaimStatus": {1: "name string", 2: "resourceClaimName string"},
    "PodExtendedResourceClaimStatus": {
        1: "requestMappings [ContainerExtendedResourceRequest]",
        2: "resourceClaimName string",
    },
    "ContainerExtendedResourceRequest": {1: "containerName string", 2: "resourceName string", 3: "requestName string"},
    "Volume": {1: "name string", 2: "volumeSource VolumeSource"},
    "VolumeSource": {10: "persistentVolumeClaim Present", 29: "ephemeral Present"},
    "TopologySpreadConstraint": {1: "maxSkew int", 2: "topologyKey string"},
    "Affinity": {1: "nodeAffinity NodeAffinity", 2: "podAffinity PodAffinity", 3: "podAntiAffinity PodAffinity"},
    "NodeAffinity": {1: "requiredDuringSchedulingIgnoredDuringExecution NodeSelector"},
    "PodAffinity": {
        1: "requiredDuringSchedulingIgnoredDuringExecution [Present]",
        2: "preferredDuringSchedulingIgnoredDuringExecution [Present]",
    },
    "NodeSelector": {1: "nodeSelectorTerms [NodeSelectorTerm]"},
    "NodeSelectorTerm": {
        1: "matchExpressions [NodeSelectorRequirement]",
        2: "matchFields [NodeSelectorRequirement]",
    },
    "NodeSelectorRequirement": {1: "key string", 2: "operator string", 3: "values [string]"},
    "Toleration": {
        1: "key string",
        2: "operator string",
        3: "value string",
        4: "effect string",
        5: "tolerationSeconds int",
    },
    "Named": {1: "name string"},
    "Present": {},
    # --- Node -----------------------------------------------------------------------------------------------
    "Node": {1: "metadata ObjectMeta", 2: "spec NodeSpec", 3: "status NodeStatus"},
    "NodeSpec": {3: "providerID string", 4: "unschedulable bool", 5: "taints [Taint]"},
    "Taint": {1: "key string", 2: "value string", 3: "effect string"},
    "NodeStatus": {1: f"capacity {_AMOUNTS}", 2: f"allocatable {_AMOUNTS}", 14: "declaredFeatures [string]"},
}

counts: Final = FieldCounts(MESSAGES)
_declared: Final = Messages(MESSAGES)
new, read = _declared.new, _declared.read
