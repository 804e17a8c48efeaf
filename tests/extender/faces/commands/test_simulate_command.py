"""`simulate` on the command line: where pods go, and what it and other commands say of the same manifests."""

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
import yaml

from extender.faces.commands.main import app
from extender.faces.commands.options import spread
from extender.faces.commands.output import FOUND_PROBLEMS, OK, USAGE
from extender.faces.simulation.scheduling import Placement, Placements
from extender.framework.decisions.verdict import PendingReason
from extender.kube.claim_rules import FINALIZER
from tests.extender.answers.explain.scenes import with_spec
from tests.extender.faces.commands.scenes import BROKEN, RUNNER, small_cluster, written
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Object,
    claim,
    claim_template,
    device_class,
    local_slice,
    node,
    pinned,
    pod,
    request,
)

NO_LABEL = (
    "ResourceClaim ns/watch: spec.devices.requests[0].exactly.adminAccess: needs the label "
    'resource.kubernetes.io/admin-access: "true" on the namespace ns, which is not among the manifests'
)


SUMMARY = "note: 1 of 2 pods placed, 1 waits: 1 for devices"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    return small_cluster(tmp_path / "cluster.yaml")


def test_simulate_prints_where_pods_go_or_why_not(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["simulate", "--manifests", str(manifests)])
    assert result.exit_code == OK, result.stderr
    assert result.stdout.splitlines() == [
        "POD    NODE   DEVICES OR REASON",
        f"ns/p   a      {DRIVER}/a/gpu-0",
        "ns/q   -      1 no free device for request gpu",
    ]
    assert result.stderr == f"{SUMMARY}\n"


@pytest.mark.parametrize("output", ["json", "yaml", "name"])
def test_programs_get_no_summary(manifests: Path, output: str) -> None:
    assert RUNNER.invoke(app, ["simulate", str(manifests), "-o", output]).stderr == ""


def waiting(cause: PendingReason | None) -> Placement:
    return Placement("ns/p", reason="x", waits_for=cause)


@pytest.mark.parametrize(
    ("placements", "words"),
    [
        ([Placement("ns/p", "a")], "1 of 1 pod placed"),
        ([Placement("ns/p", "a"), waiting(None)], "1 of 2 pods placed, 1 waits: 1 for a node"),
        (
            [*map(waiting, (PendingReason.QUOTA, PendingReason.DEVICES, PendingReason.DEVICES)), Placement("q", "a")],
            "1 of 4 pods placed, 3 wait: 2 for devices, 1 for quota",
        ),
        ([waiting(PendingReason.FILTER_ERROR)], "0 of 1 pod placed, 1 waits: 1 for another reason"),
    ],
)
def test_the_summary_counts_pods_by_cause(placements: list[Placement], words: str) -> None:
    assert Placements(placements).summary == words


@pytest.mark.parametrize(
    ("priority", "told"),
    [
        (0, ""),
        (1, "note: no pod was evicted, but dra-extender may evict pods of lower priority for ns/q; see --explain\n"),
    ],
)
def test_simulate_evicts_no_pod_and_says_so(tmp_path: Path, priority: int, told: str) -> None:
    held = claim("p", allocated=["a/gpu-0"], at="a", users=["p"])
    pods = (pod("p", "p", on="a"), pod("q", "q", priority=priority))
    path = written(tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a"), held, claim("q"), *pods)
    summed = "note: 0 of 1 pod placed, 1 waits: 1 for devices\n"
    assert RUNNER.invoke(app, ["simulate", str(path)]).stderr == told + summed


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), ""),
        (("c",), "note: 1 claim gave its devices back, reserved for no pod of the manifests: ns/c\n"),
        (("c", "d"), "note: 2 claims gave their devices back, reserved for no pod of the manifests: ns/c, ns/d\n"),
    ],
)
def test_simulate_names_the_claims_whose_pods_are_not_there(tmp_path: Path, names: Sequence[str], told: str) -> None:
    used = [claim("used", allocated=["a/gpu-0"], at="a", users=["p"]), pod("p", "used", on="a")]
    left = [claim(each, allocated=[f"a/gpu-{at}"], at="a", users=["gone"]) for at, each in enumerate(names, 1)]
    held = [{**each, "metadata": {**each["metadata"], "finalizers": [FINALIZER]}} for each in left]
    path = written(
        tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a", 3), *used, *held, claim("q"), pod("q", "q")
    )
    result = RUNNER.invoke(app, ["simulate", str(path)])
    assert (result.exit_code, result.stderr) == (OK, f"{told}note: 1 of 1 pod placed\n")


def test_nobody_may_be_evicted_for_a_pod_whose_class_does_not_exist(tmp_path: Path) -> None:
    held = claim("p", allocated=["a/gpu-0"], at="a", users=["p"])
    pods = (pod("p", "p", on="a"), pod("q", "q", priority=1))
    asking = claim("q", request(device_class="gone"))
    path = written(tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a"), held, asking, *pods)
    result = RUNNER.invoke(app, ["simulate", str(path)])
    assert "device class gone does not exist" in result.stdout
    assert result.stderr == "note: 0 of 1 pod placed, 1 waits: 1 for usable claims\n"


def test_simulate_prints_json_if_asked(manifests: Path) -> None:
    result = RUNNER.invoke(app, ["simulate", str(manifests), "-o", "json"])
    device = {"claim": "c", "request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    assert orjson.loads(result.stdout) == [
        {"pod": "ns/p", "node": "a", "devices": [device], "leftOut": [], "reason": None},
        {"pod": "ns/q", "node": None, "devices": [], "leftOut": [], "reason": "1 no free device for request gpu"},
    ]


@pytest.fixture
def watching(manifests: Path, tmp_path: Path) -> list[str]:
    """Manifests with a claim that no API server would take: its namespace has no label."""
    asks = claim("watch")
    asks["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    (tmp_path / "watch.json").write_text(orjson.dumps(asks).decode())
    return [str(manifests), str(tmp_path / "watch.json")]


def test_simulate_explains_a_pod_at_its_turn(tmp_path: Path) -> None:
    pods = [pod(name, name, created=f"2026-01-0{number}T00:00:00Z") for number, name in enumerate("pq", 1)]
    path = written(tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a"), claim("p"), claim("q"), *pods)
    first = RUNNER.invoke(app, ["simulate", str(path), "--explain", "ns/p"])
    assert (first.exit_code, first.stdout.splitlines()[0]) == (OK, "pod ns/p fits on 1 of 1 node: a")
    second = RUNNER.invoke(app, ["simulate", str(path), "--explain", "ns/q", "-o", "json"])
    assert (second.exit_code, orjson.loads(second.stdout)["verdict"]) == (FOUND_PROBLEMS, "fits nowhere")
    assert "claim ns/p (pod ns/p)" in second.stdout
    unknown = RUNNER.invoke(app, ["simulate", str(path), "--explain", "ns/r"])
    assert (unknown.exit_code, unknown.stderr) == (USAGE, "error: pod ns/r does not exist\n")


def test_simulate_and_serve_refuse_admin_access_without_the_namespaces_label(watching: list[str]) -> None:
    for command in (["simulate", *watching], ["serve", "-m", *watching]):
        result = RUNNER.invoke(app, spread(command, "-m"))
        assert result.exit_code == FOUND_PROBLEMS
        assert result.stderr.splitlines()[0] == f"error: {watching[1]}: {NO_LABEL}"


def test_validate_and_explain_warn_of_a_namespace_without_the_admin_label(watching: list[str]) -> None:
    for command in (["validate", *watching], ["explain", "ns/p", "-m", *watching]):
        result = RUNNER.invoke(app, spread(command, "-m"))
        assert f"warning: {watching[1]}: {NO_LABEL}\n" in result.stderr


def test_explain_names_an_object_with_errors_and_explains_the_pod_without_it(manifests: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", BROKEN)
    result = RUNNER.invoke(app, ["explain", "ns/p", "-m", str(manifests), "-m", str(bad)])
    assert result.exit_code == FOUND_PROBLEMS
    assert result.stderr == "".join(f"error: {line}\n" for line in problems_of(bad))
    assert result.stdout.startswith("pod ns/p fits on 1 of 1 node: a\n")
    missing = RUNNER.invoke(app, ["explain", "ns/r", "-m", str(manifests), "-m", str(bad)])
    assert (missing.exit_code, missing.stdout) == (USAGE, "")
    assert missing.stderr.endswith("error: pod ns/r does not exist\n")


def problems_of(path: Path) -> list[str]:
    """What is wrong with a file, as validate says."""
    said = RUNNER.invoke(app, ["validate", str(path)]).stderr
    return [line.removeprefix("error: ") for line in said.splitlines()]


def test_simulate_serves_pods_that_have_a_node_at_their_turn(tmp_path: Path) -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    pods = [
        pod("p", "p", created=late),
        pinned("q", "q", on="a", created=early),
        pinned("r", "r", on="a", created=late),
    ]
    claims = [claim(name) for name in "pqr"]
    path = written(tmp_path / "cluster.yaml", GPU, node("a"), local_slice("a", 2), *claims, *pods)
    result = RUNNER.invoke(app, ["simulate", str(path), "--fail-on-pending"])
    assert result.exit_code == FOUND_PROBLEMS
    assert result.stdout.splitlines()[1:] == [
        f"ns/q   a      {DRIVER}/a/gpu-0",
        f"ns/p   a      {DRIVER}/a/gpu-1",
        "ns/r   -      spec.nodeName is a; node a: no free device for request gpu",
    ]


def test_simulate_says_which_pods_run_without_devices_for_their_extended_resources(tmp_path: Path) -> None:
    gpu = device_class(extended="example.com/gpu")
    asking = [pinned("p", on="a", resources={"example.com/gpu": "1"}), pod("q", resources={"example.com/gpu": "1"})]
    path = written(tmp_path / "cluster.yaml", gpu, node("a"), local_slice("a"), *asking)
    p, q = orjson.loads(RUNNER.invoke(app, ["simulate", str(path), "-o", "json"]).stdout)
    assert (p["node"], q["node"]) == (None, "a")
    assert p["reason"].startswith("the pod has node a, and kubelet starts it without example.com/gpu: ")
    wide = RUNNER.invoke(app, ["simulate", str(path), "-o", "wide"]).stdout
    assert "example.com/gpu of container c" in wide


def test_simulate_names_the_problem_of_an_object_that_it_has_left_out(tmp_path: Path) -> None:
    template, asking = claim_template("t"), pod("p")
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["cout"] = 2
    asking["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    broken, own = device_class("broken", selectors=["device.drivr"]), claim("c", request(device_class="broken"))
    objects = (node("a"), template, asking, broken, own, pod("q", "c"))
    path = written(tmp_path / "cluster.yaml", *objects)
    result = RUNNER.invoke(app, ["simulate", str(path)])
    assert "1 claim template t is refused: spec.spec.devices.requests[0].exactly.cout: unknown field" in result.stdout
    assert "1 device class broken is refused: spec.selectors[0].cel.expression: 1:7: " in result.stdout
    explained = RUNNER.invoke(app, ["explain", "ns/p", "-m", str(path)]).stdout
    assert "To do: correct ResourceClaimTemplate ns/t" in explained


def test_simulate_says_what_it_does_not_look_at(manifests: Path, tmp_path: Path) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "v"}}
    stored = with_spec(pod("busy", "c"), volumes=[volume])
    (tmp_path / "stored.json").write_text(orjson.dumps(stored).decode())
    result = RUNNER.invoke(app, ["simulate", str(manifests), str(tmp_path / "stored.json")])
    assert (result.exit_code, result.stderr.splitlines()[0]) == (OK, "warning: ignored: volumes (ns/busy)")


def test_simulate_names_an_object_with_errors_and_goes_on_without_it(manifests: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.yaml", BROKEN)
    result = RUNNER.invoke(app, ["simulate", "--manifests", str(manifests), "--manifests", str(bad)])
    assert result.exit_code == FOUND_PROBLEMS
    assert "80Gx" in result.stderr
    assert f"ns/p   a      {DRIVER}/a/gpu-0" in result.stdout


def test_simulate_uses_the_first_of_two_equal_objects(manifests: Path, tmp_path: Path) -> None:
    again = written(tmp_path / "again.yaml", local_slice("a", 5))
    result = RUNNER.invoke(app, ["simulate", str(manifests), str(again)])
    told = f"error: ResourceSlice slice-a is in {manifests} and again in {again}"
    assert (result.exit_code, result.stderr.splitlines()[0]) == (FOUND_PROBLEMS, told)
    assert "ns/q   -      1 no free device for request gpu" in result.stdout


@pytest.mark.parametrize(("arguments", "status"), [([], OK), (["--fail-on-pending"], FOUND_PROBLEMS)])
def test_simulate_fails_on_pending_pods_if_asked(manifests: Path, arguments: list[str], status: int) -> None:
    assert RUNNER.invoke(app, ["simulate", str(manifests), *arguments]).exit_code == status


NOTHING_TO_DO: dict[str, tuple[list[Object], str]] = {
    "no pods": ([GPU], "the manifests have no pods"),
    "all bound": ([node("a"), pod("p", on="a"), pod("q", on="a")], "of the pods, 2 are bound"),
    "bound and finished": (
        [node("a"), pod("p", on="a"), {**pod("q"), "status": {"phase": "Failed"}}],
        "of the pods, 1 is bound and 1 is finished or being deleted",
    ),
}


@pytest.mark.parametrize(("objects", "why"), NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
def test_simulate_says_when_there_is_nothing_to_do(objects: list[Object], why: str, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["simulate", str(written(tmp_path / "x.yaml", *objects)), "--fail-on-pending"])
    assert (result.exit_code, result.stdout) == (OK, "")
    assert result.stderr == f"note: there is nothing to schedule: {why}\n"


def test_simulate_says_what_it_skips(manifests: Path, tmp_path: Path) -> None:
    services = [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{number}"}} for number in range(12)]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"suspend": True}}
    others = written(tmp_path / "others.yaml", *services, job)
    result = RUNNER.invoke(app, ["simulate", str(manifests), str(others)])
    assert (result.exit_code, result.stderr.splitlines()) == (
        OK,
        [
            "warning: skipped: Job j: it is suspended",
            "note: skipped: Service s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more",
            SUMMARY,
        ],
    )


FORMS: dict[str, list[str]] = {
    "name": ["ns/p", "ns/q"],
    "wide": [
        "POD    NODE   CLAIM   REQUEST   DEVICE                    REASON",
        f"ns/p   a      c       gpu       {DRIVER}/a/gpu-0   -",
        "ns/q   -      -       -         -                         1 no free device for request gpu",
    ],
}


@pytest.mark.parametrize(("form", "lines"), FORMS.items(), ids=FORMS)
def test_simulate_prints_other_forms(manifests: Path, form: str, lines: list[str]) -> None:
    assert RUNNER.invoke(app, ["simulate", str(manifests), "-o", form]).stdout.splitlines() == lines


@pytest.mark.parametrize("command", [["validate"], ["simulate"], ["audit"], ["explain", "ns/p", "-m"]])
def test_yaml_says_the_same_as_json(manifests: Path, command: list[str]) -> None:
    as_json, as_yaml = (RUNNER.invoke(app, [*command, str(manifests), "-o", form]) for form in ("json", "yaml"))
    assert as_json.exit_code == as_yaml.exit_code == OK
    assert yaml.safe_load(as_yaml.stdout) == orjson.loads(as_json.stdout)


# `dra-extender node` on a command line that cannot work: each mistake is named before anything is asked.


FOUR = "cpus: [{id: 0, core: 0}, {id: 1, core: 0}, {id: 2, core: 1}, {id: 3, core: 1}]"


@pytest.mark.parametrize(
    ("topology", "options", "problem"),
    [
        (FOUR, ("--node-name", "N_1"), "--node-name N_1: is not a DNS subdomain"),
        (FOUR, ("--reserved-cpus", "a-b"), '--reserved-cpus: "a-b" is no list of CPUs such as 0-3,8'),
        (FOUR, ("--reserved-cpus", "0,9"), "--reserved-cpus: CPU 9 is not online: 0-3 are"),
        (FOUR, ("--reserved-cpus", ""), "--reserved-cpus: names no CPU: containers without claims need one"),
        (FOUR, ("--kubeconfig", "nowhere"), "nowhere: no such file"),
        ("cpus: []", (), "topology.yaml: cpus: is required: the CPUs of the machine"),
        ("cpus: [{id: 0, sockt: 1}]", (), "topology.yaml: cpus[0].sockt: unknown key"),
        ("cpus: [{id: 0}, {id: 0}]", (), "topology.yaml: cpus: a CPU is there twice"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, topology: str, options: Sequence[str], problem: str) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(topology)
    done = RUNNER.invoke(
        app, ["node", "--node-name", "node-1", "--topology", str(file), *options], env={"KUBECONFIG": ""}
    )
    assert done.exit_code == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_machine_without_an_api_server_is_told_where_one_was_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(FOUR)
    environment = {"KUBECONFIG": "", "HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": ""}
    done = RUNNER.invoke(app, ["node", "--node-name", "node-1", "--topology", str(file)], env=environment)
    assert (done.exit_code, "no API server to connect to" in done.stderr) == (2, True)
