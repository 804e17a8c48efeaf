"""Checks that can reject a device: one module per feature, and one ordered table."""

from allocator.checks.check import DeviceState as DeviceState
from allocator.checks.counters import competitors as competitors
from allocator.checks.inspector import Inspector as Inspector
from allocator.checks.inspector import Wanted as Wanted
from allocator.checks.inspector import ways_to_serve as ways_to_serve
from allocator.checks.taint_rules import NO_RULES as NO_RULES
from allocator.checks.taint_rules import TaintRules as TaintRules
from allocator.checks.taints import BLOCKING_EFFECTS as BLOCKING_EFFECTS
from allocator.checks.taints import taint_text as taint_text
from allocator.checks.taints import tolerates as tolerates
