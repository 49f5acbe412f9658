"""Operations and ``async with`` blocks in tasks of trio. Imported only where trio is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Optional
from weakref import ref

import trio
from trio import lowlevel

from leasehold._errors import LockLost, lost_error
from leasehold._leasehold import WakeQueue
from leasehold._under_guard import lost_work_error, release, release_unawaited, tell_loss

if TYPE_CHECKING:
    from leasehold._leasehold import Guard, Operation

_queue: lowlevel.RunVar[WakeQueue] = lowlevel.RunVar("leasehold wake-ups")


def is_running() -> bool:
    """Whether a task of trio runs in this thread."""
    try:
        lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def current_task() -> lowlevel.Task:
    """The task that runs in this thread."""
    return lowlevel.current_task()


def wake_queue() -> WakeQueue:
    """The queue of wake-ups of this run."""
    try:
        return _queue.get()
    except LookupError:
        queue = WakeQueue()
        _queue.set(queue)
        lowlevel.spawn_system_task(_serve, queue, name="leasehold wake-ups")
        return queue


async def _serve(queue: WakeQueue) -> None:
    while True:
        await lowlevel.wait_readable(queue.fileno())
        queue.drain()


async def wait(operation: Operation[Any]) -> Any:
    """Awaits an operation. The operation begins even in a scope that is cancelled: a release must."""
    queue = wake_queue()
    while True:
        resumption = _Resumption(lowlevel.current_task())
        result = operation._advance(queue, resumption)
        if result is not None:
            await lowlevel.cancel_shielded_checkpoint()
            return result[0]
        try:
            await lowlevel.wait_task_rescheduled(resumption.abort)
        except BaseException:
            operation.close()
            raise


class _Resumption:
    """Resumes a task: what the queue of wake-ups takes for a future."""

    __slots__ = ("_task", "_is_done")

    def __init__(self, task: lowlevel.Task) -> None:
        self._task = task
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, _result: None) -> None:
        self._is_done = True
        lowlevel.reschedule(self._task)

    def abort(self, _raise_cancel: Any) -> lowlevel.Abort:
        self._is_done = True
        return lowlevel.Abort.SUCCEEDED


async def run_under(guard: Guard, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Runs ``work`` in a scope that is cancelled when the hold is lost."""
    loss = _Loss(guard, trio.CancelScope())
    lost = guard._lost()
    lost.start(loss)
    try:
        with loss.scope:
            return await work()
    finally:
        lost.close()
    # Only a loss cancels this scope.
    raise lost_work_error(guard, loss.reason or "gone")


class TrioBlock:
    """A block that a task of trio is in: a loss of the hold cancels the scope of the block."""

    __slots__ = ("guard", "_loss", "_watch")

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._loss = _Loss(guard, trio.CancelScope())
        self._watch = guard._lost()
        self._watch.start(self._loss)
        if self._loss.reason is not None:
            release_unawaited(guard)
            raise lost_error(guard, self._loss.reason)
        self._loss.scope.__enter__()

    async def leave(self, kind: Any, value: Any, traceback: Any) -> bool:
        """Releases the hold. Raises ``LockLost`` in the place of the cancellation of a scope whose hold was lost."""
        self._watch.close()
        if kind is GeneratorExit:
            # The task was destroyed: it must not await any more.
            release_unawaited(self.guard)
            return False
        try:
            is_cancelled_by_loss = self._loss.scope.__exit__(kind, value, traceback)
        except BaseException:
            release_unawaited(self.guard)
            raise
        error = await release(self.guard)
        if kind is not None and not is_cancelled_by_loss:
            return False
        if self._loss.reason is None:
            if error is not None:
                raise error
            return False
        if isinstance(error, LockLost):
            raise error from None
        raise lost_error(self.guard, self._loss.reason) from None


class _Loss:
    """What a block is told of a loss."""

    __slots__ = ("guard", "reason", "scope")

    def __init__(self, guard: Guard, scope: trio.CancelScope) -> None:
        self.guard = ref(guard)
        self.reason: Optional[str] = None
        self.scope = scope

    def __call__(self, reason: str) -> None:
        self.reason = reason
        tell_loss(self.guard(), reason)
        self.scope.cancel()
