"""``Once``: work that is done one time for a key. Its result is stored, and repeats receive it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Awaitable, Callable, NamedTuple, Optional, TypeVar, Union, cast

from leasehold._errors import LockError
from leasehold._leasehold import Guard, Once as _Once

if TYPE_CHECKING:
    from contextvars import ContextVar, Token

    from leasehold._locks import Locks

Encode = Callable[[Any], Union[bytes, str]]
Decode = Callable[[bytes], Any]
Key = Union[str, Callable[..., str]]
Function = TypeVar("Function", bound=Callable[..., Any])


class Ran(NamedTuple):
    """The result of work that is done one time.

    >>> import leasehold
    >>> once = leasehold.connect("memory:ran").once("order-17")
    >>> once.outcome(lambda: b"receipt 1"), once.outcome(lambda: b"receipt 2")
    (Ran(value=b'receipt 1', is_replayed=False), Ran(value=b'receipt 1', is_replayed=True))
    """

    #: The result, as ``decode`` returns it.
    value: Any
    #: Whether an earlier call did the work.
    is_replayed: bool


class Once:
    """Work that is done one time for a key: the repeated click, the message that is delivered twice.

    The first call for the key does the work under a lock and stores its result for ``keep`` seconds. A repeat receives
    that result, and waits for it while the work runs. Work that raises stores nothing, and the next call runs.

    The result must be ``bytes`` or ``None``, unless ``encode`` makes bytes or text of it, and ``decode`` the result of
    bytes. ``None`` is stored as an empty result, and each empty result is returned as ``None``:

    >>> import json, leasehold
    >>> locks = leasehold.connect("memory:once")
    >>> locks.once("mail-17").run(lambda: None)
    >>> locks.once("mail-17").stored()
    b''
    >>> order = locks.once("order-17", encode=json.dumps, decode=json.loads)
    >>> [order.run(lambda: {"receipt": receipt}) for receipt in (1, 2)]
    [{'receipt': 1}, {'receipt': 1}]

    As a decorator, with a function that makes the key of the arguments:

    >>> @locks.once(lambda number: f"charge-{number}")
    ... def charge(number):
    ...     return b"charged"
    >>> charge(17), charge(17)
    (b'charged', b'charged')

    Not promised: a process can be killed between the effect of the work and the record of its result. Then the work
    runs again. :func:`leasehold.current_guard` tells the work how the run before it ended.
    """

    def __init__(
        self,
        locks: Locks,
        key: Key,
        *,
        encode: Optional[Encode] = None,
        decode: Optional[Decode] = None,
        **options: Any,
    ) -> None:
        self._locks = locks
        self._key = key
        self._encode = encode
        self._decode = decode
        self._options = options
        # Of a fixed key the arguments are checked now.
        self._native: Optional[_Once] = None if callable(key) else _Once(locks, key, **options)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls ``function``, or returns the result of the call that did it. Waits for one that goes on.

        Nothing can stop the function when the lock is lost meanwhile: it looks at ``current_guard().check()`` before
        each step that others can see. Then :class:`LockLost` is raised at its end, with the result as ``result``.

        >>> import leasehold
        >>> leasehold.connect("memory:run").once("order-17").run(lambda: b"receipt 1")
        b'receipt 1'
        """
        return self.outcome(function, *args, **kwargs).value

    def outcome(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Ran:
        """:meth:`run`, and whether an earlier call did the work.

        >>> import leasehold
        >>> leasehold.connect("memory:outcome").once("order-17").outcome(lambda: b"receipt 1").is_replayed
        False
        """
        native = self._native_of(args, kwargs)
        turn = native._begin().wait()
        if isinstance(turn, bytes):
            return Ran(self._decoded(turn), True)
        try:
            with _Working(turn):
                encoded = self._encoded(function(*args, **kwargs))
        except Exception:
            _ignore_errors(native._give_up(turn).wait)
            raise
        except BaseException:
            _abandon(turn)
            raise
        try:
            native._store(turn, encoded).wait()
        except LockError as error:
            raise _not_stored(error, self._decoded(encoded)) from None
        return Ran(self._decoded(encoded), False)

    async def run_async(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """:meth:`run`, for coroutine functions. The work is cancelled when the lock is lost.

        A web server cancels a handler whose client hangs up: then the work is cancelled, too, and stores nothing.

        >>> import asyncio, leasehold
        >>> async def order():
        ...     return b"receipt 1"
        >>> asyncio.run(leasehold.connect("memory:run-async").once("order-17").run_async(order))
        b'receipt 1'
        """
        return (await self.outcome_async(function, *args, **kwargs)).value

    async def outcome_async(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Ran:
        """:meth:`run_async`, and whether an earlier call did the work.

        >>> import asyncio, leasehold
        >>> async def order():
        ...     return b"receipt 1"
        >>> asyncio.run(leasehold.connect("memory:outcome-async").once("order-17").outcome_async(order)).is_replayed
        False
        """
        native = self._native_of(args, kwargs)
        turn = await native._begin()
        if isinstance(turn, bytes):
            return Ran(self._decoded(turn), True)
        try:
            encoded = self._encoded(await _run_under(turn, function, args, kwargs))
        except Exception:
            try:
                await native._give_up(turn)
            except LockError:
                pass
            raise
        except BaseException:
            _abandon(turn)
            raise
        try:
            await native._store(turn, encoded)
        except LockError as error:
            raise _not_stored(error, self._decoded(encoded)) from None
        return Ran(self._decoded(encoded), False)

    def stored(self) -> Any:
        """The stored result; ``None`` if there is none, ``b""`` of work without a result. One request, and nothing
        runs.

        >>> import leasehold
        >>> leasehold.connect("memory:stored").once("order-17").stored() is None
        True
        """
        return self._decoded_record(self._native_of((), {})._stored().wait())

    async def stored_async(self) -> Any:
        """:meth:`stored`, for tasks.

        >>> import asyncio, leasehold
        >>> asyncio.run(leasehold.connect("memory:stored-async").once("order-17").stored_async()) is None
        True
        """
        return self._decoded_record(await self._native_of((), {})._stored())

    def __call__(self, function: Function) -> Function:
        import inspect

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def task_done_once(*args: Any, **kwargs: Any) -> Any:
                return await self.run_async(function, *args, **kwargs)

            return cast(Function, task_done_once)

        @functools.wraps(function)
        def done_once(*args: Any, **kwargs: Any) -> Any:
            return self.run(function, *args, **kwargs)

        return cast(Function, done_once)

    def _native_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Once:
        if self._native is not None:
            return self._native
        return _Once(self._locks, cast(Callable[..., str], self._key)(*args, **kwargs), **self._options)

    def _encoded(self, value: Any) -> bytes:
        if value is None and self._encode is None and self._decode is None:
            return b""
        encoded = value if self._encode is None else self._encode(value)
        if isinstance(encoded, str) and self._encode is not None:
            return encoded.encode()
        if not isinstance(encoded, bytes):
            remedy = "encode must return bytes or str" if self._encode else "give encode= and decode= to once()"
            raise TypeError(
                f"the work ran, and nothing is stored: the result to store must be bytes, not "
                f"{type(encoded).__name__}: {remedy}"
            )
        return encoded

    def _decoded(self, stored: bytes) -> Any:
        if self._decode is None:
            return stored or None
        return self._decode(stored)

    def _decoded_record(self, stored: Optional[bytes]) -> Any:
        return stored if stored is None or self._decode is None else self._decode(stored)

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self._locks, self._key, self._encode, self._decode, self._options))


def _rebuild(
    once_class: type[Once],
    locks: Locks,
    key: Key,
    encode: Optional[Encode],
    decode: Optional[Decode],
    options: dict[str, Any],
) -> Once:
    return once_class(locks, key, encode=encode, decode=decode, **options)


def current_guard() -> Guard:
    """The guard under which the work of a :class:`Once` runs: its token belongs to every write.

    >>> import leasehold
    >>> def charge():
    ...     guard = leasehold.current_guard()
    ...     return f"{guard.previous} {guard.check()}".encode()
    >>> leasehold.connect("memory:current-guard").once("order-17").run(charge)
    b'clean True'
    """
    guard: Optional[Guard] = _guard().get(None)
    if guard is None:
        raise RuntimeError("no work of leasehold.Once runs here")
    return guard


@functools.lru_cache(None)
def _guard() -> ContextVar[Guard]:
    from contextvars import ContextVar

    return ContextVar("leasehold guard")


class _Working:
    """A block in which :func:`current_guard` is this guard."""

    __slots__ = ("guard", "token")

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.token: Token[Guard]

    def __enter__(self) -> None:
        self.token = _guard().set(self.guard)

    def __exit__(self, *exception: Any) -> None:
        _guard().reset(self.token)


def _abandon(turn: Guard) -> None:
    """Begins the release of work that was interrupted, and does not wait for the answer: the next run is told.

    The exception may live on, in a task or a log; its traceback refers to the guard, which would be held until then.
    """
    try:
        if not turn.released:
            turn.release_async().close()
    except LockError:
        # In a forked child: the run is its parent's.
        pass


async def _run_under(guard: Guard, function: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
    """Runs the coroutine, and cancels it when the hold is lost."""
    from leasehold._loops import is_in_trio

    async def work() -> Any:
        with _Working(guard):
            return await function(*args, **kwargs)

    if is_in_trio():
        from leasehold._trio import run_under
    else:
        from leasehold._under_guard import run_under
    return await run_under(guard, work)


def _ignore_errors(call: Callable[[], Any]) -> None:
    try:
        call()
    except LockError:
        # The exception of the work counts. Nothing is stored in any case.
        pass


def _not_stored(error: LockError, result: Any) -> LockError:
    known = "is not known to be stored" if error.kind == "unknown" else "is not stored"
    error.args = (f"the work ran to its end, but its result {known}: {error}",)
    error.result = result
    return error
