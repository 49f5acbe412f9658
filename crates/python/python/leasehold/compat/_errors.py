"""The exceptions of redis-py, for programs with and without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold import _errors

if TYPE_CHECKING:
    from redis.exceptions import ConnectionError, LockError, LockNotOwnedError, RedisError
else:
    try:
        from redis.exceptions import ConnectionError, LockError, LockNotOwnedError, RedisError
    except ImportError:

        class RedisError(Exception):
            """The exception of redis-py, for programs without it."""

        class ConnectionError(RedisError):
            """The exception of redis-py, for programs without it."""

        class LockError(ValueError):
            """The exception of redis-py, for programs without it."""

        class LockNotOwnedError(LockError):
            """The exception of redis-py, for programs without it."""


__all__ = [
    "ACQUIRED_TOO_LATE",
    "FORGOTTEN_AT_EXIT",
    "LockError",
    "LockNotOwnedError",
    "NOT_OWNED",
    "NO_LONGER_OWNED",
    "TOKEN_GIVEN",
    "redis_errors",
    "waits_for_itself",
]

#: The texts of redis-py.
NOT_OWNED = "Cannot release a lock that's not owned or is already unlocked."
NO_LONGER_OWNED = "Cannot release a lock that's no longer owned"
ACQUIRED_TOO_LATE = "Unable to acquire lock within the time specified"
FORGOTTEN_AT_EXIT = "Lock was unlocked or no longer owned when exiting context manager."
#: Of these locks alone.
TOKEN_GIVEN = "leasehold makes the token of a lock itself: call acquire() without token"


def waits_for_itself(name: str) -> LockError:
    """The refusal of a wait that would never end."""
    return LockError(f"This object holds the lock {name!r} already, and would wait for itself for ever")


class Unreachable(_errors.Unreachable, ConnectionError):
    """:class:`leasehold.Unreachable` that programs for redis-py catch, too."""


class Misconfigured(_errors.Misconfigured, RedisError):
    """:class:`leasehold.Misconfigured` that programs for redis-py catch, too."""


class Refused(_errors.Refused, RedisError):
    """:class:`leasehold.Refused` that programs for redis-py catch, too."""


class Forked(_errors.Forked, LockError):
    """:class:`leasehold.Forked` that programs for redis-py catch, too."""


_CLASSES = {
    _errors.Unreachable: Unreachable,
    _errors.Misconfigured: Misconfigured,
    _errors.Refused: Refused,
    _errors.Forked: Forked,
}


class _RedisErrors:
    """A block whose exceptions of leasehold become exceptions of redis-py, too."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        error_class = _CLASSES.get(kind)
        if error_class is not None:
            known = {"kind": value.kind, "name": value.name, "engine": value.engine, "reason": value.reason}
            raise error_class(str(value), **known) from None


redis_errors = _RedisErrors()
