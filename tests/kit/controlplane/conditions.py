"""What a driver says of a device that a claim has got (KEP-4817), such as that it can be used now (KEP-5007)."""

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS
from tests.kit.controlplane.client import Client


async def report_condition(client: Client, claim: ObjectKey, condition: str) -> None:
    """Say that a condition holds of each device of a claim.

    Args:
        condition: its type.
    """
    found = await client.get(CLAIMS, claim)
    results = found["status"]["allocation"]["devices"]["results"]
    said = {
        "type": condition,
        "status": "True",
        "reason": "Tried",
        "message": "said the driver",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    named = [{name: result[name] for name in ("driver", "pool", "device")} for result in results]
    devices = [{**each, "conditions": [said]} for each in named]
    await client.update_status(CLAIMS, found | {"status": found["status"] | {"devices": devices}})
