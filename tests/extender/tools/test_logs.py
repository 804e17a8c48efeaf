"""Logging: a line an event, on standard error, ours and libraries' alike."""

import io
import json
import logging
import sys
from typing import Any

import pytest
import structlog

from extender.tools import logs
from extender.tools.logs import LogSettings

logger = structlog.get_logger()


def lines(written: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.splitlines()]


def test_a_line_has_the_event_what_goes_with_it_and_the_context(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    with structlog.contextvars.bound_contextvars(decision="d1"):
        logger.info("decided", verb="bind", rejected={"tainted": 2}, odd=b"x")
        logging.getLogger("library").warning("slow by %s s", 5)
    ours, libraries = lines(capsys.readouterr().err)
    assert ours.pop("timestamp").endswith("Z")
    assert libraries.pop("timestamp").endswith("Z")
    fields = {"verb": "bind", "rejected": {"tainted": 2}, "odd": "b'x'", "decision": "d1"}
    assert ours == {**fields, "event": "decided", "level": "info"}
    assert libraries == {"event": "slow by 5 s", "decision": "d1", "level": "warning"}


LEVELS = ("debug", "info", "warning", "error")


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str], level: Any) -> None:
    logs.configure(LogSettings(level=level))
    for each in LEVELS:
        getattr(logger, each)(each)
        getattr(logging.getLogger("library"), each)(each)
    shown = LEVELS[LEVELS.index(level) :]
    assert [line["level"] for line in lines(capsys.readouterr().err)] == [each for each in shown for _ in range(2)]


@pytest.mark.parametrize("log", [logger, logging.getLogger("library")], ids=["ours", "libraries"])
def test_an_exception_is_told_within_its_line(capsys: pytest.CaptureFixture[str], log: Any) -> None:
    logs.configure(LogSettings())
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("failed")
    (line,) = lines(capsys.readouterr().err)
    assert (line["event"], line["level"]) == ("failed", "error")
    assert line["exception"].endswith("ZeroDivisionError: division by zero")


def test_what_is_added_to_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(), [lambda _, __, event: {**event, "trace_id": "t"}])
    logger.info("ours")
    logging.getLogger("library").warning("libraries'")
    assert [line["trace_id"] for line in lines(capsys.readouterr().err)] == ["t", "t"]


def test_people_read_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="console"))
    logger.info("decided", verb="bind")
    logging.getLogger("library").warning("slow")
    ours, libraries = capsys.readouterr().err.splitlines()
    assert "[info     ] decided" in ours
    assert "verb=bind" in ours
    assert "[warning  ] slow" in libraries


def test_redirected_later_it_goes_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure(LogSettings())
    logger.info("before")
    now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", now)
    logger.info("after")
    told = [[line["event"] for line in lines(written)] for written in (capsys.readouterr().err, now.getvalue())]
    assert told == [["before"], ["after"]]


def test_a_log_that_nobody_reads_keeps_nobody_from_working(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure(LogSettings())
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    logger.error("lost")
    monkeypatch.setattr(sys, "stderr", None)  # as Python starts where there is none
    logger.error("lost as well")
    logs.configure(LogSettings())
    now = io.StringIO()
    monkeypatch.setattr(sys, "stderr", now)
    logger.error("written")
    assert [line["event"] for line in lines(now.getvalue())] == ["written"]
