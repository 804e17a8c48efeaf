"""CDI files: what the container runtime changes in containers that get a device. One file for each claim.

Source: the Container Device Interface specification, version 0.6.0.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from extender.node.driver import AllocatedClaim, AllocatedDevice, PreparedDevice, PrepareError

VERSION: Final = "0.6.0"

_EXCLUSIVE: Final = "dra-extender.dev/exclusive"
"""Annotation of a CDI device: the device that no other claim may have, as ``pool/device``."""

_CLASS: Final = "claim"


@dataclass(frozen=True, slots=True)
class CdiFolder:
    """The files of one driver in a folder where the runtime looks for them."""

    path: Path
    driver: str

    def write(self, claim: AllocatedClaim, edits: Sequence[Mapping[str, Any]]) -> tuple[PreparedDevice, ...]:
        """Write the file of a claim. The runtime sees no part of it, or all.

        Args:
            claim: with its devices.
            edits: for each device, what is changed in containers (``containerEdits``).

        Raises:
            PrepareError: the file cannot be written, or another claim has a device.
        """
        self._refuse_taken(claim)
        spec = {
            "cdiVersion": VERSION,
            "kind": f"{self.driver}/{_CLASS}",
            "devices": [
                {"name": _name(claim.uid, device), "annotations": _annotations(device), "containerEdits": edit}
                for device, edit in zip(claim.devices, edits, strict=True)
            ],
        }
        path = self._file(claim.uid)
        # A file of the suffix .json is read at any time.
        unfinished = path.with_suffix(".unfinished")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if claim.devices:  # a file without devices is not valid
                with unfinished.open("w") as file:
                    json.dump(spec, file)
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(path)
        except OSError as error:
            raise PrepareError(f"{claim}: {path}: {error.strerror or error}") from error
        pairs = zip(claim.devices, self.names(claim), strict=True)
        return tuple(PreparedDevice(device, (name,)) for device, name in pairs)

    def names(self, claim: AllocatedClaim) -> tuple[str, ...]:
        """The CDI device of each device of a claim."""
        return tuple(f"{self.driver}/{_CLASS}={_name(claim.uid, each)}" for each in claim.devices)

    def claims(self) -> frozenset[str]:
        """The uids of the claims that have a file."""
        return frozenset(path.stem.removeprefix(f"{self.driver}-") for path in self.path.glob(f"{self.driver}-*.json"))

    def remove(self, uid: str) -> None:
        """Remove the file of a claim, if there is one. Raises PrepareError: it cannot be removed."""
        path = self._file(uid)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise PrepareError(f"claim {uid}: {path}: {error.strerror or error}") from error

    def _refuse_taken(self, claim: AllocatedClaim) -> None:
        """The last line of defense against a device that two claims are allocated."""
        wanted = {f"{each.pool}/{each.device}" for each in claim.devices if each.is_exclusive}
        for path in sorted(self.path.glob(f"{self.driver}-*.json")):
            if path != self._file(claim.uid):
                for device in sorted(wanted.intersection(_exclusive_devices(path))):
                    other = path.stem.removeprefix(f"{self.driver}-")
                    raise PrepareError(f"{claim}: device {device} is prepared for another claim, with uid {other}")

    def _file(self, uid: str) -> Path:
        return self.path / f"{self.driver}-{uid}.json"


def _name(uid: str, device: AllocatedDevice) -> str:
    """Unique also over time: runtimes may remember files of a name. Each share of a device has a name of its own."""
    return "-".join(filter(None, (uid, device.request.replace("/", "."), device.device, device.share_id)))


def _annotations(device: AllocatedDevice) -> Mapping[str, str]:
    return {_EXCLUSIVE: f"{device.pool}/{device.device}"} if device.is_exclusive else {}


def _exclusive_devices(path: Path) -> Iterator[str]:
    try:
        spec = json.loads(path.read_text())
        for each in spec["devices"]:
            if device := each.get("annotations", {}).get(_EXCLUSIVE):
                yield device
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PrepareError(f"{path}: cannot be read, so it is not known which devices are in use: {error}") from error
