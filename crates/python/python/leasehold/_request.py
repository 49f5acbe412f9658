"""``Request``: what to acquire, and how."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast
from weakref import WeakKeyDictionary

from leasehold._errors import Busy
from leasehold._leasehold import Guard, Request as _Request

if TYPE_CHECKING:
    from leasehold._blocks import AsyncioBlock
    from leasehold._trio import TrioBlock

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
        guard: Guard = await self._acquire(wait, id(_current_task()))
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

    async def __aenter__(self) -> Guard:
        task = _current_task()
        guard: Guard = await self._acquire(None, id(task))
        # An exception of a signal handler may be raised at each step: what is left then ends with the task.
        of_task: list[_Block] = self._blocks.setdefault(task, [])
        block = _new_block(guard, task)
        try:
            of_task.append(block)
            block.entered = _Entered(self, id(task))
        except BaseException:
            if block in of_task:
                of_task.remove(block)
            raise
        return guard

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        block = self._take_block(is_destroyed=kind is GeneratorExit)
        if block is None:
            # The block ended with its task.
            return False
        block.entered = None
        return await block.leave(kind, value, traceback)

    @property
    def _blocks(self) -> WeakKeyDictionary[Any, list[_Block]]:
        """The blocks of each task. They do not keep the task."""
        blocks: Optional[WeakKeyDictionary[Any, list[_Block]]] = self.__dict__.get("_blocks_of_tasks")
        if blocks is None:
            blocks = self.__dict__.setdefault("_blocks_of_tasks", WeakKeyDictionary())
        return blocks

    def _take_block(self, is_destroyed: bool) -> Optional[_Block]:
        """The last block of this task, or that of a task that is being destroyed. A framework may leave a block in
        another task than it has entered it: the only block there is."""
        blocks = self._blocks
        try:
            task = _current_task()
        except RuntimeError:
            task = None
        if is_destroyed:
            for other in list(blocks):
                if other is not task and getattr(other, "get_coro", None) and other.get_coro().cr_running:
                    task = other
        of_task = blocks.get(task) if task is not None else None
        if not of_task:
            if is_destroyed:
                return None
            others = [of_task for of_task in list(blocks.values()) if of_task]
            if len(others) != 1:
                raise RuntimeError(
                    "this task is in no `async with` block of this request, but other tasks are in several: make a "
                    "request for each block"
                )
            of_task = others[0]
        return of_task.pop()

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


_Block = Union["AsyncioBlock", "TrioBlock"]


class _Entered:
    """Records that a task is in a block, until it is dropped."""

    __slots__ = ("_key", "_request")

    def __init__(self, request: Request, key: int) -> None:
        self._request = request
        self._key = key
        request._enter(key)

    def __del__(self) -> None:
        self._request._leave(self._key)


def _current_task() -> Any:
    _import_loops()
    return _current_task()


def _new_block(guard: Guard, task: Any) -> _Block:
    _import_loops()
    return _new_block(guard, task)


def _import_loops() -> None:
    """Imports the event loops when the first task comes: asyncio takes longer to import than all of this module."""
    global _current_task, _new_block
    from leasehold._loops import current_task as _current_task, new_block as _new_block
