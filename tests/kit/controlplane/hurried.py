"""The extender with watches of a second or two, so that a test can wait for what takes minutes otherwise.

As a program, it takes the flags of `tests.kit.controlplane.service.running_extender`.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import FollowTiming, Timing, connect
from extender.config.settings import Settings
from extender.faces.serving.run import ServedCluster, run
from extender.kube.connection.credentials import Origin
from extender.kube.watch import WatchTiming

HURRIED: Final = (sys.executable, "-m", "tests.kit.controlplane.hurried")

TIMING: Final = Timing(
    watch=WatchTiming(answer=2.0, shortest=1.0, longest=2.0, silence=3.0),
    follow=FollowTiming(longest=1.0, stale=4.0, brief=0.5),
)
"""In the proportions of the times that are shipped."""


@asynccontextmanager
async def hurried(origin: Origin) -> AsyncIterator[ServedCluster]:
    """As `extender.faces.serving.run.live`."""
    async with connect(origin, random=random.random, timing=TIMING) as cluster, asyncio.TaskGroup() as tasks:
        state = ClusterState()
        following = tasks.create_task(cluster.run(state))
        yield ServedCluster(cluster.api, state)
        following.cancel()


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int)
    parser.add_argument("--kubeconfig")
    given = parser.parse_args(arguments)
    run(hurried(Origin(given.kubeconfig)), Settings.model_validate({"server": {"port": given.port}}))


if __name__ == "__main__":
    main(sys.argv[1:])
