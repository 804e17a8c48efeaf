"""`kubectl dra` on a real control plane: its API server forwards the ports, authorizes users, and has the objects."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from extender.cluster.objects.pods import WAITS
from extender.faces.commands.answer_source import Place, open_source
from extender.faces.commands.main import kubectl_app
from extender.faces.commands.top import look
from extender.kube.api import ObjectKey, RawObject
from extender.kube.connection.credentials import Origin
from extender.kube.resources import CLAIMS, PODS, TEMPLATES, Resource
from extender.plugins.requeue.unserved import DELAY_SECONDS
from tests.kit.controlplane.access import ADMIN, ROLE_BINDINGS, Access
from tests.kit.controlplane.access import ROLES as ROLES_OF_NAMESPACE
from tests.kit.controlplane.binaries import BinariesError, find_kubectl
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.port_forwarding import Forwarder, add_service_pod, forwarding_node
from tests.kit.controlplane.scenario import GPUS, bound, by_name, by_template, rejection
from tests.kit.controlplane.service import Extender, running_extender
from tests.kit.objects.manifests import claim, pod, request, requests, template
from tests.kit.waiting import wait_for_answer

SYSTEM = "kube-system"
LEADER = ObjectKey(SYSTEM, gethostname())
"""The scheduler holds its lease under the name of its host, which is that of its pod."""

STANDBY = ObjectKey(SYSTEM, "dra-extender-standby")
RBAC = "rbac.authorization.k8s.io"
ROLES = Resource("ClusterRole", "clusterroles", RBAC, ("v1",), namespaced=False)
BINDINGS = Resource("ClusterRoleBinding", "clusterrolebindings", RBAC, ("v1",), namespaced=False)
ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", "", ("v1",), namespaced=True)
FORWARDS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]},
]


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command has printed, and its exit code."""

    code: int
    output: str
    messages: str

    @property
    def items(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = orjson.loads(self.output)["items"]
        return found


@dataclass(slots=True)
class Site:
    """A node that forwards ports, with the pods of dra-extender on it."""

    client: Client
    plane: ControlPlane
    forwarder: Forwarder
    extender: Extender
    folder: Path
    files: list[Path] = field(default_factory=list)

    def kubeconfig(self, token: str = "") -> Path:
        access = self.plane.access(ADMIN)
        path = self.folder / f"{len(self.files)}.kubeconfig"
        self.files.append(path)
        return Access(access.url, token or access.token, access.certificate).write_kubeconfig(path)

    async def call(self, *arguments: str, kubeconfig: Path | None = None) -> Printed:
        """Run a command as the administrator, or with another kubeconfig."""
        line = [*arguments, "--kubeconfig", str(kubeconfig or self.kubeconfig())]
        result = await asyncio.to_thread(CliRunner().invoke, kubectl_app, line)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Printed(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
async def kubectl(client: Client, plane: ControlPlane, site: Extender, tmp_path: Path) -> AsyncIterator[Site]:
    async with forwarding_node(client, "forwarding", tmp_path) as forwarder:
        await add_service_pod(client, forwarder, LEADER, port_of(site))
        yield Site(client, plane, forwarder, site, tmp_path)
        await client.delete(PODS, LEADER)


@pytest.fixture
async def waiting(client: Client, namespace: str, gpu: Driver) -> str:
    """A pod with one of two GPUs, and a pod that asks for two."""
    await gpu.publish("site-0", GPUS)
    for name, count in (("one", 1), ("two", 2)):
        await client.create(TEMPLATES, template(namespace, name, requests(request("gpu", gpu.name, count=count))))
        await client.create(PODS, pod(namespace, name, claims=[by_template(name)]))
        if name == "one":
            await bound(client, ObjectKey(namespace, name))
    await rejection(client, ObjectKey(namespace, "two"), about="not enough free devices")
    return namespace


def port_of(extender: Extender) -> int:
    return int(extender.url.rpartition(":")[2])


@asynccontextmanager
async def standby_only(kubectl: Site) -> AsyncIterator[None]:
    """The leader's pod is gone, and another replica is ready."""
    async with running_extender(kubectl.plane) as standby:
        await add_service_pod(kubectl.client, kubectl.forwarder, STANDBY, port_of(standby))
        try:
            await kubectl.client.delete(PODS, LEADER)
            yield
        finally:
            await kubectl.client.delete(PODS, STANDBY)
            await add_service_pod(kubectl.client, kubectl.forwarder, LEADER, port_of(kubectl.extender))


@asynccontextmanager
async def user(client: Client, namespace: str, rules: Sequence[RawObject]) -> AsyncIterator[str]:
    """A service account with some rights; its token."""
    await client.create(
        ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "user", "namespace": namespace}}
    )
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "user"}
    metadata = {"name": f"{namespace}-user"}
    role = await client.create(ROLES, {"metadata": metadata, "rules": list(rules)})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"]}
    binding = await client.create(BINDINGS, {"metadata": metadata, "roleRef": reference, "subjects": [subject]})
    tokens = Resource("TokenRequest", "serviceaccounts/user/token", "", ("v1",), namespaced=True)
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": "user", "namespace": namespace},
        "spec": {},
    }
    yield str((await client.create(tokens, wanted))["status"]["token"])
    await client.delete(BINDINGS, key_of(binding))
    await client.delete(ROLES, key_of(role))


@asynccontextmanager
async def tenant(kubectl: Site, namespace: str) -> AsyncIterator[Path]:
    """Somebody who may read pods, claims and Events of one namespace, as with the role `view`; a kubeconfig."""
    reads = {"verbs": ["get", "list", "watch"]}
    rules = [
        {"apiGroups": [""], "resources": ["pods", "events"], **reads},
        {"apiGroups": [CLAIMS.group], "resources": ["resourceclaims", "resourceclaimtemplates"], **reads},
    ]
    async with user(kubectl.client, namespace, []) as token:
        subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "user"}
        metadata = {"name": "tenant", "namespace": namespace}
        await kubectl.client.create(ROLES_OF_NAMESPACE, {"metadata": metadata, "rules": rules})
        reference = {"apiGroup": RBAC, "kind": "Role", "name": "tenant"}
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        await kubectl.client.create(ROLE_BINDINGS, binding)
        yield kubectl.kubeconfig(token)


async def test_the_leader_tells_who_waits_for_what_and_why(kubectl: Site, waiting: str, gpu: Driver) -> None:
    table = await kubectl.call("pending", "-n", waiting)
    heading, row = table.output.splitlines()
    assert heading.split() == ["NAMESPACE", "POD", "AGE", "REQUESTS", "REASON"]
    assert f"gpu: 2 {gpu.name}" in row
    assert "1x not enough free devices for request gpu" in row
    assert (table.code, table.messages) == (0, "")
    (item,) = (await kubectl.call("pending", "-n", waiting, "-o", "json")).items
    assert (item["pod"], item["state"]) == ("two", "pending")
    assert kubectl.forwarder.opened[-1] == LEADER


async def test_explanations_come_from_the_leader(kubectl: Site, waiting: str) -> None:
    explained = await kubectl.call("explain", "two", "-n", waiting)
    assert explained.code == 1
    assert f"pod {waiting}/two" in explained.output
    on_one = await kubectl.call("why-not", "site-0", "pod/two", "-n", waiting)
    assert (on_one.code, "site-0" in on_one.output) == (1, True)
    assert (await kubectl.call("explain", "one", "-n", waiting)).code == 0
    missing = await kubectl.call("explain", "tow", "-n", waiting)
    assert (missing.code, missing.output) == (2, "")
    assert "two" in missing.messages


async def test_devices_and_claims(kubectl: Site, waiting: str, gpu: Driver) -> None:
    found = (await kubectl.call("devices", "--class", gpu.name, "-o", "json")).items
    assert sorted((each["device"], each["state"]) for each in found) == [("gpu-0", "allocated"), ("gpu-1", "free")]
    count = await kubectl.call("devices", "--class", gpu.name, "--count")
    assert [line.split() for line in count.output.splitlines()] == [
        ["DRIVER", "STATE", "DEVICES", "PARTITIONS"],
        [gpu.name, "free", "1", "0"],
        [gpu.name, "allocated", "1", "0"],
    ]
    claims = (await kubectl.call("claims", "-n", waiting, "-o", "json")).items
    assert sorted((each["state"], tuple(each["reservedFor"])) for each in claims) == [
        ("pending", ()),
        ("reserved", ("one",)),
    ]
    wrong = await kubectl.call("devices", "--state", "fre")
    assert (wrong.code, "state" in wrong.messages) == (2, True)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("quota", "there are no DeviceQuotas"),
        ("gangs", "no pod with devices is in a gang"),
        ("preemptions", "no pod waits for evictions"),
    ],
)
async def test_an_empty_list_says_what_there_is_none_of(kubectl: Site, command: str, told: str) -> None:
    found = await kubectl.call(command, "-A")
    assert (found.code, found.output, found.messages) == (0, "", f"note: {told}\n")


async def test_a_simulation_writes_nothing_and_considers_what_is_in_use(
    kubectl: Site, waiting: str, gpu: Driver, tmp_path: Path
) -> None:
    file = tmp_path / "more.yaml"
    made = [claim("", "more", requests(request("gpu", gpu.name))), pod("", "more", claims=[by_name("more")])]
    for each in made:
        each["metadata"].pop("namespace", None)
    file.write_text(yaml.safe_dump_all(made))
    before = await kubectl.client.list(CLAIMS, waiting)
    found = await kubectl.call("simulate", "-f", str(file), "-n", waiting, "-o", "json")
    (placement,) = orjson.loads(found.output)
    assert (placement["pod"], placement["node"]) == (f"{waiting}/more", "site-0"), found
    assert [each["device"] for each in placement["devices"]] == ["gpu-1"]
    assert (await kubectl.client.list(CLAIMS, waiting)).items == before.items


async def test_computed_here_the_answers_are_those_of_the_leader(kubectl: Site, waiting: str) -> None:
    """The leader has the first line of a pod's explanation once it has told the pod."""

    async def answers(*line: str) -> list[dict[str, Any]]:
        items = (await kubectl.call(*line, "-n", waiting, "-o", "json")).items
        return [{name: value for name, value in each.items() if name not in ("age", "decision")} for each in items]

    for command in ("pending", "claims", "devices"):
        here = await answers(command, "--local")
        await wait_for_answer(partial(answers, command), here.__eq__, f"{command}: {here}", within=WAIT_SECONDS)
    explanations = [
        await kubectl.call("explain", "two", "-n", waiting, "-o", "json", *more) for more in ((), ("--local",))
    ]
    there_verdict, here_verdict = (orjson.loads(each.output)["verdict"] for each in explanations)
    assert here_verdict == there_verdict


async def test_top_looks_at_nodes_waiting_pods_and_decisions(kubectl: Site, waiting: str) -> None:
    origin = Origin(str(kubectl.kubeconfig()))
    async with open_source(Place(origin, waiting)) as leader:
        there = await look(leader, waiting)
    async with open_source(Place(origin, waiting, is_local=True)) as computed:
        await computed.refresh()
        here = await look(computed, waiting)
    assert [row for row in there.nodes.rows if row[0] == "site-0"] == [["site-0", "2", "1", "1", "-", "-"]]
    assert (here.nodes, [row[1] for row in here.waiting.rows]) == (there.nodes, ["two"])
    assert "filter" in {row[1] for row in there.decisions.rows}
    assert (here.decisions.rows, here.notes) == ([], ("no service answers, so there are no decisions",))


async def test_simulate_names_pods_for_which_others_would_be_evicted(
    kubectl: Site, waiting: str, important: str, tmp_path: Path
) -> None:
    asking = pod(waiting, "boss", claims=[by_template("two")])
    asking["spec"]["priorityClassName"] = important
    file = tmp_path / "boss.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **asking}))
    found = await kubectl.call("simulate", "-f", str(file), "-n", waiting)
    told = f"dra-extender may evict pods of lower priority for {waiting}/boss; see kubectl dra what-if"
    assert told in found.messages


async def test_without_a_service_the_answer_is_computed_and_that_is_said(kubectl: Site, waiting: str) -> None:
    found = await kubectl.call("pending", "-n", waiting, "-o", "name", "--service-namespace", waiting)
    assert (found.code, found.output) == (0, f"{waiting}/two\n")
    assert "no service answers, so this is computed here: no ready pod with the label" in found.messages


async def test_a_port_on_which_nobody_listens_is_named(kubectl: Site, waiting: str) -> None:
    port = kubectl.forwarder.programs.pop(LEADER)
    try:
        found = await kubectl.call("pending", "-n", waiting, "-o", "name", "--service-port", "8889")
    finally:
        kubectl.forwarder.programs[LEADER] = port
    assert (found.code, found.output) == (0, f"{waiting}/two\n")
    assert f"pod {LEADER}: failed to connect to localhost:8889" in found.messages


async def test_a_standby_that_answers_says_that_reasons_may_be_missing(kubectl: Site, waiting: str) -> None:
    async with standby_only(kubectl):
        found = await kubectl.call("pending", "-n", waiting)
    assert found.code == 0
    assert "no scheduler has asked this replica about the pod lately" in found.output
    assert (
        f"{STANDBY} answers, which may not lead: the leader {LEADER.name} is not among the ready pods" in found.messages
    )


# --- what if -------------------------------------------------------------------------------------------------


@pytest.fixture
def one_more(tmp_path: Path) -> str:
    """A file with a question: what if there were another node like the one with the devices?"""
    file = tmp_path / "question.yaml"
    file.write_text("nodes: [{like: site-0}]\n")
    return str(file)


def check_one_more(found: Printed, namespace: str) -> None:
    """The pod that waits for two devices gets both of the new node."""
    assert found.code == 0, found
    (two,) = [each for each in orjson.loads(found.output)["pods"] if each["pod"] == f"{namespace}/two"]
    assert (two["difference"], two["then"]["node"]) == ("gets a place", "new-site-0-1")
    assert len(two["then"]["devices"]) == 2


async def test_the_leader_says_what_would_be_and_nothing_is_written(kubectl: Site, waiting: str, one_more: str) -> None:
    before = await kubectl.client.list(CLAIMS, waiting)
    found = await kubectl.call("what-if", "-f", one_more, "-o", "json")
    check_one_more(found, waiting)
    assert (found.messages, kubectl.forwarder.opened[-1]) == ("", LEADER)
    text = await kubectl.call("what-if", "-f", one_more)
    assert f"pod {waiting}/two would get a place\n" in text.output
    assert "Nothing was written" in text.output
    assert (await kubectl.client.list(CLAIMS, waiting)).items == before.items


@pytest.mark.usefixtures("waiting")
async def test_a_wrong_question_is_told_in_the_words_of_the_leader(kubectl: Site, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("drain: [no-such-node]")
    found = await kubectl.call("what-if", "-f", str(file))
    assert (found.code, found.output) == (2, "")
    assert "drain[0]: node no-such-node does not exist" in found.messages
    file.write_text(yaml.safe_dump({"drain": ["\N{ROCKET}" * 8192]}, allow_unicode=True))
    found = await kubectl.call("what-if", "-f", str(file))
    assert (found.code, "drain[0]: node" in found.messages) == (2, True)


async def test_what_if_without_a_service_is_computed_and_that_is_said(
    kubectl: Site, waiting: str, one_more: str
) -> None:
    found = await kubectl.call("what-if", "-f", one_more, "-o", "json", "--service-namespace", waiting)
    check_one_more(found, waiting)
    assert "no service answers, so this is computed here: no ready pod with the label" in found.messages


async def test_a_standby_says_what_would_be_and_that_it_may_not_lead(
    kubectl: Site, waiting: str, one_more: str
) -> None:
    async with standby_only(kubectl):
        found = await kubectl.call("what-if", "-f", one_more, "-o", "json")
    check_one_more(found, waiting)
    assert f"{STANDBY} answers, which may not lead" in found.messages


async def test_what_if_needs_the_right_to_forward_ports_or_to_read(kubectl: Site, waiting: str, one_more: str) -> None:
    async with user(kubectl.client, waiting, FORWARDS) as token:
        kubeconfig = kubectl.kubeconfig(token)

        async def asked() -> Printed:
            return await kubectl.call("what-if", "-f", one_more, "-o", "json", kubeconfig=kubeconfig)

        found = await wait_for_answer(asked, lambda found: not found.code, "the rights of the user", within=20)
        check_one_more(found, waiting)
    refused = await wait_for_answer(asked, lambda found: bool(found.code), "the rights are gone", within=20)
    assert (refused.code, refused.output) == (2, "")
    assert f"you may not: list pods in namespace {SYSTEM}, get pods/portforward in namespace" in refused.messages
    assert "not allowed: list nodes" in refused.messages


async def test_a_user_without_rights_learns_which_rights_are_missing(kubectl: Site, namespace: str) -> None:
    async with user(kubectl.client, namespace, []) as token:
        found = await kubectl.call("devices", kubeconfig=kubectl.kubeconfig(token))
    assert (found.code, found.output) == (2, "")
    assert f"you may not: list pods in namespace {SYSTEM}, get pods/portforward in namespace {SYSTEM}" in found.messages
    assert "not allowed: list resourceslices.resource.k8s.io" in found.messages


async def test_a_user_who_may_forward_ports_needs_no_right_to_read_objects(kubectl: Site, waiting: str) -> None:
    async with user(kubectl.client, waiting, FORWARDS) as token:
        kubeconfig = kubectl.kubeconfig(token)

        async def names() -> str:
            return (await kubectl.call("pending", "-n", waiting, "-o", "name", kubeconfig=kubeconfig)).output

        expected = f"{waiting}/two\n"
        await wait_for_answer(names, lambda found: found == expected, "the rights of the user", within=20)
        found = await kubectl.call("pending", "--local", kubeconfig=kubeconfig)
    assert (found.code, found.output) == (2, "")
    assert "not allowed: list nodes" in found.messages


async def test_a_tenant_with_rights_in_the_namespace_alone_learns_the_cause(kubectl: Site, waiting: str) -> None:
    """By what the role `view` allows, as `kubectl describe` does; and what was not seen is named."""
    async with tenant(kubectl, waiting) as kubeconfig:

        async def explained() -> Printed:
            return await kubectl.call("explain", "two", "-n", waiting, kubeconfig=kubeconfig)

        found = await wait_for_answer(
            explained, lambda found: "DevicesUnavailable" in found.output, "the tenant sees the Event", within=30
        )
        there = await kubectl.call("explain", "one", "-n", waiting, kubeconfig=kubeconfig)
        claims = (await kubectl.client.list(CLAIMS, waiting)).items
        allocated = next(each for each in claims if (each.get("status") or {}).get("allocation"))
        of_claim = await kubectl.call(
            "explain", f"claim/{allocated['metadata']['name']}", "-n", waiting, kubeconfig=kubeconfig
        )
        missing = await kubectl.call("explain", "tow", "-n", waiting, kubeconfig=kubeconfig)
        elsewhere = await kubectl.call("explain", "two", "-n", "default", kubeconfig=kubeconfig)
    first, *rest = found.output.splitlines()
    assert first.startswith(f"pod {waiting}/two waits: no node has 2 free devices")
    assert ". What would help: " in first
    assert any("kube-scheduler: 0/" in line for line in rest)
    assert f"you may not: list pods in namespace {SYSTEM}" in found.output
    assert "not allowed: list nodes" in found.output
    assert (found.code, there.code, of_claim.code) == (1, 0, 0)
    assert there.output.startswith(f"pod {waiting}/one has node site-0\n")
    assert "is allocated: " in of_claim.output
    assert (missing.code, f"pod {waiting}/tow does not exist" in missing.messages) == (2, True)
    assert (elsewhere.code, "pods" in elsewhere.messages) == (2, True)


async def test_kubectl_describe_shows_a_tenant_the_event_and_the_condition(kubectl: Site, waiting: str) -> None:
    """kubectl's own command, with rights in one namespace alone; the Event names the command that says more."""
    try:
        program = find_kubectl(os.environ)
    except BinariesError as error:
        pytest.skip(str(error))
    async with tenant(kubectl, waiting) as kubeconfig:

        async def described() -> str:
            command = (str(program), "--kubeconfig", str(kubeconfig), "-n", waiting, "describe", "pod", "two")
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            return (await process.communicate())[0].decode()

        found = await wait_for_answer(
            described, lambda text: WAITS in text, "the condition of the pod", within=DELAY_SECONDS + WAIT_SECONDS
        )
    lines = [line.split(maxsplit=4) for line in found.splitlines()]
    assert [WAITS, "False"] in lines
    (event,) = [line for line in lines if line[1:2] == ["DevicesUnavailable"]]
    assert event[4].startswith("no node has 2 free devices")
    assert "What would help: " in event[4]
    assert event[4].endswith(f"(kubectl dra explain two -n {waiting} says more)")


async def test_the_program_runs_as_kubectl_runs_it(kubectl: Site, waiting: str) -> None:
    command = (sys.executable, "-m", "extender.kubectl", "pending", "-n", waiting, "--watch", "-o", "name")
    process = await asyncio.create_subprocess_exec(
        *command, "--kubeconfig", str(kubectl.kubeconfig()), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert (await process.stdout.readline()).decode() == f"{waiting}/two\n"
            await kubectl.client.create(PODS, pod(waiting, "three", claims=[by_template("two")]))
            assert (await process.stdout.readline()).decode() == f"added {waiting}/three\n"
    finally:
        process.terminate()
        await process.wait()
