"""Random clusters for the laws of device preemption: pods that hold devices, and pods that wait for some."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from tests.kit.clusters import DRIVER, GPU, Object, budget, claim, local_slice, network_slice, node, pod, request
from tests.kit.objects.quotas import limited, quota

NODES: Final = ("a", "b")
LARGE: Final = f"device.attributes['{DRIVER}'].large"
FOREIGN: Final = {"apiGroup": "example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}


@dataclass(frozen=True)
class Holder:
    """A pod that runs.

    Attributes:
        devices: it holds, as pool/device.
        shares_with: the number of another pod that uses its claim, too; its own number if there is none.
        priority: any priority.
        day: when it was made and when it started; of two pods the later one goes first.
        app: selected by a budget.
        deleting: it is terminating.
        is_foreign: its claim is reserved for something that is no pod, too.
        may_borrow: its namespace has a quota that may borrow.
    """

    node: str
    devices: tuple[str, ...]
    shares_with: int
    priority: int
    day: int
    app: str = ""
    deleting: bool = False
    is_foreign: bool = False
    may_borrow: bool = False

    @property
    def namespace(self) -> str:
        return "team" if self.may_borrow else "ns"


@dataclass(frozen=True)
class World:
    """Two nodes with devices of their own and a pool that both reach, and the pods that hold some of the devices.

    Attributes:
        large: for each node, and for the pool of both, whether each device is large.
        holders: the pods.
        allowed: app to how many of its pods may be evicted.
        others: pods that wait: the number of devices, whether they have to be large, and the priority.
        own: the devices of the quota of the pods that may borrow; None: there is no quota.
    """

    large: dict[str, Sequence[bool]]
    holders: Sequence[Holder]
    allowed: dict[str, int]
    others: Sequence[tuple[int, bool, int]]
    own: int | None = None

    def objects(self, gone: Iterable[int] = ()) -> Iterator[Object]:
        """The objects, once some of the holders have gone and controllers have released their claims."""
        left = {number: each for number, each in enumerate(self.holders) if number not in gone}
        yield GPU
        for name in NODES:
            yield from (node(name), _pool(local_slice(name, len(self.large[name])), self.large[name]))
        if self.large["net"]:
            yield _pool(network_slice("net", len(self.large["net"])), self.large["net"])
        for app, allowed in self.allowed.items():
            yield from (within(namespace, budget(app, {"app": app}, allowed)) for namespace in ("ns", "team"))
        if self.own is not None:
            yield quota(limited(devices=self.own), name="quota", namespace="team", cohort="all", borrowing=True)
        for number, each in left.items():
            claims = [f"v{n}-c" for n in self.claims_of(number)]
            yield within(each.namespace, _running(f"v{number}", each, claims))
        for number, each in enumerate(self.holders):
            users = [f"v{n}" for n in self.users_of(number) if n in left]
            yield within(each.namespace, _claimed(f"v{number}-c", each, users))
        for number, (count, is_large, priority) in enumerate(self.others):
            selectors = [LARGE] if is_large else []
            name = f"p{number}"
            yield claim(f"{name}-c", request(count=count, selectors=selectors))
            yield pod(name, f"{name}-c", priority=priority)

    def users_of(self, claim: int) -> Sequence[int]:
        """The holders that use the claim of a holder."""
        return tuple(dict.fromkeys((claim, self.holders[claim].shares_with)))

    def claims_of(self, number: int) -> Sequence[int]:
        """The holders whose claims a holder uses."""
        return number, *(n for n, each in enumerate(self.holders) if n != number == each.shares_with)

    def near(self, number: int, name: str) -> bool:
        """Whether a node reaches a device that a holder uses."""
        pools = {each.partition("/")[0] for claim in self.claims_of(number) for each in self.holders[claim].devices}
        return not pools.isdisjoint((name, "net"))

    def is_released(self, claim: int, name: str) -> bool:
        """Whether the claim of a holder is free once the pods near a node that are terminating have gone."""
        users = self.users_of(claim)
        is_near = self.holders[claim].devices[0].startswith((name, "net")) or all(self.near(n, name) for n in users)
        return is_near and self.departed().issuperset(users) and not self.holders[claim].is_foreign

    def departed(self) -> set[int]:
        """The holders that are terminating."""
        return {number for number, each in enumerate(self.holders) if each.deleting}


def within(namespace: str, raw: Object) -> Object:
    raw["metadata"]["namespace"] = namespace
    return raw


def _pool(raw: Object, large: Sequence[bool]) -> Object:
    for device, is_large in zip(raw["spec"]["devices"], large, strict=True):
        device["attributes"] = {"large": {"bool": is_large}}
    return raw


def _running(name: str, holder: Holder, claims: Sequence[str]) -> Object:
    time, labels = f"2026-01-0{holder.day}T00:00:00Z", {"app": holder.app}
    more: dict[str, Any] = {"labels": labels, "created": time, "deleting": holder.deleting}
    raw = pod(name, *claims, on=holder.node, priority=holder.priority, **more)
    raw["status"]["startTime"] = time
    return raw


def _claimed(name: str, holder: Holder, users: Sequence[str]) -> Object:
    if not users and not holder.is_foreign:
        return claim(name)
    is_local = all(not each.startswith("net") for each in holder.devices)
    raw = claim(name, allocated=holder.devices, at=holder.node if is_local else "", users=users)
    raw["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    raw["status"].setdefault("reservedFor", []).extend([FOREIGN] if holder.is_foreign else [])
    return raw


@st.composite
def worlds(draw: st.DrawFn, waiting: int = 1, *, departing: bool = True) -> World:
    """Worlds with at most this number of waiting pods. ``departing``: holders may terminate from the start."""
    large: dict[str, Sequence[bool]] = {name: draw(st.lists(st.booleans(), min_size=1, max_size=2)) for name in NODES}
    large["net"] = draw(st.lists(st.booleans(), max_size=1))
    holders: list[Holder] = []
    for name in (*NODES, "net"):
        devices = [f"{name}/gpu-{index}" for index in range(len(large[name]))]
        if len(devices) == 2 and draw(st.integers(0, 4)) == 0:
            groups = [tuple(devices)]
        else:
            groups = [(each,) for each in devices if draw(st.integers(0, 5))]
        for group in groups:
            number = len(holders)
            on = draw(st.sampled_from(NODES)) if name == "net" else name
            mates = [n for n, each in enumerate(holders) if each.node == on]
            shares_with = draw(st.sampled_from((number, number, *mates)))
            rare = st.sampled_from((False,) * 9 + (True,))
            may_borrow = draw(st.booleans()) if shares_with == number else holders[shares_with].may_borrow
            holders.append(
                Holder(
                    on,
                    group,
                    shares_with,
                    draw(st.sampled_from((-5, 0, 0, 1, 1, 2, 3))),
                    draw(st.integers(1, 2)),
                    draw(st.sampled_from(("", "db"))),
                    departing and draw(rare),
                    draw(rare),
                    may_borrow,
                )
            )
    allowed = {"db": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
    others = st.tuples(st.sampled_from((1, 1, 2)), st.booleans(), st.integers(1, 4))
    own = draw(st.sampled_from((None, 0, 1, 2)))
    return World(large, holders, allowed, draw(st.lists(others, min_size=1, max_size=waiting)), own)
