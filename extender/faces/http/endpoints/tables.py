"""Tables on HTTP: the entry of each table, its path, its documentation and its pages, as text or JSON.

A new table is an entry in `TABLES`, with a view in `extender.answers.observe.tables`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from fastapi import FastAPI, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allocator import ClassMembers
from allocator.checks import DeviceState
from allocator.pools import Pool
from allocator.tools import JSON, meant_by, printable, shown
from extender.answers.observe.overview import Overview, decisions, kinds
from extender.answers.observe.problems import problems
from extender.answers.observe.scheduler_settings import SCHEDULER
from extender.answers.observe.tables.claims import claims
from extender.answers.observe.tables.devices import DeviceFilter, class_of, device_numbers, devices, pools
from extender.answers.observe.tables.pods import pods, waiting_reasons
from extender.answers.observe.tables.resources import By, resources
from extender.cluster.snapshot import Snapshot
from extender.faces.http.callers import MAY, caller_of
from extender.faces.http.replies import Format, format_for
from extender.framework import wire
from extender.framework.pod_and_claim_states import ClaimState, PodState
from extender.kube.resources import (
    CLAIMS,
    CLASSES,
    DEVICE_QUOTAS,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCES,
    SLICES,
    TAINT_RULES,
    TEMPLATES,
    Resource,
)
from extender.plugins.gangs.gang import GangState, gangs
from extender.plugins.preemption.nominations import preemptions
from extender.plugins.quota.limit_use import quotas
from extender.tools.table import TablePage, TableView, page

_MOST: Final = 10_000
_DEFAULT: Final = 500


class Paging(BaseModel):
    """Which rows, and in which format. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=_DEFAULT, ge=1, le=_MOST, description="The largest number of rows.")
    token: str = Field(default="", alias="continue", description="The token at the end of the page before.")
    format: Format | None = Field(default=None, description="Overrides the Accept header.")

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out rows, as far as they are given."""
        return self.model_dump(mode="json", by_alias=True, exclude={"limit", "token", "format"}, exclude_defaults=True)


_Q = TypeVar("_Q", bound=Paging)


@dataclass(frozen=True, slots=True)
class Table(Generic[_Q]):
    """A table. Its path, its place in OpenAPI and its answers are made from this entry.

    Attributes:
        name: the path, and the word for the rows.
        query: the parameters; without any of them, the table has all rows.
        view: the rows. It is called on the event loop, and the rows are made in a thread.
        example: a row.
        kinds: the kinds of objects that the rows come from.
        rows: the word for the rows, if it is not the name.
        when_empty: what a table without rows means.
        selects: whether the rows need the selectors of classes on all devices.
        without_names: the query of a caller that may not read the names of all pods, where this right is needed.
    """

    name: str
    summary: str
    query: type[_Q]
    view: Callable[[Overview, _Q], TableView]
    example: Mapping[str, JSON]
    kinds: tuple[Resource, ...] = ()
    rows: str = ""
    when_empty: str = ""
    selects: Callable[[_Q], bool] = lambda _: False
    without_names: Callable[[_Q], _Q] | None = None


def add_table(app: FastAPI, overview: Overview, table: Table[_Q]) -> None:
    """Answer at the path of the table."""

    async def get(request: Request, query: _Q) -> Response:
        form = query.format or format_for(request)
        if table.without_names is not None and not await _may_read_names(request):
            query = table.without_names(query)
        off_loop = overview.offload(caller_of(request.scope), selects=table.selects(query))
        page_of = _page(table, overview, query)
        if form is Format.CSV:
            return _csv_reply(table.name, *await off_loop(lambda: _csv_of(page_of())))
        if form is Format.JSON:
            return Response(await off_loop(lambda: wire.as_line(page_of().as_json())), media_type="application/json")
        return Response(await off_loop(lambda: page_of().as_text()), media_type="text/plain")

    get.__annotations__["query"] = Annotated[table.query, Query()]  # FastAPI reads the parameters from it
    app.add_api_route(
        f"/{table.name}",
        get,
        methods=["GET"],
        name=f"get_{table.name}",
        summary=table.summary,
        tags=["views"],
        response_class=Response,
        responses=_responses(table.example),
    )


def _csv_of(page: TablePage) -> tuple[TablePage, str]:
    return page, page.as_csv()


def _csv_reply(name: str, page: TablePage, text: str) -> Response:
    """A file for a spreadsheet. What is to be known beside the rows stands in headers."""
    rest = {"X-Note": printable(page.note).encode("ascii", "replace").decode(), "X-Continue": page.token}
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"', **{k: v for k, v in rest.items() if v}}
    return Response(text, media_type="text/csv", headers=headers)


async def _may_read_names(request: Request) -> bool:
    """Whether the caller may read the table of all pods, and so all names; everybody on loopback may."""
    may = request.scope.get(MAY)
    return may is None or await may("get", "/pods")


def _page(table: Table[_Q], overview: Overview, query: _Q) -> Callable[[], TablePage]:
    """Makes a page; to be called in a thread: there may be tens of thousands of rows.

    Raises:
        QueryError: a parameter names nothing.
        SearchLimitError: the rows took too long; raised by the call.
    """
    wanted, everything = table.view(overview, query), table.view(overview, table.query())
    doubts = [(kind.plural, doubt) for kind in table.kinds if (doubt := overview.state.doubt_of(kind))]

    def made() -> TablePage:
        found = page(wanted, limit=query.limit, token=query.token, pause=overview.verb_priority.turn())
        if doubts:
            why = "; ".join(f"{plural}: {doubt}" for plural, doubt in doubts)
            return found.noting(f"rows may be missing or old: {why}")
        return found if found.items else found.noting(_why_empty(table, query, everything, overview))

    return made


def _why_empty(table: Table[_Q], query: _Q, everything: TableView, overview: Overview) -> str:
    """Why there is no row, although the cluster is known."""
    if not (query.filters or query.token) or next(everything.rows, None) is None:
        return table.when_empty or f"there are no {table.rows or table.name}"
    if query.token:
        return "there are no rows after the page before"
    given = ", ".join(f"{name}={shown(value)}" for name, value in query.filters.items())
    return "; ".join(
        (
            f"there are {table.rows or table.name}, but none with {given}",
            *_meant(query.filters, overview.state.snapshot),
        )
    )


def _responses(example: Mapping[str, JSON]) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"example": {"items": [example]}}, "text/plain": {}, "text/csv": {}}
    return {
        200: {
            "description": (
                'The rows. "continue", in JSON or in the last line of text, is the token of the next page; '
                '"note" says why rows are missing.'
            ),
            "content": content,
        },
        400: {"description": "A parameter is unknown, invalid, or given twice."},
        406: {"description": "Neither text nor JSON is accepted."},
        503: {"description": "It takes too long to find the rows."},
    }


def text_of(value: Enum | None) -> str:
    """The text of a parameter; empty if it is absent."""
    return "" if value is None else str(value.value)


class Pools(Paging):
    """Which pools."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    node: str = Field(default="", description="With devices for this node only.", examples=["node-0"])


_POOLS: Final = Table(
    "pools",
    "Pools, and what is free in them.",
    Pools,
    lambda overview, query: pools(
        overview.state.snapshot, overview.features, overview.devices, driver=query.driver, node=query.node
    ),
    {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "generation": 1,
        "slices": "1/1",
        "created": "2026-01-01T00:00:00Z",
        "node": "node-0",
        "devices": 8,
        "free": 7,
        "states": {"free": 7, "allocated": 1},
        "partitions": {"free": 49, "blocked": 7},
        "problem": "",
    },
    (SLICES, CLAIMS, TAINT_RULES, NODES),
)


class Devices(Paging):
    """Which devices."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    pool: str = Field(default="", description="Of the pools of this name.", examples=["node-0"])
    device: str = Field(default="", description="Of this name within its pool.", examples=["gpu-0"])
    node: str = Field(default="", description="For this node only.", examples=["node-0"])
    device_class: str = Field(
        default="", alias="class", description="Of this device class, by its selectors.", examples=["gpu"]
    )
    state: DeviceState | None = Field(default=None, description="In this state.", examples=["allocated"])
    free: bool | None = Field(default=None, description="Only free devices, or only others.", examples=["true"])
    count: bool = Field(
        default=False,
        description="How many devices of each driver are in each state, partitions apart.",
        examples=["true"],
    )
    wide: bool = Field(default=False, description="With attributes and capacities.", examples=["true"])

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out devices."""
        return {name: value for name, value in super().filters.items() if name not in ("count", "wide")}


def _devices(overview: Overview, query: Devices) -> TableView:
    snapshot, states = overview.state.snapshot, overview.devices
    members = _members(overview, query.device_class) if query.device_class else None
    wanted = DeviceFilter(query.driver, query.pool, query.node, text_of(query.state), query.free, members, query.device)
    return (
        device_numbers(snapshot, states, wanted) if query.count else devices(snapshot, states, wanted, wide=query.wide)
    )


def _members(overview: Overview, device_class: str) -> ClassMembers:
    return ClassMembers(class_of(device_class, overview.state.snapshot), overview.selectors())


_DEVICES: Final = Table(
    "devices",
    "Devices: whether a claim can have them, and who holds them.",
    Devices,
    _devices,
    {
        "driver": "gpu.example.com",
        "pool": "node-0",
        "device": "gpu-0",
        "node": "node-0",
        "kind": "physical",
        "state": "allocated",
        "claims": ["default/gpu"],
        "taints": [],
        "blockedBy": [],
        "why": "",
    },
    (SLICES, CLAIMS, TAINT_RULES, NODES, CLASSES),
    selects=lambda query: bool(query.device_class),
)


class Resources(Paging):
    """Which devices, and what a row is about."""

    driver: str = Field(default="", description="Of this driver.", examples=["gpu.example.com"])
    node: str = Field(default="", description="For this node only.", examples=["node-0"])
    device_class: str = Field(
        default="", alias="class", description="Of this device class, by its selectors.", examples=["gpu"]
    )
    by: By = Field(
        default=By.NODE,
        description="What a row is about: equal devices of a node, equal devices of all nodes, or a device class.",
        examples=["class"],
    )
    properties: str = Field(
        default="",
        description="The properties that tell devices apart, with commas between them. Without this parameter, all "
        "that do not name a device or its place.",
        examples=["model"],
    )
    wide: bool = Field(default=False, description="With the states and names of the devices.", examples=["true"])

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out devices."""
        return {name: value for name, value in super().filters.items() if name in ("driver", "node", "class")}


def _resources(overview: Overview, query: Resources) -> TableView:
    snapshot, selectors = overview.state.snapshot, overview.selectors()
    members = {name: ClassMembers(each, selectors) for name, each in snapshot.classes.items() if each.group is None}
    wanted = DeviceFilter(query.driver, node=query.node)
    if query.device_class:
        only = ClassMembers(class_of(query.device_class, snapshot), selectors)
        if query.by is By.CLASS:
            members = {query.device_class: only}
        else:
            wanted = replace(wanted, members=only)
    properties = frozenset(filter(None, map(str.strip, query.properties.split(","))))
    return resources(snapshot, overview.devices, members, wanted, by=query.by, properties=properties, wide=query.wide)


_RESOURCES: Final = Table(
    "resources",
    "Devices with equal properties: how many there are, and how many of them are free.",
    Resources,
    _resources,
    {
        "node": "node-0",
        "resource": "example.com/gpu-3f2a91bc",
        "driver": "gpu.example.com",
        "attributes": {"model": "h100"},
        "capacity": {"memory": "80Gi"},
        "nodes": 1,
        "devices": 8,
        "allocatable": 8,
        "free": 5,
        "inUse": 3,
        "classes": {"gpu": 8},
    },
    (SLICES, CLAIMS, TAINT_RULES, NODES, CLASSES),
    selects=lambda _: True,
)


_CLUSTER: Final = Table(
    "cluster",
    "How well is each kind of object known?",
    Paging,
    lambda overview, _: kinds(overview.kinds()),
    {"kind": "nodes", "objects": 2, "unreadable": 0, "revision": 17, "age": 3.2, "ready": True, "problem": ""},
)


class Claims(Paging):
    """Which claims."""

    namespace: str = Field(default="", description="Of this namespace.", examples=["default"])
    state: ClaimState | None = Field(default=None, description="In this state.", examples=["pending"])
    pod: str = Field(
        default="",
        description="Of a pod of this name: the pod names the claim or owns it, or the claim is reserved for the pod.",
        examples=["plain"],
    )
    claim: str = Field(default="", description="Of this name.", examples=["gpu"])
    wide: bool = Field(default=False, description="With what constraints say about the devices.", examples=["true"])

    @property
    def filters(self) -> Mapping[str, JSON]:
        """The parameters that leave out claims."""
        return {name: value for name, value in super().filters.items() if name != "wide"}


_CLAIMS: Final = Table(
    "claims",
    "Claims, and what they hold.",
    Claims,
    lambda overview, query: claims(
        overview.state.snapshot,
        namespace=query.namespace,
        state=text_of(query.state),
        pod=query.pod,
        claim=query.claim,
        wide=query.wide,
    ),
    {
        "namespace": "default",
        "claim": "gpu",
        "uid": "6a1f43f0-6b0a-4a57-a6d5-6f4f5c1e1c6e",
        "created": "2026-01-01T00:00:00Z",
        "state": "reserved",
        "devices": ["gpu.example.com/node-0/gpu-0"],
        "reservedFor": ["training"],
    },
    (CLAIMS, PODS),
)


class Pods(Paging):
    """Which pods."""

    namespace: str = Field(default="", description="Of this namespace.", examples=["default"])
    state: PodState | None = Field(default=None, description="In this state.", examples=["pending"])
    node: str = Field(default="", description="Bound to this node.", examples=["node-0"])
    pod: str = Field(default="", description="Of this name.", examples=["training"])


_PODS: Final = Table(
    "pods",
    "Pods with devices, what they ask for, and why they wait.",
    Pods,
    lambda overview, query: pods(
        overview.state.snapshot,
        waiting_reasons(overview, overview.state.snapshot),
        overview.now(),
        namespace=query.namespace,
        state=text_of(query.state),
        node=query.node,
        pod=query.pod,
    ),
    {
        "namespace": "default",
        "pod": "training",
        "uid": "0b8a5c66-93a2-4c1e-8d0e-1d5a0f6c2f11",
        "state": "pending",
        "created": "2026-01-01T00:00:00Z",
        "age": 312,
        "priority": 0,
        "scheduler": "dra-scheduler",
        "node": "",
        "nominatedNode": "",
        "requests": ["gpu: 1 gpu.example.com"],
        "reason": "2x no free device for request gpu",
        "decision": "9f86d081",
        "explain": "/explain/default/training",
    },
    (PODS, CLAIMS, TEMPLATES),
    when_empty="no pod asks for devices",
)


class OfNamespace(Paging):
    """Which rows, of a table that is filtered by namespace alone."""

    namespace: str = Field(default="", description="Of this namespace.", examples=["default"])


_QUOTAS: Final = Table(
    "quotas",
    "DeviceQuotas, and what is used of them.",
    OfNamespace,
    lambda overview, query: quotas(overview.state.snapshot, overview.decider.solver, namespace=query.namespace),
    {
        "namespace": "default",
        "quota": "gpus",
        "limit": "gpu",
        "of": "class gpu.example.com",
        "counts": "devices",
        "hard": "8",
        "used": "5",
        "kept": "",
        "borrowed": "",
        "cohort": "research",
        "problem": "",
    },
    (DEVICE_QUOTAS, CLAIMS, SLICES),
    when_empty="there are no DeviceQuotas",
)


class Gangs(OfNamespace):
    """Which gangs."""

    state: GangState | None = Field(default=None, description="In this state.", examples=["waits"])


_GANGS: Final = Table(
    "gangs",
    "Gangs: how many of their pods have a node, and what the others wait for.",
    Gangs,
    lambda overview, query: gangs(overview.state.snapshot, namespace=query.namespace, state=text_of(query.state)),
    {
        "namespace": "default",
        "gang": "training",
        "kind": "PodGroup",
        "state": "waits",
        "size": 4,
        "pods": 3,
        "bound": 0,
        "kept": 0,
        "priority": 0,
        "created": "2026-01-01T00:00:00Z",
        "waiting": ["training-0", "training-1", "training-2"],
        "why": "waiting for the pods of group training: 3 of 4 are there",
    },
    (PODS, POD_GROUPS),
    when_empty="no pod with devices is in a gang",
)


_PREEMPTIONS: Final = Table(
    "preemptions",
    "Pods for which others are evicted, and how far that has come.",
    OfNamespace,
    lambda overview, query: preemptions(overview.state.snapshot, namespace=query.namespace),
    {
        "namespace": "default",
        "pod": "urgent",
        "priority": 1000,
        "created": "2026-01-01T00:00:00Z",
        "node": "node-0",
        "state": "terminating",
        "victims": ["default/training"],
        "devices": ["gpu.example.com/node-0/gpu-0"],
    },
    (PODS,),
    when_empty="no pod waits for evictions",
)


_KINDS: Final = (*RESOURCES, SCHEDULER)


def _kind(name: str) -> str:
    if name not in _KINDS:
        raise ValueError(f'unknown kind "{name}" (known: {", ".join(_KINDS)})')
    return name


class Problems(Paging):
    """Which problems."""

    kind: Annotated[str, AfterValidator(_kind)] = Field(
        default="",
        description="Of objects of this kind.",
        examples=["ResourceSlice"],
        json_schema_extra={"enum": [*_KINDS]},
    )
    namespace: str = Field(
        default="", description="Of objects of this namespace, and of those without one.", examples=["default"]
    )
    names: bool = Field(
        default=True,
        description="Also of objects that are in a namespace. Who may not read /pods gets none of these.",
        examples=["false"],
    )


_PROBLEMS: Final = Table(
    "problems",
    "What is wrong, since when, what it costs, and what to do.",
    Problems,
    lambda overview, query: problems(
        overview.found_problems, overview.now(), kind=query.kind, namespace=query.namespace, names=query.names
    ),
    {
        "cause": "unreadable",
        "kind": "ResourceSlice",
        "object": "node-0-gpu.example.com-x7k2p",
        "since": "2026-01-01T00:00:00+00:00",
        "age": 312,
        "problem": 'spec.pool.generation: expected an integer, not "1"',
        "cost": "the object counts as absent",
        "advice": "correct the object",
    },
    tuple(RESOURCES.values()),
    when_empty="no problem is known",
    without_names=lambda query: query.model_copy(update={"names": False}),
)


class Decisions(Paging):
    """Which decisions."""

    namespace: str = Field(default="", description="About pods of this namespace.", examples=["default"])
    pod: str = Field(default="", description="About pods of this name.", examples=["plain"])
    verb: Literal["filter", "preempt", "bind"] | None = Field(
        default=None, description="By this verb.", examples=["filter"]
    )


_DECISIONS: Final = Table(
    "decisions",
    "What was decided, the latest first.",
    Decisions,
    lambda overview, query: decisions(
        overview.decision_log.entries, namespace=query.namespace, pod=query.pod, verb=query.verb or ""
    ),
    {
        "time": "2026-01-01T00:00:00.000+00:00",
        "id": "9f86d081",
        "verb": "filter",
        "namespace": "default",
        "pod": "training",
        "node": "",
        "passed": 1,
        "rejected": {"no free device for request gpu": 2},
        "milliseconds": 0.8,
        "error": "",
    },
    when_empty="no scheduler has asked this replica about a pod with devices (only the replica whose scheduler leads "
    "is asked)",
)

TABLES: Final[tuple[Table[Any], ...]] = (
    _CLUSTER,
    _POOLS,
    _DEVICES,
    _RESOURCES,
    _CLAIMS,
    _PODS,
    _QUOTAS,
    _GANGS,
    _PREEMPTIONS,
    _PROBLEMS,
    _DECISIONS,
)


def add_tables(app: FastAPI, overview: Overview) -> None:
    """All of them, each at the path of its name."""
    for table in TABLES:
        add_table(app, overview, table)


_KNOWN: Final[Mapping[str, Callable[[Snapshot], Collection[str]]]] = {
    "driver": lambda snapshot: {pool.driver for pool in snapshot.inventory.pools},
    "pool": lambda snapshot: {pool.pool for pool in snapshot.inventory.pools},
    "device": lambda snapshot: {device for pool in snapshot.inventory.pools.values() for device in _device_names(pool)},
    "node": lambda snapshot: snapshot.nodes,
    "namespace": lambda snapshot: {key.namespace for key in (*snapshot.pods, *snapshot.claims)},
    "pod": lambda snapshot: {key.name for key in snapshot.pods},
    "claim": lambda snapshot: {key.name for key in snapshot.claims},
}
"""The names that parameters of tables can have. Device classes are not among them: an unknown class is an error."""


def _device_names(pool: Pool) -> Iterator[str]:
    return (device.id.device for origin in pool.newest for device in origin.devices)


def _meant(given: Mapping[str, JSON], snapshot: Snapshot) -> Iterator[str]:
    """``did you mean node="node-0"?`` for each parameter whose value misspells a name."""
    for parameter, value in given.items():
        if parameter in _KNOWN and isinstance(value, str):
            known = _KNOWN[parameter](snapshot)
            near = "" if value in known else meant_by(value, known)
            if near:
                yield f'did you mean {parameter}="{near}"?'
