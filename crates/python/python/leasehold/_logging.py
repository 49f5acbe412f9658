"""Warnings and errors of the library for ``logging``: the logger is ``leasehold``."""

from __future__ import annotations

import logging

_logger = logging.getLogger("leasehold")


def log(records: list[tuple[int, str]], dropped: int) -> None:
    """Logs what happened: pairs of level and text. ``dropped``: how many there were too many to be kept."""
    for level, text in records:
        _logger.log(level, "%s", text)
    if dropped:
        _logger.warning("%d lines of the log were dropped: the program did not take them in time", dropped)
