"""What the hostile tenant does, by name: each attack has a namespace of its own, and some have a DeviceQuota."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, PODS, SLICES, TEMPLATES
from tests.hostile.tenants.controller import REFUSING, SLOW
from tests.hostile.tenants.site import HIGH
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.scenario import by_template
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, claim, claim_spec, pod, request, requests, template
from tests.kit.objects.parts import api_object, exactly, slice_spec
from tests.kit.waiting import pause

_AT_ONCE: Final = 16
"""Calls at a time while an attack is prepared."""

_DEVICES: Final = 20_480
_DEVICES_OF_A_SLICE: Final = 128
_CHANGES_PER_SECOND: Final = 3.0
_PATCHES_PER_SECOND: Final = 10.0
_REFUSED_SECONDS: Final = 0.1
"""Before a refused attack goes on: what is measured is the attack, and not how fast calls can fail."""

_ESCAPED: Final = "<" * 250_000
"""An API server writes each of these characters with six bytes."""

_SLOW_SELECTOR: Final = "device.driver != '' && lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))"
_NOTHING: Final = "device.driver == 'nobody.example.com'"


@dataclass(slots=True)
class Attack:
    """One attack.

    Attributes:
        quota: devices that the DeviceQuota of its namespace allows; 0: it has none.
        prepare: makes what the attack needs.
        go_on: is done all the time afterwards; None: nothing.
        done: how often `go_on` has done its part.
        refused: how often it could not.
    """

    name: str
    quota: int
    prepare: "Callable[[Attack, Client], Awaitable[None]]"
    go_on: "Callable[[Attack, Client], Awaitable[None]] | None" = None
    done: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)

    @property
    def namespace(self) -> str:
        """The namespace of the attack."""
        return f"hostile-{self.name}"

    async def run(self, client: Client) -> None:
        """Go on until cancelled, whatever the API server refuses."""
        while self.go_on is not None:
            try:
                await self.go_on(self, client)
                self.done += 1
            except (ApiError, OutcomeUnknownError):
                self.refused += 1
                await pause(_REFUSED_SECONDS)


async def _make_pods(
    attack: Attack, client: Client, number: int, specs: Mapping[str, RawObject], named: str = "pod", **spec: Any
) -> None:
    """Make pods that use a claim of each template.

    Args:
        specs: of the claims, by the name of the template.
    """
    for name, wanted in specs.items():
        with suppress(ApiError):
            await client.create(TEMPLATES, template(attack.namespace, name, wanted))
    used = [{**by_template(name), "name": name} for name in specs]
    annotations = spec.pop("annotations", None)
    made = [pod(attack.namespace, f"{named}-{each}", claims=used, **spec) for each in range(number)]
    for each in made:
        if annotations:
            each["metadata"]["annotations"] = annotations
    await _all_of([client.create(PODS, each) for each in made])


async def _all_of(calls: Sequence[Awaitable[object]]) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Awaitable[object]) -> None:
        async with limit:
            with suppress(ApiError, OutcomeUnknownError):
                await call

    async with asyncio.TaskGroup() as tasks:
        for each in calls:
            tasks.create_task(one(each))


# --- 1 to 3: evictions -------------------------------------------------------------------------------------------


async def _preempt_beyond_quota(attack: Attack, client: Client) -> None:
    await _make_pods(attack, client, 40, {"gpu": claim_spec()}, priorityClassName=HIGH)


async def _keep_beyond_quota(attack: Attack, client: Client) -> None:
    annotations = {GROUP: "group", GROUP_SIZE: "2"}
    await _make_pods(attack, client, 2, {"gpu": claim_spec()}, "member", annotations=annotations)
    await _make_pods(attack, client, 10, {"gpu": claim_spec()}, "plain", priorityClassName=HIGH)
    annotations = {GROUP: "incomplete", GROUP_SIZE: "8"}
    wanted = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "31"}, "claims": [{"name": "gpu"}]}}]
    await _make_pods(
        attack,
        client,
        1,
        {"gpu": claim_spec()},
        "alone",
        annotations=annotations,
        priorityClassName=HIGH,
        containers=wanted,
    )


async def _evict_for_nothing(attack: Attack, client: Client) -> None:
    specs = {"gpu": claim_spec(), "license": requests(request("license", REFUSING))}
    await _make_pods(attack, client, 3, specs, priorityClassName=HIGH)


# --- 4 to 6: queues ----------------------------------------------------------------------------------------------


async def _wait_without_hope(attack: Attack, client: Client) -> None:
    spec = requests(exactly("gpu", DEVICE_CLASS, 1, _NOTHING))
    await _make_pods(attack, client, 1500, {"gpu": spec})


async def _hurry_claims(attack: Attack, client: Client) -> None:
    annotations = {"dra-extender.dev/allocation-mode": "Immediate", "dra-extender.dev/priority": "2147483647"}
    made = []
    for number in range(200):
        slow = f"{_SLOW_SELECTOR} && device.driver != '{number}' && {_NOTHING}"
        each = claim(attack.namespace, f"claim-{number}", requests(exactly("gpu", DEVICE_CLASS, 1, slow)))
        each["metadata"]["annotations"] = annotations
        made.append(each)
    await _all_of([client.create(CLAIMS, each) for each in made])


async def _ask_slowly(attack: Attack, client: Client) -> None:
    await _make_pods(attack, client, 40, {"license": requests(request("license", SLOW))})


# --- 7 and 8: objects that change --------------------------------------------------------------------------------


async def _publish_many(_: Attack, client: Client) -> None:
    await add_node(client, "restless")
    await _all_of([client.create(SLICES, _slice(number, 0)) for number in range(_DEVICES // _DEVICES_OF_A_SLICE)])


async def _change_pool(attack: Attack, client: Client) -> None:
    number = attack.done % (_DEVICES // _DEVICES_OF_A_SLICE)
    made = _slice(number, attack.done + 1)
    await client.patch(SLICES, ObjectKey("", made["metadata"]["name"]), {"spec": {"devices": made["spec"]["devices"]}})
    await pause(1 / _CHANGES_PER_SECOND)


def _slice(number: int, version: int) -> RawObject:
    first = number * _DEVICES_OF_A_SLICE
    devices: list[RawObject] = [
        {"name": f"gpu-{each}", "attributes": {"version": {"int": version}}}
        for each in range(first, first + _DEVICES_OF_A_SLICE)
    ]
    spec = slice_spec("restless", devices, slices=_DEVICES // _DEVICES_OF_A_SLICE, nodeName="restless")
    return api_object("ResourceSlice", f"restless-{number}", spec=spec)


async def _write_large_claims(attack: Attack, client: Client) -> None:
    # A spec with escaped characters could not be changed: an API server takes it for another one at each write.
    opaque = {"driver": "gpu.example.com", "parameters": {"text": "x" * 9_000}}
    spec = requests(request("gpu", DEVICE_CLASS), config=[{"opaque": opaque}] * 8)
    made = claim(attack.namespace, "large", spec)
    made["metadata"]["annotations"] = {"example.com/text": _ESCAPED}
    await client.create(CLAIMS, made)


async def _patch_large_claim(attack: Attack, client: Client) -> None:
    patch = {"metadata": {"labels": {"number": str(attack.done)}}}
    await client.patch(CLAIMS, ObjectKey(attack.namespace, "large"), patch)
    await pause(1 / _PATCHES_PER_SECOND)


def attacks() -> Sequence[Attack]:
    """All attacks."""
    return (
        Attack("preempts", 1, _preempt_beyond_quota),
        Attack("keeps", 2, _keep_beyond_quota),
        Attack("evicts", 1, _evict_for_nothing),
        Attack("waits", 0, _wait_without_hope),
        Attack("hurries", 0, _hurry_claims),
        Attack("asks", 0, _ask_slowly),
        Attack("publishes", 0, _publish_many, _change_pool),
        Attack("writes", 0, _write_large_claims, _patch_large_claim),
    )
