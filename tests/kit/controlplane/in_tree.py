"""A scheduler as it comes, with the in-tree plugin for devices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.pair import BACKOFF_SECONDS
from tests.kit.controlplane.proxy import Proxy, proxy
from tests.kit.controlplane.scheduler import scheduler

IN_TREE: Final = "default-scheduler"
"""The schedulerName of its pods."""


@asynccontextmanager
async def in_tree(plane: ControlPlane, *flags: str) -> AsyncIterator[Proxy]:
    """The scheduler, behind a proxy; ``flags`` are further flags of its command line."""
    access = plane.access(SCHEDULER)
    async with proxy(access) as between:
        kubeconfig = replace(access, url=between.url).write_kubeconfig(plane.folder / "in-tree.kubeconfig")
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": BACKOFF_SECONDS,
        }
        async with scheduler(plane, config, flags):
            yield between
