"""A control plane of a test module's own, for what the shared one does not have."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from extender.kube.api import RawObject
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import connect
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.controlplane.definitions import define

_PLAIN: Final = Options()


@contextmanager
def own_plane(
    binaries: Binaries, logs: Path, name: str, options: Options = _PLAIN, *, definition: RawObject | None = None
) -> Iterator[ControlPlane]:
    """A control plane for a while.

    Args:
        binaries: of Kubernetes.
        logs: of the run; those of this control plane get a folder in it.
        name: of the folder.
        options: how it starts.
        definition: of a kind, which is there before an extender starts.
    """
    (own := logs / name).mkdir()
    with (
        TemporaryDirectory(prefix="dra-extender-") as folder,
        control_plane(binaries, Path(folder), own, options) as plane,
    ):
        if definition is not None:
            asyncio.run(_defined(plane, definition))
        yield plane


async def _defined(plane: ControlPlane, definition: RawObject) -> None:
    async with connect(plane.access()) as admin:
        await define(admin, definition)
