"""``Request``: what to acquire, and how."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast

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
        key = id(task)
        guard: Guard = await self._acquire(None, key)
        block = _new_block(guard, task)
        blocks: dict[int, list[_Block]] = self.__dict__.setdefault("_blocks", {})
        blocks.setdefault(key, []).append(block)
        self._enter(key)
        return guard

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        block = self._take_block(is_destroyed=kind is GeneratorExit)
        self._leave(block.key)
        return await block.leave(kind, value, traceback)

    def _take_block(self, is_destroyed: bool) -> _Block:
        """The last block of this task, or one of a task that was destroyed. A framework may leave a block in another
        task than it has entered it: the only block there is."""
        blocks: dict[int, list[_Block]] = self.__dict__["_blocks"]
        key = _key_of_destroyed(blocks) if is_destroyed else id(_current_task())
        if key not in blocks:
            if len(blocks) != 1:
                raise RuntimeError(
                    "this task is in no `async with` block of this request, but other tasks are in several: make a "
                    "request for each block"
                )
            key = next(iter(blocks))
        of_task = blocks[key]
        block = of_task.pop()
        if not of_task:
            del blocks[key]
        return block

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


def _key_of_destroyed(blocks: dict[int, list[_Block]]) -> int:
    for key, of_task in list(blocks.items()):
        if of_task and of_task[-1].task() is None:
            return key
    # Its coroutine was closed by hand.
    try:
        return id(_current_task())
    except RuntimeError:
        return 0


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
