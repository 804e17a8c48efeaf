"""The runner of background tasks: all hear the same, and what fails in one task keeps no other from its work."""

from extender.background.runner import BackgroundRunner
from extender.background.task import BackgroundTask, Rejection
from extender.faults import Faults
from extender.state.objects.pods import Pod
from extender.state.snapshot import EMPTY
from extender.verbs.filter import FilterResult
from extender.verbs.json.wire import FilterArgs
from tests.kit import virtualtime

POD = Pod("ns", "p", "uid-p")


class Told:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.subjects: list[object] = []

    def error(self, event: str, **fields: object) -> None:
        self.subjects.append((event, fields["subject"]))


class Failing(BackgroundTask):
    def on_rejected(self, rejection: Rejection) -> None:
        raise ZeroDivisionError(rejection.sent.name)

    async def tick(self) -> None:
        raise ZeroDivisionError


class Hearing(BackgroundTask):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_rejected(self, rejection: Rejection) -> None:
        self.heard.append(f"rejected {rejection.sent.name}")

    def on_passed(self, pod: Pod) -> None:
        self.heard.append(f"passed {pod.name}")

    def on_victims(self, pod: Pod) -> None:
        self.heard.append(f"victims for {pod.name}")

    async def tick(self) -> None:
        self.heard.append("tick")


def test_a_task_that_fails_keeps_no_other_from_hearing_or_from_its_turn() -> None:
    log, hearing = Told(), Hearing()
    runner = BackgroundRunner((Failing(), hearing), Faults(log))
    args = FilterArgs(POD, ["n"])
    runner.note(args, FilterResult([], unresolvable={"n": "no"}), EMPTY)
    runner.note(args, FilterResult(["n"]), EMPTY)
    runner.note_victims(POD)
    virtualtime.run(runner.tick())
    assert hearing.heard == ["rejected p", "passed p", "victims for p", "tick"]
    assert log.subjects == [("fault", "pod ns/p"), ("fault", "Failing")]
