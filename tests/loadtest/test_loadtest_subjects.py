"""What is compared is configured alike."""

from pathlib import Path

from loadtest.endtoend.subjects import CALLS_PER_SECOND, SUBJECTS, in_tree, with_extender
from loadtest.endtoend.workload import IDLE, ORDER
from tests.kit.controlplane.scheduler import SHIPPED


def test_each_subject_can_run_and_all_but_idle_decide() -> None:
    assert tuple(SUBJECTS) == ORDER
    assert [name for name, subject in SUBJECTS.items() if not subject.decides] == [IDLE]


def test_all_schedulers_look_at_all_nodes_and_may_call_as_often() -> None:
    ours = with_extender(SHIPPED.read_text(), "http://127.0.0.1:1", Path("k"))
    theirs = in_tree(Path("k"))
    limits = {"kubeconfig": "k", "qps": CALLS_PER_SECOND, "burst": CALLS_PER_SECOND}
    for config in (ours, theirs):
        assert config["clientConnection"] == limits
        (profile,) = config["profiles"]
        assert (profile["schedulerName"], profile["percentageOfNodesToScore"]) == ("dra-scheduler", 100)
    assert "extenders" not in theirs
    assert [each["urlPrefix"] for each in ours["extenders"]] == ["http://127.0.0.1:1"]
