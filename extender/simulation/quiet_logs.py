"""Logging of a library: nothing is printed unless the program that uses it asks for that."""

import logging
from typing import Final

import structlog

LOGGER: Final = "dra_extender"
"""Name of the standard library's logger that gets the lines."""


def log_quietly() -> None:
    """Hand log lines to the standard library, unless structlog is set up already. Its own default is to print."""
    if structlog.is_configured():
        return
    logger = logging.getLogger(LOGGER)
    logger.addHandler(logging.NullHandler())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=lambda *_: logger,
        wrapper_class=structlog.stdlib.BoundLogger,
    )
