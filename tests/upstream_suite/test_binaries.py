"""How Kubernetes' source is changed, and what its tests are told."""

from pathlib import Path

import pytest

from tests.kit.controlplane.binaries import BinariesError
from tests.kit.suites.binaries import with_call, with_replacement
from tests.kit.suites.running import subject_file
from tests.kit.suites.words import WORDS

SOURCE = """\
func StartScheduler() {
\tclientSet := tCtx.Client()
\tinformerFactory := scheduler.NewInformerFactory(clientSet, 0)
}

func Another() {
\tclientSet := tCtx.Client()
}
"""


def test_one_line_is_changed_where_a_scheduler_starts() -> None:
    before, after = SOURCE.splitlines(), with_call(SOURCE).splitlines()
    assert [(number, line) for number, line in enumerate(after) if line != before[number]] == [
        (1, "\tcfg, started := withDRAExtender(tCtx, cfg); defer started(); clientSet := tCtx.Client()")
    ]


@pytest.mark.parametrize("source", ["", SOURCE * 2, SOURCE.replace("clientSet", "client")])
def test_a_source_that_starts_schedulers_in_another_way_is_refused(source: str) -> None:
    with pytest.raises(BinariesError, match=r"util\.go does not start a scheduler as the versions do"):
        with_call(source)


def test_the_module_is_replaced_by_its_folder() -> None:
    text = with_replacement("module x\n", Path("/folder"))
    assert text.splitlines() == ["module x", "", "replace k8s.io/kubernetes => /folder"]


def test_the_scheduler_calls_the_extender_as_we_ship_it() -> None:
    told = subject_file(Path("/logs"), WORDS[:1])
    assert told["extender"] == {
        "urlPrefix": "http://127.0.0.1:8888",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 5,
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": "5s",
    }
    assert told["percentageOfNodesToScore"] == 100
    assert "DRAPartitionableDevices" in told["gates"]  # type: ignore[operator]
    assert told["words"] == [{"ours": WORDS[0].ours, "upstream": WORDS[0].upstream}]
