"""The table of plugins: a feature's part of a scheduling cycle is its plugin, and one line here."""

from typing import Final

from extender.framework.plugin import Plugins
from extender.plugins.binding_conditions import BindingConditionsPlugin
from extender.plugins.gangs.plugin import GangPlugin
from extender.plugins.preemption.plugin import PreemptionPlugin
from extender.plugins.quota.plugin import QuotaPlugin
from extender.plugins.scheduling_gates.task import SchedulingGatesPlugin

TABLE: Final = (GangPlugin(), BindingConditionsPlugin(), QuotaPlugin(), SchedulingGatesPlugin(), PreemptionPlugin())
"""In the order in which they are asked: the first refusal is what a pod hears."""

PLUGINS: Final = Plugins(TABLE)
