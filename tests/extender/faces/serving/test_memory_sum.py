"""All bounds of memory together, in bytes: docs/reference/limits.md has the sum.

A bound in entries counts with the bytes of a large entry: measured, or the most that the entry's texts may have. The
sum is what the process may take if everything is full at the same time.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Final

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from allocator.cel.selectors import Selectors
from allocator.policies import usable_room
from extender.answers.observe import device_history, problems
from extender.answers.usage import amounts, usage, waits
from extender.cluster import cluster_state, double_allocations
from extender.cluster.objects import pods
from extender.cluster.objects.claims import SpecCache
from extender.cluster.writes.events import EventRates
from extender.config.settings import Settings
from extender.faces.console import feed
from extender.faces.http.bodies import UNCOUNTED_BYTES
from extender.faces.http.connections import API, OPERATIONS, VERBS
from extender.faces.serving.listeners import RECEIVED_BYTES
from extender.framework import asked, claim_arrival, decision_log
from extender.framework.decisions import node_index
from extender.framework.decisions.evaluate import Decider
from extender.framework.ranking import DecisionStore
from extender.plugins.preemption import choice
from extender.plugins.quota import totals
from extender.plugins.requeue import requeue, unserved
from extender.plugins.second_opinion import engine as second_engine
from extender.plugins.second_opinion import task as second_looks
from extender.tools.intake import BUDGET_SHARE
from tests.kit.measure import MEGABYTE
from tests.kit.places import ROOT

LIMITS: Final = ROOT / "docs" / "reference" / "limits.md"
GIBIBYTE: Final = 1024**3
ENOUGH: Final = 4 * GIBIBYTE
"""With this limit, everything may be full at the same time. The image is given a gibibyte: see docs/reliability.md for
what the service takes there while inputs fill it."""

NODES: Final = 5_000
"""Of the cluster with 40,000 devices, 20,000 claims and 50,000 pods."""

KNOWN_BYTES: Final = 370 * MEGABYTE
"""Of the process that knows this cluster: `python -m tests.hostile.memory`, 2026-11-28, 365 to 370 MB."""

LISTENERS: Final = (VERBS, API, OPERATIONS)
SOLVERS: Final = 2
"""One for the scheduler's verbs and one for sessions."""

DECIDERS: Final = 3
"""The same, and one that follows the cluster with kept devices."""

VERDICT_BYTES: Final = 178
"""Of a node and a signature: measured with 1,000 nodes and 16 signatures, 2026-11-28."""

NAMES_GROWTH: Final = 6
"""Bytes that a byte of a body takes that has names of 22 characters: the text, a copy of it, and strings."""

PROGRAM_BYTES: Final = 300
"""Of a character of a selector, at most."""

TREE_BYTES: Final = 3_600
"""Of a character of a selector in cel-python, at most: lists of numbers, 2026-11-28."""

VALUE_BYTES: Final = 64
POINTER_BYTES: Final = 8
ROOM_BYTES: Final = 25
"""Of a piece or a need; `allocator/policies/usable_room.py`."""

PART_BYTES: Final = 100
NAME_BYTES: Final = 50
SPEC_GROWTH: Final = 8
"""Bytes that a byte of the JSON of a spec takes when it is read."""

ROW_BYTES: Final = 300
"""Of a name of usage, beside its minutes."""

CLAIMS: Final = 20_000
HOLDING_BYTES: Final = 120
"""Of a claim, for what it holds."""

ENTRY_BYTES: Final = 1024
"""Of an entry with a name, a uid and some fields, or with a pod that the cluster has."""


def default(function: Callable[..., object], name: str) -> int:
    """The default of a parameter."""
    return int(inspect.signature(function).parameters[name].default)


def of_memory(limit: int) -> Mapping[str, int]:
    """What grows with the limit of memory, in bytes."""
    budget = limit // BUDGET_SHARE
    return {
        "what comes from outside": budget,
        "sessions of autoscalers": min(Settings().autoscaler.session_bytes, budget // 2),
    }


def usage_bytes() -> int:
    """Of the usage of a day."""
    held = usage.MOST_NAMESPACES + 2 * usage.MOST_NAMES + usage.MOST_DRIVERS
    published, in_pieces = usage.MOST_NAMES + usage.MOST_DRIVERS, usage.MOST_DRIVERS
    others = 8 * amounts._MOST_OTHERS
    rows = held + published + usage.MOST_WAITING + in_pieces + others
    quarters = (usage.MOST_WAITING + 1) * 4 * waits._ALL
    return rows * (8 * amounts.MINUTES + ROW_BYTES) + quarters + CLAIMS * HOLDING_BYTES


def fixed() -> Mapping[str, int]:
    """What does not, in bytes."""
    connections = sum(each.connections for each in LISTENERS)
    bodies = VERBS.connections * UNCOUNTED_BYTES + Settings().server.body_limit_bytes
    entries = (
        asked._MOST_PODS
        + 3 * requeue.MOST_PODS
        + 2 * unserved.KEPT
        + unserved.LIKE_PODS
        + 2 * EventRates().kept
        + 2 * problems.MOST_PROBLEMS
        + cluster_state._MOST_WRITES
        + double_allocations._REMEMBERED
        + claim_arrival.FORESEEN
        + device_history._MOST
        + default(DecisionStore, "size")
        + 2 * second_looks.MOST
        + second_looks.MOST_DISAGREEMENTS
    )
    room = usable_room._POINTS + usable_room._NEEDS
    decisions = Settings().server.decisions * decision_log._MOST_REASONS * decision_log._LONGEST_TEXT
    selectors = 2 * default(Selectors, "max_text") * PROGRAM_BYTES + default(Selectors, "max_results") * VALUE_BYTES
    return {
        "the process, and what it knows of the cluster": KNOWN_BYTES,
        "bytes of connections that are not read yet": connections * (HIGH_WATER_LIMIT + 2 * RECEIVED_BYTES),
        "bodies of up to 256 KiB with names": bodies * NAMES_GROWTH,
        "replies that clients have not taken": sum(each.unsent for each in LISTENERS),
        "selectors": SOLVERS * selectors,
        "selectors of the second engine": second_engine.MOST_TEXT * TREE_BYTES,
        "verdicts": DECIDERS * default(Decider, "signatures") * NODES * VERDICT_BYTES,
        "numbers of values": SOLVERS * (node_index._VALUES + node_index._STATES) * POINTER_BYTES,
        "room for what pods ask for": SOLVERS * room * ROOM_BYTES,
        "merits for prioritize": default(DecisionStore, "scored") * NODES * VERDICT_BYTES,
        "decisions": decision_log._MOST_WEIGHT + decisions,
        "specs of claims and pods": (default(SpecCache, "limit") + pods._SPEC_BYTES) * SPEC_GROWTH,
        "use of quotas": 2 * totals._MOST_PARTS * PART_BYTES,
        "choices of victims in vain": choice.MOST_NAMES * NAME_BYTES,
        "messages to the console": 2 * feed._KEPT_BYTES,
        "usage of a day": usage_bytes(),
        "pods, claims and Events that are remembered": entries * ENTRY_BYTES,
    }


def megabytes(size: int) -> int:
    return round(size / MEGABYTE)


def test_the_table_of_all_bounds_is_what_the_code_says() -> None:
    text = LIMITS.read_text(encoding="utf-8")
    table = text.partition("### All bounds together")[2].partition("\n## ")[0]
    told = {
        name: int(size.replace(",", ""))
        for name, size in re.findall(r"^\| ([^|]+?) \| ([\d,]+) \|", table, re.MULTILINE)
    }
    bounds = {**of_memory(GIBIBYTE), **fixed()}
    total = sum(bounds.values())
    assert told == {name: megabytes(size) for name, size in bounds.items()} | {"all together": megabytes(total)}


def test_everything_may_be_full_at_once_in_four_gibibytes() -> None:
    assert sum(of_memory(ENOUGH).values()) + sum(fixed().values()) <= ENOUGH
