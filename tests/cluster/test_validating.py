"""`validate` refuses what an API server refuses, and takes what it takes: objects by the hundred, in dry runs.

``VALIDATED_OBJECTS`` says how many, ``VALIDATED_SEED`` repeats a run.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Final

import pytest

from extender.kube.api import ApiError, OutcomeUnknownError
from extender.kube.claim_rules import check_expression
from extender.kube.resources import NAMESPACES, OF_KUEUE, QUOTAS, RESOURCES, Resource
from extender.lab.manifests import load_objects
from tests.cluster.mutations import Mutant, mutants
from tests.cluster.valid_objects import valid_objects
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ALL_VERSIONS, ControlPlane, Options
from tests.kit.controlplane.definitions import CONTEXT, DEVICE_QUOTA, RESOURCE_CLASS, define
from tests.kit.controlplane.own import own_plane

COUNT: Final = int(os.environ.get("VALIDATED_OBJECTS", "150"))
SEED: Final = int(os.environ.get("VALIDATED_SEED", "0")) or SystemRandom().randrange(1, 2**31)
KINDS: Final = {each.kind: each for each in (*RESOURCES.values(), NAMESPACES, QUOTAS) if each not in OF_KUEUE}
"""What a manifest may have. Kueue checks its own objects."""


@dataclass(frozen=True, slots=True)
class Known:
    """A difference that stays.

    Attributes:
        kind: of the objects; empty: any.
        theirs: a pattern of the API server's message; empty: it takes the object.
        ours: a pattern of what `validate` says; empty: it takes the object.
        reason: why it stays.
    """

    kind: str
    theirs: str
    ours: str
    reason: str

    def has(self, difference: "Difference") -> bool:
        """Whether it is this difference."""
        return (
            self.kind in {"", difference.kind}
            and bool(re.search(self.theirs, difference.theirs) if self.theirs else not difference.theirs)
            and bool(re.search(self.ours, difference.ours) if self.ours else not difference.ours)
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """An object that one takes and the other refuses; ``theirs`` and ``ours`` say why, or are empty."""

    kind: str
    told: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        theirs, ours = self.theirs or "takes it", self.ours or "takes it"
        return f"{self.kind}: {self.told}\n    server: {theirs}\n    validate: {ours}"


_OTHER_OBJECT: Final = "it depends on objects that are not in the manifest"
_NOT_READ: Final = "a field that nothing here reads"
KNOWN: Final = (
    Known("", "no PriorityClass with name", "", _OTHER_OBJECT),
    Known(
        "Pod",
        r"spec\.(containers|(initC|c)ontainers\[\d\]\.image): Required value$",
        "",
        f"{_NOT_READ}; without containers, a pod asks for nothing",
    ),
    Known(
        "", "", "(null is not|is required)", "a null or an empty value that an API server reads as zero is a mistake"
    ),
    Known(
        "DeviceQuota",
        "",
        r"cel\.expression",
        "a definition of a kind cannot say what compiles; the quota would not count",
    ),
    Known(
        "ResourceSlice",
        "",
        "is not min and n times",
        "without the gate DRAFractionalCapacityRange, an API server rounds fractions of a step",
    ),
    Known(
        "ResourceClass",
        "",
        r"spec\.members",
        "a definition of a kind has no rule for keys; the class would not be accepted",
    ),
)


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that serves all kinds, also PodGroups."""
    gates = {**ALL_VERSIONS.feature_gates, "GenericWorkload": True}
    versions = {**ALL_VERSIONS.runtime_config, "scheduling.k8s.io/v1beta1": True}
    with own_plane(binaries, logs, "validating", Options(feature_gates=gates, runtime_config=versions)) as running:
        yield running


@pytest.fixture
async def server(client: Client, kubernetes: str) -> Client:
    """An API server with our own kinds."""
    if kubernetes == "1.36":
        pytest.skip("1.36 serves PodGroups in another version")
    for definition in (DEVICE_QUOTA, RESOURCE_CLASS, CONTEXT):
        try:
            await define(client, definition)
        except ApiError as error:
            if error.reason != "AlreadyExists":  # the tests of this module share them
                raise
    return client


async def theirs_of(client: Client, resource: Resource, mutant: Mutant, namespace: str) -> str:
    """Why the API server refuses an object; empty if it takes it."""
    version = str(mutant.object["apiVersion"]).rpartition("/")[2]
    speaking = client.speaking(version) if resource.group == "resource.k8s.io" else client
    try:
        await speaking.try_to_create(resource, mutant.object, namespace)
    except (ApiError, OutcomeUnknownError) as error:
        return str(error) or "refused"
    return ""


def ours_of(mutant: Mutant) -> str:
    """Why `validate` refuses an object; empty if it takes it."""
    return "; ".join(load_objects([mutant.object], "object", check_expression).problems)


@pytest.mark.parametrize("resource", KINDS.values(), ids=KINDS)
async def test_valid_objects_are_valid(server: Client, namespace: str, resource: Resource) -> None:
    for each in valid_objects(namespace)[resource.kind]:
        as_it_is = Mutant(each, "as it is")
        assert (await theirs_of(server, resource, as_it_is, namespace), ours_of(as_it_is)) == ("", "")


async def test_validate_says_what_an_api_server_says(
    server: Client, namespace: str, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    known: Counter[Known] = Counter()
    others: list[Difference] = []
    refused = 0
    for each in mutants(valid_objects(namespace), COUNT, SEED):
        kind = str(each.object["kind"])
        theirs, ours = await theirs_of(server, KINDS[kind], each, namespace), ours_of(each)
        refused += bool(theirs)
        if bool(theirs) != bool(ours):
            difference = Difference(kind, each.told, theirs, ours)
            row = next((one for one in KNOWN if one.has(difference)), None)
            known.update([row] if row else [])
            others += [] if row else [difference]
    told = [f"seed {SEED}: {COUNT} objects, {refused} refused by the server, {known.total()} differ as known"]
    told += [f"  {count} {row.kind or 'of any kind'}: {row.reason}" for row, count in known.most_common()]
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:  # a worker of xdist has none
        with capsys.disabled():
            reporter.write_line("\n".join(["", *told]))
    assert not others, "\n".join([*told, f"VALIDATED_SEED={SEED} VALIDATED_OBJECTS={COUNT}", *map(str, others)])
