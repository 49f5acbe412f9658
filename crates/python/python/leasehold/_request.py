"""``Request``: what to acquire, and how."""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError, current_task
from datetime import timedelta
from typing import Any, Callable, Optional, TypeVar, Union

from leasehold._errors import Busy, LockLost
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
        """Acquires if the name is free now; ``None`` if it is taken."""
        try:
            return self._try_acquire().wait()
        except Busy:
            return None

    async def acquire_async(self, wait: Optional[Seconds] = None) -> Guard:
        """:meth:`acquire`, for tasks. A cancelled task leaves nothing behind."""
        return await self._acquire(wait, id(current_task()))

    async def try_acquire_async(self) -> Optional[Guard]:
        """:meth:`try_acquire`, for tasks."""
        try:
            return await self._try_acquire()
        except Busy:
            return None

    async def __aenter__(self) -> Guard:
        task = current_task()
        guard = await self._acquire(None, id(task))
        block = _Block(guard, task)
        self._tasks.setdefault(id(task), []).append(block)
        self._enter(id(task))
        return guard

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        task = id(current_task())
        blocks = self._tasks[task]
        block = blocks.pop()
        if not blocks:
            del self._tasks[task]
        self._leave(task)
        return await block.leave(kind)

    @functools.cached_property
    def _tasks(self) -> dict[int, list[_Block]]:
        return {}

    def __call__(self, function: Function) -> Function:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def locked(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def locked(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        return locked  # type: ignore[return-value]


class _Block:
    """An ``async with`` block: its task is cancelled when the hold is lost."""

    __slots__ = ("guard", "task", "lost", "reason")

    def __init__(self, guard: Guard, task: Any) -> None:
        self.guard = guard
        self.task = task
        self.reason: Optional[str] = None
        self.lost = guard._lost()
        self.lost.start(self._cancel)

    def _cancel(self, reason: str) -> None:
        self.reason = reason
        self.task.cancel()

    async def leave(self, kind: Any) -> bool:
        self.lost.close()
        if self.reason is None:
            if not self.guard.released:
                try:
                    await self.guard.release_async()
                except LockLost:
                    if kind is None:
                        raise
            return False
        # This block cancelled its task: nobody else's cancellation is hidden.
        others = self.task.uncancel() if hasattr(self.task, "uncancel") else 0
        error: Optional[BaseException] = None
        if not self.guard.released:
            try:
                await self.guard.release_async()
            except LockLost as lost:
                error = lost
        if others > 0 or not (kind is None or issubclass(kind, CancelledError)):
            return False
        raise error or LockLost(
            f"the hold of {self.guard.name!r} was lost: {self.reason}",
            kind="lost",
            name=self.guard.name,
            reason=self.reason,
        ) from None
