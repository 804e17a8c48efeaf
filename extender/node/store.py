"""What claims hold of a machine, in a file: the resource store of KEP-3675.

The text's store has an entry for each container of a pod. This one has an entry for each claim: the kubelet prepares
claims, and several containers may use one. The file is replaced as a whole, and carries a checksum and a version. So
after a crash at any byte, it holds what was saved last.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

VERSION: Final = 1


class StoreError(Exception):
    """The file of a store cannot be used; the text names the file and says why."""


@dataclass(frozen=True, slots=True)
class ResourceSet:
    """What a claim holds.

    Attributes:
        claim: namespace and name, for people.
        cpus: by CDI device, the CPU that containers with this device have for themselves.
        memory_nodes: by CDI device, the NUMA node that containers with this device have their memory from.
    """

    claim: str
    cpus: Mapping[str, int] = field(default_factory=dict)
    memory_nodes: Mapping[str, int] = field(default_factory=dict)


class Store:
    """Resource sets, by driver and uid of the claim.

    Args:
        allocatable: the CPUs that claims can have.
    """

    def __init__(self, allocatable: Iterable[int]) -> None:
        self._allocatable = frozenset(allocatable)
        self._sets: dict[str, ResourceSet] = {}

    @property
    def sets(self) -> Mapping[str, ResourceSet]:
        """All resource sets, by key."""
        return self._sets

    def add_resource(self, key: str, resources: ResourceSet) -> None:
        """Keep a resource set; it replaces the one of this key.

        Raises:
            StoreError: it has CPUs that cannot be had, or that another one has.
        """
        wanted = set(resources.cpus.values())
        if unknown := wanted - self._allocatable:
            raise StoreError(
                f"claim {resources.claim}: CPU {min(unknown)} is reserved, offline, or not of this machine"
            )
        for other, held in self._sets.items():
            if other != key and (both := wanted.intersection(held.cpus.values())):
                raise StoreError(f"claim {resources.claim}: CPU {min(both)} is of claim {held.claim}")
        self._sets[key] = resources

    def remove_resource(self, key: str) -> None:
        """Forget a resource set, if there is one."""
        self._sets.pop(key, None)

    def available_resources(self) -> frozenset[int]:
        """The CPUs that claims can have, and that no claim has."""
        return self._allocatable.difference(*(each.cpus.values() for each in self._sets.values()))

    def save(self, path: Path) -> None:
        """Write all to a file, which has the former content or this one at any time. Raises OSError."""
        new = path.with_name(f"{path.name}.new")
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(self._content())
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # otherwise a loss of power may undo the replacement
        finally:
            os.close(folder)

    def load(self, path: Path) -> None:
        """Take all from a file; without a file, the store is empty.

        CPUs that cannot be had any more stay with their claims: their containers run there.

        Raises:
            StoreError: the file is damaged, of another version, or cannot be read.
        """
        try:
            self._sets = _read(path.read_bytes())
        except FileNotFoundError:
            self._sets = {}
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: {error}") from error

    def _content(self) -> bytes:
        sets = {
            key: {"claim": each.claim, "cpus": dict(each.cpus), "memoryNodes": dict(each.memory_nodes)}
            for key, each in self._sets.items()
        }
        body = json.dumps({"version": VERSION, "resourceSets": sets}, sort_keys=True)
        return f"{_checksum(body)}\n{body}\n".encode()


def _read(content: bytes) -> dict[str, ResourceSet]:
    checksum, _, body = content.decode().partition("\n")
    if not body.endswith("\n") or checksum != _checksum(body.removesuffix("\n")):
        raise ValueError("is damaged: its checksum does not fit its content")
    tree: dict[str, Any] = json.loads(body)
    if tree["version"] != VERSION:
        raise ValueError(f"has version {tree['version']}, and this program reads version {VERSION}")
    return {
        key: ResourceSet(each["claim"], each["cpus"], each["memoryNodes"]) for key, each in tree["resourceSets"].items()
    }


def _checksum(body: str) -> str:
    return sha256(body.encode()).hexdigest()
