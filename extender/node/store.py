"""The resource store of KEP-3675: a file with what claims hold of a machine.

The text's store has an entry for each container of a pod. This one has an entry for each claim, because the kubelet
prepares claims, and in it the portions of containers, which CCI drivers have chosen. The file is replaced as a whole,
and carries a checksum and a version. So after a crash at any byte, it holds what was saved last.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from extender.node import cpu_list
from extender.node.driver import DriverParameters
from extender.tools.files import replace_durably

VERSION: Final = 2


class StoreError(Exception):
    """The file of a store cannot be used; the text names the file and says why."""


@dataclass(frozen=True, slots=True)
class Portion:
    """The CPUs that a CCI driver has given to a container of a claim.

    Attributes:
        container: namespace, pod and name of the container, for people.
        exclusive: whether other containers of the claim stay off the CPUs.
    """

    container: str
    cpus: frozenset[int]
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Removal:
    """A container that has ended, of which its driver has not heard yet.

    Attributes:
        claim: namespace and name.
    """

    driver: str
    claim: str
    claim_uid: str
    container_id: str


@dataclass(frozen=True, slots=True)
class ResourceSet:
    """The resources that a claim holds.

    Attributes:
        claim: namespace and name.
        cpus: by CDI device, the CPU that containers with this device have for themselves.
        memory_nodes: by CDI device, the NUMA node that containers with this device have their memory from.
        idle: those of the CPUs on which nothing runs.
        driver: the CCI driver that chooses among the CPUs for each container; empty: the built-in one, all of them.
        parameters: of the claim, for the driver.
        portions: by the id of the container, what the driver has given to it.
    """

    claim: str
    cpus: Mapping[str, int] = field(default_factory=dict)
    memory_nodes: Mapping[str, int] = field(default_factory=dict)
    idle: frozenset[int] = frozenset()
    driver: str = ""
    parameters: tuple[DriverParameters, ...] = ()
    portions: Mapping[str, Portion] = field(default_factory=dict)

    def asked(self, cdi: Collection[str]) -> frozenset[int]:
        """The CPUs that a container with some CDI devices may run on."""
        return frozenset(cpu for name, cpu in self.cpus.items() if name in cdi) - self.idle

    def offered(self, cdi: Collection[str], container: str) -> frozenset[int]:
        """The CPUs that no other container has for itself. ``container``: the id of the container."""
        others = (each.cpus for uid, each in self.portions.items() if each.exclusive and uid != container)
        return self.asked(cdi).difference(*others)


class ResourceStore:
    """Resource sets, by driver and uid of the claim; and what CCI drivers are still to be told.

    Args:
        allocatable: the CPUs that claims can have.
    """

    def __init__(self, allocatable: Iterable[int]) -> None:
        self._allocatable = frozenset(allocatable)
        self._sets: dict[str, ResourceSet] = {}
        self._removals: list[Removal] = []

    @property
    def sets(self) -> Mapping[str, ResourceSet]:
        """All resource sets, by key."""
        return self._sets

    @property
    def removals(self) -> list[Removal]:
        """What drivers are still to be told, in the order in which containers have ended."""
        return self._removals

    def add_resource(self, key: str, resources: ResourceSet) -> None:
        """Keep a resource set; it replaces the one of this key, and can have all CPUs of it.

        Raises:
            StoreError: it has CPUs that cannot be had, or that another one has.
        """
        wanted, before = set(resources.cpus.values()), self._sets.get(key, ResourceSet(""))
        if unknown := wanted.difference(self._allocatable, before.cpus.values()):
            raise StoreError(
                f"claim {resources.claim}: CPU {min(unknown)} is reserved, offline, or not of this machine"
            )
        for other, held in self._sets.items():
            if other != key and (both := wanted.intersection(held.cpus.values())):
                raise StoreError(f"claim {resources.claim}: CPU {min(both)} is of claim {held.claim}")
        self._sets[key] = resources

    def set_portions(self, key: str, portions: Mapping[str, Portion]) -> None:
        """Keep what a CCI driver has given to the containers of a claim that is there."""
        self._sets[key] = replace(self._sets[key], portions=portions)

    def remove_resource(self, key: str) -> None:
        """Forget a resource set, if there is one."""
        self._sets.pop(key, None)

    def available_resources(self) -> frozenset[int]:
        """The CPUs that claims can have, and that no claim has."""
        return self._allocatable.difference(*(each.cpus.values() for each in self._sets.values()))

    def save(self, path: Path) -> None:
        """Write all to a file, which has the former content or this one at any time. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(path, self._content())

    def load(self, path: Path) -> None:
        """Take all from a file; without a file, the store is empty.

        CPUs that cannot be had any more stay with their claims: their containers run there.

        Raises:
            StoreError: the file is damaged, of another version, or cannot be read.
        """
        try:
            self._sets, self._removals = _read(path.read_bytes())
        except FileNotFoundError:
            self._sets, self._removals = {}, []
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: {error}") from error

    def _content(self) -> str:
        tree = {
            "version": VERSION,
            "resourceSets": {key: _tree(each) for key, each in self._sets.items()},
            "removals": [asdict(each) for each in self._removals],
        }
        body = json.dumps(tree, sort_keys=True)
        return f"{_checksum(body)}\n{body}\n"


def _tree(resources: ResourceSet) -> dict[str, Any]:
    return {
        "claim": resources.claim,
        "cpus": dict(resources.cpus),
        "memoryNodes": dict(resources.memory_nodes),
        "idle": cpu_list.render(resources.idle),
        "driver": resources.driver,
        "parameters": [{"requests": [*each.requests], "value": each.value} for each in resources.parameters],
        "portions": {
            uid: {"container": each.container, "cpus": cpu_list.render(each.cpus), "exclusive": each.exclusive}
            for uid, each in resources.portions.items()
        },
    }


def _read(content: bytes) -> tuple[dict[str, ResourceSet], list[Removal]]:
    checksum, _, body = content.decode().partition("\n")
    if not body.endswith("\n") or checksum != _checksum(body.removesuffix("\n")):
        raise ValueError("is damaged: its checksum does not fit its content")
    tree: dict[str, Any] = json.loads(body)
    if tree["version"] != VERSION:
        raise ValueError(f"has version {tree['version']}, and this program reads version {VERSION}")
    sets = {key: _resources(each) for key, each in tree["resourceSets"].items()}
    return sets, [Removal(**each) for each in tree["removals"]]


def _resources(tree: Mapping[str, Any]) -> ResourceSet:
    return ResourceSet(
        tree["claim"],
        tree["cpus"],
        tree["memoryNodes"],
        cpu_list.parse(tree["idle"]),
        tree["driver"],
        tuple(DriverParameters(tuple(each["requests"]), each["value"]) for each in tree["parameters"]),
        {
            uid: Portion(each["container"], cpu_list.parse(each["cpus"]), each["exclusive"])
            for uid, each in tree["portions"].items()
        },
    )


def _checksum(body: str) -> str:
    return sha256(body.encode()).hexdigest()
