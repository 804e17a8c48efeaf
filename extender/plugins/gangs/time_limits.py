"""How long things take for a gang, and how many plans there are at the same time."""

from typing import Final

KEPT_SECONDS: Final = 60.0
"""Devices are kept for a gang for this time after the plan, and after each pod that is bound."""

ASKING_SECONDS: Final = 1.0
"""The longest time from the first rejection of a member to the plan: kube-scheduler asks about the others meanwhile."""

PLANNING_SECONDS: Final = 0.5
"""The longest time that a turn waits for plans: other tasks wait meanwhile. A plan that takes longer goes on between
the turns."""

LONG_PLANS: Final = 4
"""The most plans that go on between the turns. They compute one at a time, 10 ms each
(`extender.tools.offload.Searches`). The limit is for memory: a plan for 1,024 pods on 1,024 nodes took 27 MB. While
there are as many, a plan that takes longer than a turn is stopped. A namespace without such a plan may have one more,
up to twice as many plans in all."""

LONGEST_PLAN_SECONDS: Final = 512.0
"""A plan is stopped after this time."""

IDLE_SECONDS: Final = 2 * KEPT_SECONDS
"""A process whose scheduler has asked about no member for this time leaves what is kept to another process."""

SEEN_SECONDS: Final = 10.0
"""If the watch does not show a plan within this time, another process has changed it. If it does not show a PodGroup
within this time, the PodGroup is gone."""

SHOWN_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.005
"""A call of preempt waits this long until the watch shows the plan of a gang, and looks so often."""

FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
"""After devices were given back, a gang waits this time, and twice as long each time: others may get the devices."""

AGAIN_SECONDS: Final = 2.0
"""A plan is made again after this time if its scheduler asks again. If a limit has stopped the plan, it is made again
after four times as long as it took, but not before this time."""
