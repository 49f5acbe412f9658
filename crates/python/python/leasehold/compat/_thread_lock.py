"""``RedisLock``: the lock of redis-py for threads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Optional, Union

from leasehold import _errors
from leasehold._leasehold import Guard
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


class RedisLock(LockOfRedis):
    """A lock with the signature of redis-py's ``Lock``, on the same key.

    ``redis`` is a client of redis-py, whose settings are used for a connection of its own, or a URL of leasehold:
    ``"redis://localhost"``. What differs from redis-py:

    * **Waiting.** A waiter is told when the lock is free, and waiters are served first come, first served. ``sleep`` is
      accepted, and not needed.
    * **timeout=None.** redis-py stores a lock without an end, which a killed process leaves for ever. Here the lock is
      renewed while the process lives, and ends 30 s after it died.
    * **timeout=n** is the longest life of the lock, as in redis-py, unless it is extended; from 0.1 s to a day. A lock
      that reaches it is logged as lost.
    * **extend** and **reacquire** never shorten a lock, also not with ``replace_ttl=True``.
    * **owned** asks no server. It is false from the moment at which the lock may be somebody else's.
    * **Tokens** are made here: ``acquire(token=...)`` raises ``TypeError``. ``local.token`` is what the key contains.
      Another object or process that sets it may release the lock: the next holder is told that it was broken.
    * **Names** are text of 1 to 512 bytes in UTF-8, without control characters.
    * **A lock object that nobody refers to any more** leaves its lock to the timeout, as with redis-py, also when its
      program ends. Without a timeout it is released.
    * A lock object that would wait for itself for ever raises :class:`LockError`.
    * Errors of the server are exceptions of leasehold and of redis-py: :class:`leasehold.Unreachable`, for example, is
      a ``redis.exceptions.ConnectionError`` here, too.

    >>> import leasehold.compat
    >>> lock = leasehold.compat.RedisLock("memory:", "report", timeout=10)
    >>> with lock:
    ...     lock.owned()
    True
    >>> lock.locked()
    False
    """

    _for_tasks = False

    def acquire(
        self,
        sleep: Optional[float] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[float] = None,
        token: Optional[Union[str, bytes]] = None,
    ) -> bool:
        """Acquires the lock; ``False`` if it was taken for the whole wait.

        >>> import leasehold.compat
        >>> leasehold.compat.RedisLock("memory:", "report").acquire(blocking=False)
        True
        """
        if token is not None:
            raise TypeError(TOKEN_GIVEN)
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        if blocking and blocking_timeout is None and not self.timeout and self.owned():
            raise waits_for_itself(self.name)
        request, wait = request_of(self._locks, self.name, self.timeout), wait_of(blocking_timeout)
        try:
            with redis_errors:
                guard = request.acquire(wait) if blocking else request.try_acquire()
        except _errors.Busy:
            return False
        if guard is None:
            return False
        keep_until_timeout(guard, self.timeout)
        self.local.guard = guard
        self.local.token = token_of(guard)
        return True

    def locked(self) -> bool:
        """Whether any process holds the lock. Asks the server.

        >>> import leasehold.compat
        >>> leasehold.compat.RedisLock("memory:", "report").locked()
        False
        """
        return bool(self._look().holders)

    def owned(self) -> bool:
        """Whether this object holds the lock, certainly and now. Asks no server, except for the token of another one.

        >>> import leasehold.compat
        >>> leasehold.compat.RedisLock("memory:", "report").owned()
        False
        """
        guard, token = self._guard, getattr(self.local, "token", None)
        if guard is not None:
            return guard.check()
        return token is not None and holder_with(token, self._look()) is not None

    def release(self) -> None:
        """Releases the lock.

        >>> import leasehold.compat
        >>> lock = leasehold.compat.RedisLock("memory:", "report")
        >>> lock.acquire()
        True
        >>> lock.release()
        """
        token = getattr(self.local, "token", None)
        if token is None:
            raise LockError(NOT_OWNED)
        self.do_release(token)

    def do_release(self, expected_token: Any) -> None:
        """Releases the lock, if it is still held under this token.

        >>> import leasehold.compat
        >>> lock = leasehold.compat.RedisLock("memory:", "report")
        >>> lock.acquire()
        True
        >>> lock.do_release(lock.local.token)
        """
        guard = self._guard
        if guard is None or expected_token != self.local.token:
            return self._release_elsewhere(expected_token)
        self.local.guard = self.local.token = None
        try:
            with redis_errors:
                guard.release()
        except _errors.LockLost as error:
            raise LockNotOwnedError(NO_LONGER_OWNED) from error

    def _release_elsewhere(self, token: Any) -> None:
        """Releases a lock that another object, or another process, has acquired with this token."""
        if self._guard is None:
            self.local.token = None
        number = holder_with(token, self._look())
        with redis_errors:
            if number is None or not self._locks.break_hold(self.name, number, force=True):
                raise LockNotOwnedError(NO_LONGER_OWNED)

    def _look(self) -> View:
        with redis_errors:
            return self._locks.show(self.name)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Adds ``additional_time`` seconds to what is left; with ``replace_ttl``, to now.

        >>> import leasehold.compat
        >>> with leasehold.compat.RedisLock("memory:", "report", timeout=10) as lock:
        ...     lock.extend(60)
        True
        """
        guard = self._timed(self._guard, "extend")
        left = 0.0 if replace_ttl else guard.remaining or 0.0
        return self._extend(guard, left + additional_time)

    def reacquire(self) -> bool:
        """Makes the lock last for ``timeout`` seconds from now on.

        >>> import leasehold.compat
        >>> with leasehold.compat.RedisLock("memory:", "report", timeout=10) as lock:
        ...     lock.reacquire()
        True
        """
        guard = self._timed(self._guard, "reacquire")
        return self._extend(guard, self.timeout or 0.0)

    @property
    def _guard(self) -> Optional[Guard]:
        guard: Optional[Guard] = getattr(self.local, "guard", None)
        return guard

    def _extend(self, guard: Guard, time: float) -> bool:
        try:
            with redis_errors:
                guard.extend(time)
        except _errors.LockLost as error:
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned") from error
        return True

    def __enter__(self) -> RedisLock:
        if self.acquire():
            return self
        raise LockError(ACQUIRED_TOO_LATE)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            _logger.warning(FORGOTTEN_AT_EXIT)
