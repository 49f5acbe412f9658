"""Beside redis-py's Lock on the same key, in both directions."""

from __future__ import annotations

from typing import Iterator

import pytest
import redis

import leasehold
from servers import Redis


@pytest.fixture
def theirs(redis_server: Redis) -> Iterator[redis.Redis]:
    client = redis.Redis(port=redis_server.port)
    yield client
    client.close()


@pytest.fixture
def ours(redis_server: Redis) -> Iterator[leasehold.Locks]:
    locks = leasehold.connect(redis_server.address)
    yield locks
    assert locks.close() == 0


def test_a_lock_of_redis_py_excludes_ours(ours: leasehold.Locks, theirs: redis.Redis) -> None:
    lock = theirs.lock("lock:theirs", timeout=60)
    assert lock.acquire(blocking=False)
    assert ours.mutex("theirs").try_acquire() is None
    lock.release()
    with ours.mutex("theirs", wait=60) as guard:
        assert guard.check()


def test_our_lock_excludes_that_of_redis_py(ours: leasehold.Locks, theirs: redis.Redis) -> None:
    lock = theirs.lock("lock:ours", timeout=60)
    with ours.mutex("ours", wait=60):
        assert not lock.acquire(blocking=False)
    assert lock.acquire(blocking_timeout=60)
    lock.release()
