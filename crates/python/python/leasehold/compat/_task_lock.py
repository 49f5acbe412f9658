"""``AsyncRedisLock``: the lock of redis-py for tasks of asyncio."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Awaitable, Literal, NamedTuple, Optional, Union
from weakref import ref

from leasehold import _errors
from leasehold._leasehold import Guard
from leasehold._loops import current_task
from leasehold.compat._base import LockOfRedis
from leasehold.compat._errors import (
    ACQUIRED_TOO_LATE,
    FORGOTTEN_AT_EXIT,
    NO_LONGER_OWNED,
    NOT_OWNED,
    TOKEN_GIVEN,
    LockError,
    LockNotOwnedError,
    redis_errors,
    waits_for_itself,
)
from leasehold.compat._servers import (
    holder_with,
    keep_until_timeout,
    request_of,
    token_of,
    wait_of,
)

if TYPE_CHECKING:
    from leasehold._view import View

_logger = logging.getLogger("leasehold")


class _Hold(NamedTuple):
    """What a task has acquired."""

    guard: Guard
    #: What the key contains.
    token: bytes
    #: The task that acquired it. It is not kept.
    task: ref[Any]


class AsyncRedisLock(LockOfRedis):
    """A lock with the signature of redis-py's asyncio ``Lock``, on the same key.

    ``redis`` is a client of ``redis.asyncio``, whose settings are used for a connection of its own, or a URL of
    leasehold. It differs from redis-py as :class:`RedisLock` does, and in this:

    * **One object for several tasks.** Each task releases and extends what it has acquired itself. With redis-py it
      ends the lock that another task got after its own had expired. A task that has acquired nothing acts on the lock
      of another task, as with redis-py.
    * **A release that is cancelled** is done all the same.
    * A task is not cancelled when its lock is lost: for that, use ``async with locks.mutex(name)``.

    >>> import asyncio, leasehold.compat
    >>> async def main():
    ...     lock = leasehold.compat.AsyncRedisLock("memory:", "report", timeout=10)
    ...     async with lock:
    ...         owned = await lock.owned()
    ...     return owned, await lock.locked()
    >>> asyncio.run(main())
    (True, False)
    """

    _for_tasks = True

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[float] = None,
        token: Optional[Union[str, bytes]] = None,
    ) -> bool:
        """Acquires the lock; ``False`` if it was taken for the whole wait. A cancelled task leaves nothing behind.

        >>> import asyncio, leasehold.compat
        >>> asyncio.run(leasehold.compat.AsyncRedisLock("memory:", "report").acquire(blocking=False))
        True
        """
        if token is not None:
            raise TypeError(TOKEN_GIVEN)
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        if blocking and blocking_timeout is None and not self.timeout:
            own = self._hold_of(current_task())
            if own is not None and own.guard.check():
                raise waits_for_itself(self.name)
        request, wait = request_of(self._locks, self.name, self.timeout), wait_of(blocking_timeout)
        try:
            with redis_errors:
                if blocking:
                    guard: Optional[Guard] = await request.acquire_async(wait)
                else:
                    guard = await request.try_acquire_async()
        except _errors.Busy:
            return False
        if guard is None:
            return False
        keep_until_timeout(guard, self.timeout)
        self._keep(_Hold(guard, token_of(guard), ref(current_task())))
        return True

    async def locked(self) -> bool:
        """Whether any process holds the lock. Asks the server.

        >>> import asyncio, leasehold.compat
        >>> asyncio.run(leasehold.compat.AsyncRedisLock("memory:", "report").locked())
        False
        """
        return bool((await self._look()).holders)

    async def owned(self) -> bool:
        """Whether this object holds the lock, certainly and now. Asks no server, except for the token of another one.

        >>> import asyncio, leasehold.compat
        >>> asyncio.run(leasehold.compat.AsyncRedisLock("memory:", "report").owned())
        False
        """
        hold, token = self._hold, getattr(self.local, "token", None)
        if hold is not None:
            return hold.guard.check()
        return token is not None and holder_with(token, await self._look()) is not None

    async def release(self) -> None:
        """Releases the lock.

        >>> import asyncio, leasehold.compat
        >>> async def main():
        ...     lock = leasehold.compat.AsyncRedisLock("memory:", "report")
        ...     await lock.acquire()
        ...     await lock.release()
        >>> asyncio.run(main())
        """
        hold = self._hold
        token = getattr(self.local, "token", None) if hold is None else hold.token
        if token is None:
            raise LockError(NOT_OWNED)
        await self.do_release(token)

    async def do_release(self, expected_token: Any) -> None:
        """Releases the lock, if it is still held under this token.

        >>> import asyncio, leasehold.compat
        >>> async def main():
        ...     lock = leasehold.compat.AsyncRedisLock("memory:", "report")
        ...     await lock.acquire()
        ...     await lock.do_release(lock.local.token)
        >>> asyncio.run(main())
        """
        holds = self._holds
        hold = next((hold for hold in holds if hold.token == expected_token), None)
        if hold is None:
            return await self._release_elsewhere(expected_token)
        holds.remove(hold)
        self.local.token = holds[-1].token if holds else None
        try:
            with redis_errors:
                await hold.guard.release_async()
        except _errors.LockLost as error:
            raise LockNotOwnedError(NO_LONGER_OWNED) from error

    async def _release_elsewhere(self, token: Any) -> None:
        """Releases a lock that another object, or another process, has acquired with this token."""
        if not self._holds:
            self.local.token = None
        number = holder_with(token, await self._look())
        with redis_errors:
            if number is None or not await self._locks.break_hold_async(self.name, number, force=True):
                raise LockNotOwnedError(NO_LONGER_OWNED)

    async def _look(self) -> View:
        with redis_errors:
            return await self._locks.show_async(self.name)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Awaitable[Literal[True]]:
        """Adds ``additional_time`` seconds to what is left; with ``replace_ttl``, to now.

        >>> import asyncio, leasehold.compat
        >>> async def main():
        ...     async with leasehold.compat.AsyncRedisLock("memory:", "report", timeout=10) as lock:
        ...         return await lock.extend(60)
        >>> asyncio.run(main())
        True
        """
        guard = self._timed(self._guard, "extend")
        left = 0.0 if replace_ttl else guard.remaining or 0.0
        return self._extend(guard, left + additional_time)

    def reacquire(self) -> Awaitable[Literal[True]]:
        """Makes the lock last for ``timeout`` seconds from now on.

        >>> import asyncio, leasehold.compat
        >>> async def main():
        ...     async with leasehold.compat.AsyncRedisLock("memory:", "report", timeout=10) as lock:
        ...         return await lock.reacquire()
        >>> asyncio.run(main())
        True
        """
        return self._extend(self._timed(self._guard, "reacquire"), self.timeout or 0.0)

    @property
    def _holds(self) -> list[_Hold]:
        """What the tasks of this thread have acquired, the newest last."""
        holds: Optional[list[_Hold]] = getattr(self.local, "holds", None)
        if holds is None:
            holds = self.local.holds = []
        return holds

    @property
    def _hold(self) -> Optional[_Hold]:
        """What the running task has acquired; what another task has, if it has nothing."""
        holds = self._holds
        return self._hold_of(current_task()) or (holds[-1] if holds else None)

    @property
    def _guard(self) -> Optional[Guard]:
        hold = self._hold
        return None if hold is None else hold.guard

    def _hold_of(self, task: Any) -> Optional[_Hold]:
        return next((hold for hold in reversed(self._holds) if hold.task() is task), None)

    def _keep(self, hold: _Hold) -> None:
        # A task that has ended without a release cannot ask for its lost lock any more.
        self._holds[:] = [other for other in self._holds if other.guard.check() or _runs(other.task())]
        self._holds.append(hold)
        self.local.token = hold.token

    async def _extend(self, guard: Guard, time: float) -> Literal[True]:
        try:
            with redis_errors:
                await guard.extend_async(time)
        except _errors.LockLost as error:
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned") from error
        return True

    async def __aenter__(self) -> AsyncRedisLock:
        if await self.acquire():
            return self
        raise LockError(ACQUIRED_TOO_LATE)

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            _logger.warning(FORGOTTEN_AT_EXIT)


def _runs(task: Any) -> bool:
    return task is not None and not getattr(task, "done", lambda: False)()
