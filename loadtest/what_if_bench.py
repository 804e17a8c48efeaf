"""How long the answer to a question "what if" takes, and how long filter calls take meanwhile.

The example cluster, and 5,000 nodes with 8 devices each, of which half are in use.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from extender.answers.whatif.answering import WhatIf
from extender.answers.whatif.question import Question, read_question
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import Extender, make_extender, make_solver
from extender.faces.simulation.cluster import Cluster
from extender.lab.api import MemoryApi
from extender.planning.templates import Catalog
from loadtest.explain_bench import DRIVER, FILTERS, Still, asking, cluster, filters

EXAMPLE = Path(__file__).parents[1] / "config" / "example"
RUNS = 5
REQUESTS = [{"name": "gpu", "deviceClassName": DRIVER}]
QUESTIONS: dict[str, dict[str, Any]] = {
    "nothing changes": {},
    "10 nodes, 50 pods, 1 drained": {
        "nodes": [{"like": "node-00000", "count": 10}],
        "pods": [{"count": 50, "requests": REQUESTS}],
        "drain": ["node-00003"],
    },
    "100 nodes, 100 pods, 10 drained": {
        "nodes": [{"like": "node-00000", "count": 100}],
        "pods": [{"count": 100, "requests": REQUESTS}],
        "drain": [f"node-{number:05}" for number in range(10)],
    },
    "100 full nodes drained": {"drain": [f"node-{number:05}" for number in range(100)]},
}


def extender_over(snapshot: Snapshot) -> Extender:
    """All that answers about a cluster in which nothing happens."""
    api, settings = MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: "uid"), Settings()
    return make_extender(api, Still(snapshot), make_solver(settings), settings)


async def answered(what_if: WhatIf, question: Question) -> Sequence[str]:
    """Of some answers the median of the seconds, the most, the median of those on the CPU, and pods without a turn."""
    passed, computed, late = [], [], 0
    for _ in range(RUNS):
        began, used = time.perf_counter(), time.process_time()
        answer = await what_if.ask(question)
        passed.append(time.perf_counter() - began)
        computed.append(time.process_time() - used)
        late = max(late, sum(each.then is None for each in answer.pods))
    return f"{median(passed):.2f}", f"{max(passed):.2f}", f"{median(computed):.2f}", str(late)


def answers() -> Table:
    """How long answers take."""
    table = Table("cluster", "question", "median, s", "longest, s", "computed, s", "pods without a turn, at most")
    example = WhatIf(
        extender_over(Cluster.from_manifests(EXAMPLE, refused=lambda _: None).snapshot).overview,
        Catalog(),
        preempts=True,
    )
    big = WhatIf(extender_over(cluster(0.5)).overview, Catalog(), preempts=True)
    drain = {"drain": ["gpu-west-2"], "nodes": [{"like": "gpu-east-1", "count": 2}]}
    asked = (("example", example, {"2 nodes, 1 drained": drain}), ("5,000 nodes", big, QUESTIONS))
    for name, what_if, questions in asked:
        for title, data in questions.items():
            table.add_row(name, title, *asyncio.run(answered(what_if, read_question(data))))
    return table


def meanwhile() -> Table:
    """Filter calls alone, and while questions are answered one after the other."""
    snapshot, pod = asking(cluster(0.5), [{"count": 1}], "")
    extender, names = extender_over(snapshot), list(snapshot.nodes)
    what_if = WhatIf(extender.overview, Catalog(), preempts=True)
    question = read_question(QUESTIONS["100 nodes, 100 pods, 10 drained"])
    ask: Callable[[], Awaitable[object]] = partial(what_if.ask, question)
    table = Table("filter calls", "median, ms", "95 of 100 within, ms", "longest, ms", title=f"{FILTERS} filter calls")
    for title, work in (("alone, cold", None), ("alone", None), ("while answering", ask)):
        times = asyncio.run(filters(extender.service, pod, names, work))
        middle, most = times[len(times) // 2], times[len(times) * 95 // 100]
        table.add_row(title, f"{middle * 1e3:.1f}", f"{most * 1e3:.1f}", f"{times[-1] * 1e3:.1f}")
    return table


def main() -> None:
    """Print the tables."""
    console = Console()
    console.print(answers())
    console.print(meanwhile())


if __name__ == "__main__":
    main()
