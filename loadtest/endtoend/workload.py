"""What is scheduled, and what goes on beside it, as a file in ``loadtest/workloads`` says it."""

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from extender.config.settings import Transport
from extender.tools.user_error import suggestion
from loadtest.endtoend.files import FileError, Record, read
from tests.kit.objects.parts import DRIVER
from tests.kit.objects.worlds import Machine
from tests.kit.objects.worlds import Wish as PlainWish

FOLDER: Final = Path(__file__).parents[1] / "workloads"

Positive = Annotated[int, Field(ge=1)]
Text = Annotated[str, Field(min_length=1)]
SubjectName = Literal["in-tree", "dra-extender", "idle"]

IN_TREE: Final = "in-tree"
OURS: Final = "dra-extender"
IDLE: Final = "idle"
ORDER: Final[tuple[SubjectName, ...]] = (IN_TREE, OURS, IDLE)
"""In which the subjects take turns and are shown."""


class Devices(Record):
    """What each node has.

    Attributes:
        gpus: whole devices.
        roots: PCIe roots that they are spread over.
        partitioned: each GPU can be had as a whole or in seven parts.
    """

    gpus: Positive = 8
    roots: Positive = 2
    partitioned: bool = False

    @property
    def machine(self) -> Machine:
        """The same, to make nodes of."""
        return Machine(self.gpus, self.roots, self.partitioned)


class Wish(Record):
    """A claim with a request for each of the counts.

    Attributes:
        counts: of devices.
        selector: name of one of the workload's.
        match: the attribute that all devices must have in common; empty: none.
        device_class: name of one of the workload's.
    """

    counts: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1,)
    selector: Text
    match: str = ""
    device_class: Text = DRIVER


class Arrival(Record):
    """When pods that are to get a node come.

    Attributes:
        when: all are there before the scheduler starts, or they come once it runs.
        per_second: the number of new pods each second; 0: as fast as they can be made.
    """

    when: Literal["before", "during"] = "before"
    per_second: Annotated[float, Field(ge=0)] = 0


class Churn(Record):
    """Pods that finish.

    Attributes:
        living: share of the pods that live at a time: for each that gets a node beyond, the oldest one goes. 1: all.
    """

    living: Annotated[float, Field(gt=0, le=1)] = 1.0


class Hopeless(Record):
    """Pods that fit nowhere; they are there before the scheduler starts, and it meets them first.

    Attributes:
        per_pod: how many for each pod that is to get a node.
        wish: what they ask for, and no node has.
    """

    per_pod: Annotated[float, Field(gt=0)] = 1.0
    wish: Wish


class Workload(Record):
    """Pods, and what goes on beside them.

    Attributes:
        about: what is special about it, in words.
        nodes: how many there are, in one run after the other.
        pods: that are to get a node, each with one claim.
        repetitions: of each run.
        subjects: that schedule it in turn.
        classes: the CEL selectors of device classes, by their names.
        selectors: CEL expressions, by the names that wishes have for them.
        wishes: a pod's claim is the next of these in turn; none: pods without claims.
        claims: whether pods name them, or have them made from templates.
        controllers: of negotiated claims; each pod has one more claim, of the next of these in turn.
        transports: how the controllers are asked, in one run after the other.
        hopeless: beside them, pods that fit nowhere.
        status_updates_per_second: of pods that run and report.
        undisturbed: name of the workload that is the same without what goes on beside; it has its runs as well, with as
            many pods.
    """

    about: Text
    nodes: Annotated[tuple[Positive, ...], Field(min_length=1)] = (500,)
    pods: Annotated[int, Field(ge=2)] = 1000
    repetitions: Positive = 3
    subjects: Annotated[tuple[SubjectName, ...], Field(min_length=1)] = ORDER
    devices: Devices = Devices()
    classes: dict[Text, Text] = Field(default_factory=lambda: {DRIVER: f'device.driver == "{DRIVER}"'})
    selectors: dict[Text, Text] = Field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    claims: Literal["by-name", "from-templates"] = "by-name"
    controllers: Annotated[int, Field(ge=0)] = 0
    transports: Annotated[tuple[Transport, ...], Field(min_length=1)] = ("Http",)
    arrival: Arrival = Arrival()
    churn: Churn = Churn()
    hopeless: Hopeless | None = None
    status_updates_per_second: Annotated[int, Field(ge=0)] = 0
    undisturbed: str = ""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if wrong := list(self._contradictions()):
            raise ValueError("; ".join(wrong))
        return self

    def by_transport(self, name: str) -> dict[str, "Workload"]:
        """The workload by its name; with several transports, a workload for each, whose name says which."""
        if len(self.transports) == 1:
            return {name: self}
        return {f"{name} by {each}": self.model_copy(update={"transports": (each,)}) for each in self.transports}

    @property
    def asked(self) -> tuple[Transport, ...]:
        """How each of the controllers is asked."""
        return tuple(islice(cycle(self.transports), self.controllers))

    def plain(self, wish: Wish) -> PlainWish:
        """A wish with its selector in full, to make claims of."""
        return PlainWish(wish.counts, self.selectors[wish.selector], wish.match, wish.device_class)

    def _contradictions(self) -> Iterator[str]:
        wishes = {f"wishes.{number}": wish for number, wish in enumerate(self.wishes)}
        if self.hopeless:
            wishes["hopeless.wish"] = self.hopeless.wish
        for field, wish in wishes.items():
            yield from _unknown(f"{field}.selector", wish.selector, self.selectors)
            yield from _unknown(f"{field}.deviceClass", wish.device_class, self.classes)
        if self.hopeless and IDLE in self.subjects:
            yield f'subjects: "{IDLE}" decides nothing, so the hopeless pods would get a node'
        if self.controllers and (set(self.subjects) != {OURS} or self.claims == "from-templates" or not self.wishes):
            yield f'controllers: only "{OURS}" asks them, and pods with wishes name their claims'
        if len(set(self.transports)) < len(self.transports):
            yield f"transports: one is there twice: {', '.join(self.transports)}"
        if self.arrival.per_second and self.arrival.when == "before":
            yield f'arrival.perSecond: {self.arrival.per_second:g}, but pods come "before"; expected "during"'
        if self.claims == "from-templates" and not self.wishes:
            yield 'claims: "from-templates", but there are no wishes'
        if len(set(self.subjects)) < len(self.subjects):
            yield f"subjects: one is there twice: {', '.join(self.subjects)}"


def _unknown(field: str, name: str, known: Mapping[str, str]) -> Iterator[str]:
    if name not in known:
        yield f'{field}: there is no "{name}"{suggestion(name, known)}'


def named(given: str, folder: Path = FOLDER) -> tuple[str, Workload]:
    """A workload and its name.

    Args:
        given: a file, or the name of one in the folder.
        folder: where workloads are.

    Raises:
        FileError: there is none, or not one that can be used.
    """
    shipped = {path.stem: path for path in folder.glob("*.yaml")}
    path = shipped.get(given) or Path(given)
    if not path.suffix and not path.exists():
        raise FileError([f'there is no workload "{given}"{suggestion(given, shipped)}'])
    return path.stem, read(Workload, path)
