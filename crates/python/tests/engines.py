"""On which engines a test runs.

A test with the fixture ``url`` runs on all of them, unless it says on which. The nightly tier sets
``LEASEHOLD_ALL_ENGINES``: then the tests that name a few examples run on all, too.
"""

from __future__ import annotations

import os

import pytest

#: All engines.
ENGINES = ("memory", "file", "sqlite", "redis", "etcd", "zookeeper", "postgres", "mysql")
IS_NIGHT = bool(os.environ.get("LEASEHOLD_ALL_ENGINES"))


def on_engines(*examples: str) -> pytest.MarkDecorator:
    """A test that holds for all engines, and in `./test` runs on these examples."""
    return pytest.mark.parametrize("engine", ENGINES if IS_NIGHT else examples)


def between_processes(*examples: str) -> pytest.MarkDecorator:
    """A test with several processes, for which the locks in memory are none; `./test` runs it on these examples."""
    return pytest.mark.parametrize("engine", ENGINES[1:] if IS_NIGHT else examples)
