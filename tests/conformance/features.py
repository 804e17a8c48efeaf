"""The features that meet in an allocator case."""

import json
from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

SPECIAL: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of the claim that a scheduler makes for extended resources."""

GATES: Final = (
    "AdminAccess",
    "CompatibilityGroups",
    "ConsumableCapacity",
    "DerivedAttributes",
    "DeviceBindingAndStatus",
    "DeviceTaints",
    "FractionalCapacityRange",
    "ListTypeAttributes",
    "OptionalNodeOperations",
    "PartitionableDevices",
    "PrioritizedList",
)
"""Names of the allocator's feature gates in cases."""

FEATURES: Final[Mapping[str, str]] = {
    "admin access": '"adminAccess": true',
    "all devices": '"allocationMode": "All"',
    "binding conditions": '"bindingConditions"',
    "claim configuration": '"config": [{',
    "compatibility groups": '"compatibilityGroups"',
    "consumable capacity": '"allowMultipleAllocations": true',
    "derived attributes": '"derivedAttributes"',
    "device status": '"status": {"devices"',
    "distinctAttribute": '"distinctAttribute"',
    "extended resources": f'"{SPECIAL}"',
    "held devices": '"allocatedDevices": [{',
    "list attributes": '"strings"',
    "lists of other types": '"versions"',
    "matchAttribute": '"matchAttribute"',
    "node operations": '"skipNodeOperations"',
    "node selectors": '"nodeSelectorTerms"',
    "per-device nodes": '"perDeviceNodeSelection": true',
    "prioritized list": '"firstAvailable"',
    "request policy": '"requestPolicy"',
    "requested capacity": '"capacity": {"requests"',
    "selectors": '"selectors": [{',
    "shared counters": '"consumesCounters"',
    "shares": '"aggregatedCapacity": [{',
    "taints": '"taints"',
    "tolerations": '"tolerations"',
    "two claims": '"name": "claim-1"',
    "two generations": '"generation": 1',
    **{f"{gate} off": f'"{gate}": false' for gate in GATES},
}
"""Features of the allocator, and the text by which the JSON of a case shows each. A gate that is off counts as one."""


def features_of(case: Json) -> set[str]:
    """The features that meet in a case."""
    text = json.dumps(case)
    return {name for name, sign in FEATURES.items() if sign in text}
