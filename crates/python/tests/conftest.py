"""Fixtures: the engines on private servers.

``url`` runs a test on every engine, each time in a namespace that no other test uses. ``locks`` is connected to it.
A missing server is an error, never a skip.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Iterator

import pytest

import leasehold
from engines import ENGINES
from other_servers import Mariadb, Zookeeper
from servers import Etcd, Postgres, Redis, Server

# Programs, which are not to be imported.
collect_ignore = ["run.py", "storm_children.py", "storm_program.py", "storm_worker.py"]
_namespaces = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    # The tests of a release use what a user installs, and not the sources beside them.
    if os.environ.get("LEASEHOLD_TEST_WHEEL"):
        installed = Path(leasehold.__file__)
        assert "site-packages" in installed.parts, f"the tests use {installed}, which no wheel has installed"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    server = Redis()
    yield server
    server.close()


@pytest.fixture(scope="session")
def etcd_server() -> Iterator[Etcd]:
    server = Etcd()
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[Mariadb]:
    server = Mariadb()
    yield server
    server.close()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[Zookeeper]:
    server = Zookeeper()
    yield server
    server.close()


@pytest.fixture
def private_redis() -> Iterator[Redis]:
    """A Redis of this test alone, which the test may kill and start again."""
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    return redis_server.url(new_namespace())


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    engine: str = request.param
    return engine


@pytest.fixture
def url(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> str:
    if engine == "memory":
        return f"memory:{new_namespace()}"
    if engine == "file":
        return f"file://{tmp_path / 'locks'}"
    if engine == "sqlite":
        return f"sqlite://{tmp_path / 'locks.db'}"
    server: Server = request.getfixturevalue(f"{engine}_server")
    return server.url(new_namespace())


@pytest.fixture
def locks(url: str) -> Iterator[leasehold.Locks]:
    connected = leasehold.connect(url)
    yield connected
    connected.close()


def new_namespace() -> str:
    return f"t{os.getpid()}-{next(_namespaces)}"
