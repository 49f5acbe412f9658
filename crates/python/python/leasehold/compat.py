"""Locks of other packages' signatures, for programs that move over one import at a time.

``RedisLock`` has the constructor, the methods and the exceptions of redis-py's ``Lock``::

    # from redis.lock import Lock
    from leasehold.compat import RedisLock as Lock

    with Lock(client, "report", timeout=10, blocking_timeout=5):
        ...

    # Or only the class:
    with client.lock("report", timeout=10, lock_class=RedisLock):
        ...

It has the key of redis-py's lock, so programs with either exclude each other: move them one after another.
"""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional, Union

from leasehold import _errors
from leasehold._leasehold import Guard
from leasehold._locks import Locks, connect

if TYPE_CHECKING:
    from redis.exceptions import LockError, LockNotOwnedError
else:
    try:
        from redis.exceptions import LockError, LockNotOwnedError
    except ImportError:

        class LockError(ValueError):
            """The exception of redis-py, for programs without it."""

        class LockNotOwnedError(LockError):
            """The exception of redis-py, for programs without it."""


__all__ = ["LockError", "LockNotOwnedError", "RedisLock"]

_logger = logging.getLogger("leasehold")

#: The locks of each server: one connection serves all locks of a process. Its key is what connects.
_locks: dict[Any, Locks] = {}


class RedisLock:
    """A lock with the signature of redis-py's ``Lock``, on the same key.

    ``redis`` is a client of redis-py, whose settings are used for a connection of its own, or a URL of leasehold:
    ``"redis://localhost"``. What differs from redis-py:

    * **Waiting.** A waiter is told when the lock is free, and waiters are served first come, first served. ``sleep`` is
      accepted, and not needed.
    * **timeout=None.** redis-py stores a lock without an end, which a killed process leaves for ever. Here the lock is
      renewed while the process lives, and ends 30 s after it died.
    * **timeout=n** is the longest life of the lock, as in redis-py, unless it is extended; at least 0.1.
    * **extend** and **reacquire** never shorten a lock, also not with ``replace_ttl=True``.
    * **owned** asks no server. It is false from the moment at which the lock may be somebody else's.
    * **Tokens** are made here: ``acquire(token=...)`` raises ``TypeError``. ``local.token`` is what the key contains.
    * A lock object that would wait for itself for ever raises :class:`LockError`.
    * Errors of the server are exceptions of leasehold: :class:`leasehold.Unreachable` and so on.

    >>> import leasehold.compat
    >>> lock = leasehold.compat.RedisLock("memory:", "report", timeout=10)
    >>> with lock:
    ...     lock.owned()
    True
    >>> lock.locked()
    False
    """

    def __init__(
        self,
        redis: Any,
        name: Union[str, bytes],
        timeout: Optional[float] = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[float] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name = name.decode() if isinstance(name, bytes) else name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = None
        self._locks = _locks_of(redis)

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
            raise TypeError("leasehold makes the token of a lock itself: call acquire() without token")
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        if blocking and blocking_timeout is None and not self.timeout and self.owned():
            raise LockError(f"This object holds the lock {self.name!r} already, and would wait for itself for ever")
        # Without a timeout the lock lives as long as its process: it is renewed.
        request = self._locks.mutex(self.name, ttl=self.timeout or None, renew=not self.timeout)
        try:
            guard = request.acquire(blocking_timeout) if blocking else request.try_acquire()
        except _errors.Busy:
            return False
        if guard is None:
            return False
        self.local.guard = guard
        self.local.token = f"{guard.id}.{guard.token}".encode()
        return True

    def locked(self) -> bool:
        """Whether any process holds the lock. Asks the server.

        >>> import leasehold.compat
        >>> leasehold.compat.RedisLock("memory:", "report").locked()
        False
        """
        return bool(self._locks.show(self.name).holders)

    def owned(self) -> bool:
        """Whether this object holds the lock, certainly and now. Asks no server.

        >>> import leasehold.compat
        >>> leasehold.compat.RedisLock("memory:", "report").owned()
        False
        """
        guard = self._guard
        return guard is not None and guard.check()

    def release(self) -> None:
        """Releases the lock.

        >>> import leasehold.compat
        >>> lock = leasehold.compat.RedisLock("memory:", "report")
        >>> lock.acquire()
        True
        >>> lock.release()
        """
        token = self.local.token if self._guard is not None else None
        if token is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.")
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
            raise LockNotOwnedError("Cannot release a lock that's no longer owned")
        self.local.guard = None
        self.local.token = None
        try:
            guard.release()
        except _errors.LockLost as error:
            raise LockNotOwnedError("Cannot release a lock that's no longer owned") from error

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Adds ``additional_time`` seconds to what is left; with ``replace_ttl``, to now.

        >>> import leasehold.compat
        >>> with leasehold.compat.RedisLock("memory:", "report", timeout=10) as lock:
        ...     lock.extend(60)
        True
        """
        guard = self._timed_guard("extend")
        left = 0.0 if replace_ttl else guard.remaining or 0.0
        return self._extend(guard, left + additional_time)

    def reacquire(self) -> bool:
        """Makes the lock last for ``timeout`` seconds from now on.

        >>> import leasehold.compat
        >>> with leasehold.compat.RedisLock("memory:", "report", timeout=10) as lock:
        ...     lock.reacquire()
        True
        """
        guard = self._timed_guard("reacquire")
        return self._extend(guard, self.timeout or 0.0)

    @property
    def _guard(self) -> Optional[Guard]:
        guard: Optional[Guard] = getattr(self.local, "guard", None)
        return guard

    def _timed_guard(self, verb: str) -> Guard:
        guard = self._guard
        if guard is None:
            raise LockError(f"Cannot {verb} an unlocked lock")
        if self.timeout is None:
            raise LockError(f"Cannot {verb} a lock with no timeout")
        return guard

    def _extend(self, guard: Guard, time: float) -> bool:
        try:
            guard.extend(time)
        except _errors.LockLost as error:
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned") from error
        return True

    def __enter__(self) -> RedisLock:
        if self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified")

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            _logger.warning("Lock was unlocked or no longer owned when exiting context manager.")


def _locks_of(redis: Any) -> Locks:
    """The locks of the server of a client, or of a URL."""
    url, password = (redis, None) if isinstance(redis, str) else _url_of(redis)
    # The key of redis-py is the name itself.
    prefix = None if url.partition(":")[0] in ("memory", "file") else ""
    key = (url, password)
    if key not in _locks:
        _locks[key] = connect(url, prefix=prefix, password=password)
    return _locks[key]


def _url_of(redis: Any) -> tuple[str, Optional[str]]:
    """The URL and the password of the server of a client of redis-py."""
    from urllib.parse import quote, urlencode

    settings = getattr(getattr(redis, "connection_pool", None), "connection_kwargs", None)
    if settings is None or not ("host" in settings or "path" in settings):
        raise TypeError(
            f"redis must be a redis.Redis client of one server, or a URL of leasehold, not {type(redis).__name__}"
        )
    if settings.get("credential_provider") is not None:
        raise TypeError("redis has a credential_provider, which leasehold cannot use: give a URL of leasehold")
    username = settings.get("username")
    user = f"{quote(username, safe='')}@" if username else ""
    database = settings.get("db") or 0
    if "path" in settings:
        return f"redis+unix://{user}{quote(settings['path'])}?db={database}", settings.get("password")
    host = settings.get("host") or "localhost"
    address = f"{user}[{host}]" if ":" in host else f"{user}{host}"
    scheme, options = "redis", {}
    # redis-py 4 has `ssl`, later releases have a connection class of their own.
    pool_class = getattr(redis.connection_pool, "connection_class", None)
    if settings.get("ssl") or "SSL" in getattr(pool_class, "__name__", ""):
        scheme = "rediss"
        if str(settings.get("ssl_cert_reqs", "required")) not in ("required", "VerifyMode.CERT_REQUIRED", "2"):
            raise TypeError("redis does not verify the server's certificate, which leasehold always does")
        names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        options = {ours: settings[theirs] for ours, theirs in names.items() if settings.get(theirs)}
    query = f"?{urlencode(options)}" if options else ""
    return f"{scheme}://{address}:{settings.get('port') or 6379}/{database}{query}", settings.get("password")
