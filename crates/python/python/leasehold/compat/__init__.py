"""Locks of other packages' signatures, for programs that move over one import at a time.

``RedisLock`` has the constructor, the methods and the exceptions of redis-py's ``Lock``, and ``AsyncRedisLock`` has
those of its asyncio ``Lock``::

    # from redis.lock import Lock
    from leasehold.compat import RedisLock as Lock

    with Lock(client, "report", timeout=10, blocking_timeout=5):
        ...

    # from redis.asyncio.lock import Lock
    from leasehold.compat import AsyncRedisLock as Lock

    async with Lock(client, "report", timeout=10, blocking_timeout=5):
        ...

    # Or only the class:
    with client.lock("report", timeout=10, lock_class=RedisLock):
        ...

They have the key of redis-py's lock, so programs with either exclude each other: move them one after another.
"""

from typing import TYPE_CHECKING, Any

from leasehold.compat._errors import LockError, LockNotOwnedError
from leasehold.compat._thread_lock import RedisLock

if TYPE_CHECKING:
    from leasehold.compat._task_lock import AsyncRedisLock

__all__ = ["AsyncRedisLock", "LockError", "LockNotOwnedError", "RedisLock"]


def __getattr__(name: str) -> Any:
    if name != "AsyncRedisLock":
        raise AttributeError(f"module 'leasehold.compat' has no attribute {name!r}")
    # Only now, because a program with threads alone needs no asyncio.
    from leasehold.compat import _task_lock

    return _task_lock.AsyncRedisLock
