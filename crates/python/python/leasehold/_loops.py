"""The event loops in which operations are awaited: those of asyncio, uvloop included, and those of trio."""

from __future__ import annotations

import asyncio
import sys
from asyncio import AbstractEventLoop
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from leasehold._leasehold import WakeQueue

# Only the loop itself refers to its queue: when the loop is closed, the waits in it are cancelled.
_queues: WeakKeyDictionary[AbstractEventLoop, ReferenceType[WakeQueue]] = WeakKeyDictionary()


def queue_of(loop: AbstractEventLoop) -> WakeQueue:
    """The queue of wake-ups of a loop of asyncio."""
    reference = _queues.get(loop)
    queue = None if reference is None else reference()
    if queue is None:
        queue = WakeQueue()
        loop.add_reader(queue.fileno(), queue.drain)
        _queues[loop] = ref(queue)
    return queue


def current_task() -> Any:
    """The task that runs in this thread."""
    if is_in_trio():
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


def is_in_trio() -> bool:
    """Whether a task of trio runs in this thread."""
    if "trio" not in sys.modules:
        return False
    from leasehold import _trio

    return _trio.is_running()
