"""``Request``: what to acquire, and how."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, Callable, Optional, TypeVar, Union, cast

from leasehold._errors import Busy
from leasehold._leasehold import Guard, Request as _Request

Seconds = Union[float, timedelta]
Function = TypeVar("Function", bound=Callable[..., Any])


class Request(_Request):
    """A request for a lock. It holds nothing, and can be used any number of times, by threads and tasks.

    It is a context manager (``with`` and ``async with``) and a decorator of functions and coroutines:

    >>> import leasehold
    >>> locks = leasehold.connect("memory:")
    >>> @locks.mutex("report")
    ... def write_report():
    ...     return "written"
    >>> write_report()
    'written'
    """

    def try_acquire(self) -> Optional[Guard]:
        """Acquires if the name is free now; ``None`` if it is taken.

        >>> import leasehold
        >>> locks = leasehold.connect("memory:")
        >>> with locks.mutex("order/17"):
        ...     locks.mutex("order/17").try_acquire() is None
        True
        """
        try:
            return self._try_acquire().wait()
        except Busy:
            return None

    async def acquire_async(self, wait: Optional[Seconds] = None) -> Guard:
        """:meth:`acquire`, for tasks. A cancelled task leaves nothing behind.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     guard = await leasehold.connect("memory:").mutex("order/17").acquire_async(wait=2)
        ...     await guard.release_async()
        ...     return guard.name
        >>> asyncio.run(main())
        'order/17'
        """
        guard: Guard = await self._acquire(wait)
        return guard

    async def try_acquire_async(self) -> Optional[Guard]:
        """:meth:`try_acquire`, for tasks.

        >>> import asyncio, leasehold
        >>> async def main():
        ...     locks = leasehold.connect("memory:")
        ...     async with locks.mutex("order/17"):
        ...         return await locks.mutex("order/17").try_acquire_async()
        >>> asyncio.run(main()) is None
        True
        """
        try:
            guard: Guard = await self._try_acquire()
        except Busy:
            return None
        return guard

    def __call__(self, function: Function) -> Function:
        import inspect

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator would run after the lock was released: use `with` inside it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def task_locked(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast(Function, task_locked)

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(Function, locked)
