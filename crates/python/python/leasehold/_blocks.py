"""``async with`` blocks of tasks of asyncio: a loss of the hold cancels the task."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, Optional
from weakref import ref

from leasehold._errors import LockError, LockLost

if TYPE_CHECKING:
    from leasehold._leasehold import Guard


class AsyncioBlock:
    """A block that a task of asyncio is in."""

    __slots__ = ("guard", "entered", "task", "_loss", "_watch")

    def __init__(self, guard: Guard, task: Any) -> None:
        self.guard = guard
        #: Ends when it is dropped.
        self.entered: Any = None
        # Weakly: a task that nobody resumes any more must be collected, with its block.
        self.task = ref(task)
        self._loss = _Loss()
        self._watch = guard._lost()
        self._watch.start(self._loss)
        if self._loss.reason is not None:
            release_unawaited(guard)
            raise lost_error(guard, self._loss.reason)
        self._loss.task = self.task

    async def leave(self, kind: Any, value: Any, traceback: Any) -> bool:
        """Releases the hold. Raises ``LockLost`` in the place of the cancellation of a task whose hold was lost."""
        self._watch.close()
        if kind is GeneratorExit:
            # The task was destroyed: it must not await any more.
            release_unawaited(self.guard)
            return False
        others = 0
        task = self.task()
        if self._loss.reason is not None and task is not None and hasattr(task, "uncancel"):
            # Takes back the cancellation by this block. Before Python 3.11 one cannot tell it from another that comes
            # in the same turn of the loop.
            others = task.uncancel()
        error = await release(self.guard)
        if kind is not None and not issubclass(kind, CancelledError):
            return False
        if self._loss.reason is None:
            if kind is None and error is not None:
                raise error
            return False
        if kind is not None and others > 0:
            # Somebody else cancels the task, too.
            return False
        if isinstance(error, LockLost):
            raise error from None
        raise lost_error(self.guard, self._loss.reason) from None


class _Loss:
    """What a block is told of a loss. It refers neither to the block nor, strongly, to the task: the watch that has
    this callback must not keep them."""

    __slots__ = ("reason", "task")

    def __init__(self) -> None:
        self.reason: Optional[str] = None
        #: ``None`` while the block is being entered.
        self.task: Optional[ref[Any]] = None

    def __call__(self, reason: str) -> None:
        self.reason = reason
        task = None if self.task is None else self.task()
        if task is not None:
            task.cancel()


async def release(guard: Guard) -> Optional[LockError]:
    """Releases the hold, unless the block has done it. Returns what went wrong."""
    if guard.released:
        return None
    try:
        await guard.release_async()
    except LockError as error:
        return error
    return None


def release_unawaited(guard: Guard) -> None:
    """Begins the release, unless it has begun, and does not wait for the answer."""
    if not guard.released:
        guard.release_async().close()


def lost_error(guard: Guard, reason: str) -> LockLost:
    """The exception of a block whose hold was lost."""
    return LockLost(
        f"the hold of {guard.name!r} with token {guard.token} was lost: {reason}",
        kind="lost",
        name=guard.name,
        engine=guard.engine,
        reason=reason,
    )
