"""The exceptions. Each one says what happened, to which name, on which engine; none contains a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from leasehold._leasehold import Guard, Locks


class LockError(Exception):
    """The base of all exceptions of this module.

    ``kind`` is one word for programs and metrics: ``"timed_out"``, for example. ``name`` is the name of the lock and
    ``engine`` its engine, where the error concerns one.

    >>> import leasehold
    >>> try:
    ...     leasehold.connect("rediss:/")
    ... except leasehold.LockError as error:
    ...     print(error.kind)
    misconfigured
    """

    #: What the work returned, if it is done and its result is not stored: see ``Once``.
    result: Any = None

    def __init__(
        self,
        message: str,
        *,
        kind: str = "internal",
        name: Optional[str] = None,
        engine: Optional[str] = None,
        reason: Optional[str] = None,
        locks: Optional[Locks] = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name
        self.engine = engine
        self.reason = reason
        self._locks = locks

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), str(self), self.kind, self.name, self.engine, self.reason))


class Busy(LockError):
    """Somebody else holds the name, or the queue is as long as ``max_waiting`` allows.

    ``holder`` and ``age`` ask the engine when they are read for the first time.

    >>> import leasehold
    >>> locks = leasehold.connect("memory:", owner="shop, node 3")
    >>> with locks.mutex("order/17"):
    ...     try:
    ...         leasehold.connect("memory:").mutex("order/17").acquire(wait=0)
    ...     except leasehold.Busy as busy:
    ...         print(busy.holder, busy.age < 10)
    shop, node 3 True
    """

    _found: Optional[tuple[Optional[str], Optional[float]]] = None

    @property
    def holder(self) -> Optional[str]:
        """The owner text of a holder; ``None`` if nobody holds the name any more, or the engine does not answer."""
        return self._first_holder()[0]

    @property
    def age(self) -> Optional[float]:
        """Seconds for which that holder has had the name."""
        return self._first_holder()[1]

    def _first_holder(self) -> tuple[Optional[str], Optional[float]]:
        if self._found is None:
            self._found = self._ask() or (None, None)
        return self._found

    def _ask(self) -> Optional[tuple[str, Optional[float]]]:
        from leasehold._leasehold import holder

        if self._locks is None or self.name is None:
            return None
        try:
            return holder(self._locks, self.name).wait()
        except LockError:
            # What is known is that the name was taken.
            return None


class LockLost(LockError):
    """The hold was lost before the call, or before the end of the block. ``reason`` is one word: ``"lapsed"``."""


class Unreachable(LockError):
    """The engine cannot be reached. With ``kind`` ``"unknown"``: the call may or may not have been applied."""


class Misconfigured(LockError):
    """The URL, the configuration, the rights of the user, or the data under the key is wrong."""


class InvalidArgument(Misconfigured, ValueError):
    """An argument of the call is wrong."""


class Refused(LockError):
    """The engine refused for a reason of its own: read-only, out of memory, disk full."""


class Closed(LockError):
    """The locks were closed."""


class Forked(LockError):
    """The guard belongs to the parent process."""


_CLASSES = {
    "taken": Busy,
    "timed_out": Busy,
    "busy": Busy,
    "lost": LockLost,
    "fenced": LockLost,
    "unreachable": Unreachable,
    "unknown": Unreachable,
    "misconfigured": Misconfigured,
    "denied": Misconfigured,
    "invalid": InvalidArgument,
    "mismatch": InvalidArgument,
    "refused": Refused,
    "closed": Closed,
    "forked": Forked,
}


def from_native(
    kind: str,
    message: str,
    name: Optional[str],
    engine: Optional[str],
    reason: Optional[str],
    locks: Optional[Locks],
) -> LockError:
    """The exception for an error of the library."""
    # The options of `connect` are methods in Rust.
    message = message.replace("Connect::", "the argument ")
    error_class = _CLASSES.get(kind, LockError)
    return error_class(message, kind=kind, name=name, engine=engine, reason=reason, locks=locks)


def lost_error(guard: Guard, reason: str) -> LockLost:
    """The exception of a block whose hold was lost."""
    return LockLost(
        f"the hold of {guard.name!r} with token {guard.token} was lost: {reason}",
        kind="lost",
        name=guard.name,
        engine=guard.engine,
        reason=reason,
    )


def _rebuild(
    error_class: type[LockError],
    message: str,
    kind: str,
    name: Optional[str],
    engine: Optional[str],
    reason: Optional[str],
) -> LockError:
    return error_class(message, kind=kind, name=name, engine=engine, reason=reason)
