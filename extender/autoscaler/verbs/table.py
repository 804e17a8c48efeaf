"""All verbs of the autoscaler; HTTP, OpenAPI, metrics and traces are made from this table.

A new verb is a module here, a line in the table, and a method of the client (`extender.client.verbs`).
"""

from typing import Any, Final

from extender.autoscaler.autoscaler import InSession
from extender.autoscaler.verbs.estimate import ESTIMATE
from extender.autoscaler.verbs.filter import FILTER
from extender.autoscaler.verbs.node_ready import NODE_READY
from extender.autoscaler.verbs.node_selected import NODE_SELECTED
from extender.autoscaler.verbs.prioritize import PRIORITIZE
from extender.autoscaler.verbs.start import START
from extender.verbs.verb import Verb

AUTOSCALER_VERBS: Final[tuple[Verb[InSession, Any, Any], ...]] = (
    START,
    FILTER,
    PRIORITIZE,
    NODE_SELECTED,
    NODE_READY,
    ESTIMATE,
)
