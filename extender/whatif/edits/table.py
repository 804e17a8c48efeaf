"""All edits, in the order in which they are applied: a drained pod is pending when requests are edited."""

from typing import Final

from extender.whatif.edits.add_nodes import AddNodes
from extender.whatif.edits.add_pods import AddPods
from extender.whatif.edits.drain import Drain
from extender.whatif.edits.edit import Edit
from extender.whatif.edits.edit_request import EditRequest

EDITS: Final[tuple[type[Edit], ...]] = (Drain, AddNodes, EditRequest, AddPods)
