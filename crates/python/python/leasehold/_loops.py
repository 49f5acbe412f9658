"""The event loops in which operations are awaited: those of asyncio, uvloop included, and those of trio."""

from __future__ import annotations

import asyncio
import sys
from asyncio import AbstractEventLoop, Future, get_running_loop
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from leasehold._blocks import AsyncioBlock
from leasehold._leasehold import WakeQueue

if TYPE_CHECKING:
    from leasehold._leasehold import Guard
    from leasehold._trio import TrioBlock

# Only the loop itself refers to its queue: when the loop is closed, the waits in it are cancelled.
_queues: WeakKeyDictionary[AbstractEventLoop, ReferenceType[WakeQueue]] = WeakKeyDictionary()


def new_wait() -> tuple[WakeQueue, Future[None]]:
    """The queue of wake-ups of the running loop, and a future that a task may yield to that loop."""
    loop = get_running_loop()
    queue = _queue_of(loop)
    future = loop.create_future()
    # As `Future.__await__` does before it yields itself.
    future._asyncio_future_blocking = True
    return queue, future


def wake_queue() -> WakeQueue:
    """The queue of wake-ups of the loop that runs in this thread."""
    if _is_in_trio():
        from leasehold import _trio

        return _trio.wake_queue()
    return _queue_of(get_running_loop())


def current_task() -> Any:
    """The task that runs in this thread."""
    if _is_in_trio():
        from leasehold import _trio

        return _trio.current_task()
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise RuntimeError(
            "no task runs in this thread: "
            "`async with` and `await` of leasehold need a task of asyncio (or uvloop) or trio"
        )
    return task


def new_block(guard: Guard, task: Any) -> AsyncioBlock | TrioBlock:
    """Begins an ``async with`` block of ``task``, which runs now."""
    if _is_in_trio():
        from leasehold import _trio

        return _trio.TrioBlock(guard, task)
    return AsyncioBlock(guard, task)


def _is_in_trio() -> bool:
    if "trio" not in sys.modules:
        return False
    from leasehold import _trio

    return _trio.is_running()


def _queue_of(loop: AbstractEventLoop) -> WakeQueue:
    reference = _queues.get(loop)
    queue = None if reference is None else reference()
    if queue is None:
        queue = WakeQueue()
        loop.add_reader(queue.fileno(), queue.drain)
        _queues[loop] = ref(queue)
    return queue
