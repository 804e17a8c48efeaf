"""The commands of `kubectl dra` that print lists and explanations."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from extender.cli.answer import ExplanationJson, print_answer
from extender.cli.messages import fail
from extender.cli.options import ExplainOutput, ExplainOutputOption, examples
from extender.cli.remote import RemoteError
from extender.kubectl.list_watch import watch
from extender.kubectl.listings import (
    CLAIMS,
    DEVICE_NUMBERS,
    DEVICES,
    PENDING,
    QUOTAS,
    ListOutput,
    PrintedList,
    Rows,
    print_rows,
    read_rows,
)
from extender.kubectl.place import Place, at_place
from extender.kubectl.running import run
from extender.kubectl.sources.source import AnswerSource, Query

OutputOption = Annotated[ListOutput, typer.Option("--output", "-o", help="How to print the list.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Print the list, then its changes until Ctrl-C.")]

_CLAIM_WORDS: Final = frozenset({"claim", "claims", "resourceclaim", "resourceclaims"})
_POD_WORDS: Final = frozenset({"pod", "pods", "po"})


@at_place
def pending(*, output: OutputOption = ListOutput.TABLE, watched: WatchOption = False, place: Place) -> None:
    """Pods that wait for devices: since when, what they ask for, and why they wait."""
    _list(place, PENDING, {"state": "pending", **_namespace(place)}, output, watched=watched)


@at_place
def claims(
    *,
    state: Annotated[str, typer.Option(metavar="STATE", help="Only claims in this state.")] = "",
    pod: Annotated[str, typer.Option(metavar="NAME", help="Only claims of pods of this name.")] = "",
    output: OutputOption = ListOutput.TABLE,
    watched: WatchOption = False,
    place: Place,
) -> None:
    """Claims: their states, their devices, and who may use them."""
    _list(place, CLAIMS, {**_namespace(place), **_given(state=state, pod=pod)}, output, watched=watched)


@at_place
def quota(*, output: OutputOption = ListOutput.TABLE, watched: WatchOption = False, place: Place) -> None:
    """DeviceQuotas: what is used of each limit."""
    _list(place, QUOTAS, _namespace(place), output, watched=watched)


@at_place
def devices(
    *,
    driver: Annotated[str, typer.Option(metavar="NAME", help="Only devices of this driver.")] = "",
    pool: Annotated[str, typer.Option(metavar="NAME", help="Only devices of pools of this name.")] = "",
    node: Annotated[str, typer.Option(metavar="NAME", help="Only devices for this node.")] = "",
    device_class: Annotated[
        str, typer.Option("--class", metavar="NAME", help="Only devices of this device class.")
    ] = "",
    state: Annotated[str, typer.Option(metavar="STATE", help="Only devices in this state, for example free.")] = "",
    count: Annotated[bool, typer.Option("--count", help="Print how many devices are in each state.")] = False,
    output: OutputOption = ListOutput.TABLE,
    watched: WatchOption = False,
    place: Place,
) -> None:
    """Devices: their states, who holds them, and what is in the way."""
    query = _given(**{"driver": driver, "pool": pool, "node": node, "class": device_class, "state": state})
    if count:
        _list(place, DEVICE_NUMBERS, {**query, "count": "true"}, output, watched=watched)
        return
    has_all = output in {ListOutput.WIDE, ListOutput.JSON, ListOutput.YAML}
    _list(place, DEVICES, {**query, **({"wide": "true"} if has_all else {})}, output, watched=watched)


@at_place
def explain(
    name: Annotated[str, typer.Argument(metavar="[TYPE/]NAME", help="A pod, or claim/NAME.")],
    *,
    node: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Explain this node only; can be repeated.")
    ] = None,
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: Place,
) -> None:
    """Where a pod or a claim fits and why; or why it fits nowhere, and what would help."""
    _explain(place, name, node or (), output)


@at_place
def why_not(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node.")],
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod.")],
    *,
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: Place,
) -> None:
    """Why a pod does not fit on one node, device for device, and what would help there."""
    _explain(place, pod, (node,), output)


def add_commands(app: typer.Typer) -> None:
    """All commands of this module, in the order of the help text."""
    add = app.command
    add(epilog=examples("kubectl dra pending -A", "kubectl dra pending --watch"))(pending)
    add(epilog=examples("kubectl dra explain training-3 -n demo", "kubectl dra explain claim/fpga -n demo"))(explain)
    add("why-not", epilog=examples("kubectl dra why-not gpu-east-1 training-3 -n demo"))(why_not)
    add(epilog=examples("kubectl dra devices --class h100 --state free", "kubectl dra devices --count"))(devices)
    add(epilog=examples("kubectl dra claims -n demo -o wide"))(claims)
    add(epilog=examples("kubectl dra quota -A"))(quota)


def _given(**parameters: str) -> Mapping[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _namespace(place: Place) -> Mapping[str, str]:
    return _given(namespace=place.namespace)


def _list(place: Place, listing: PrintedList, query: Query, output: ListOutput, *, watched: bool) -> None:
    async def show(source: AnswerSource) -> None:
        if not watched:
            print_rows(await read_rows(source, listing, query), listing, output)
            return
        is_first = True

        async def read() -> Rows:
            nonlocal is_first
            if not is_first:
                await source.refresh()
            is_first = False
            return await read_rows(source, listing, query)

        await watch(read, listing, output, partial(asyncio.sleep, source.seconds))

    run(place, show)


def _explain(place: Place, name: str, nodes: Sequence[str], output: ExplainOutput) -> None:
    kind, slash, own = name.rpartition("/")
    if (slash and kind.lower() not in _POD_WORDS | _CLAIM_WORDS) or not own:
        fail(f"{name}: expected POD, pod/POD or claim/CLAIM; the namespace is the option -n")
    what = "claims/" if kind.lower() in _CLAIM_WORDS else ""
    path = f"/explain/{quote(place.named(name), safe='')}/{what}{quote(own, safe='')}"

    async def ask(source: AnswerSource) -> Mapping[str, Any]:
        document = await source.get(path, {"node": nodes} if nodes else {})
        if not {"verdict", "text"} <= document.keys():
            raise RemoteError(f"{source.name}: {path}: no explanation: is this a dra-extender?")
        return document

    print_answer(ExplanationJson(run(place, ask)), output)
