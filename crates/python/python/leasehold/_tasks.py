"""The ``async with`` blocks of one request, of all tasks. A block's task is cancelled when what it holds is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Union
from weakref import WeakKeyDictionary

from leasehold._loops import current_task, new_block

if TYPE_CHECKING:
    from leasehold._blocks import AsyncioBlock
    from leasehold._trio import TrioBlock

    Block = Union[AsyncioBlock, TrioBlock]


class Blocks:
    """The blocks that tasks are in. A task leaves its blocks in the opposite order."""

    def __init__(self) -> None:
        #: They do not keep the task.
        self._of_tasks: WeakKeyDictionary[Any, list[Block]] = WeakKeyDictionary()

    @staticmethod
    def current_task() -> Any:
        """The task that runs in this thread."""
        return current_task()

    def enter(self, held: Any, task: Any, record: Optional[Callable[[], object]] = None) -> None:
        """``task``, which runs now, is in a block that holds ``held``. What ``record`` returns is kept until the end of
        the block."""
        # An exception of a signal handler may be raised at each step: what is left then ends with the task.
        of_task = self._of_tasks.setdefault(task, [])
        block = new_block(held, task)
        try:
            of_task.append(block)
            if record is not None:
                block.entered = record()
        except BaseException:
            if block in of_task:
                of_task.remove(block)
            raise

    async def leave(self, kind: Any, value: Any, traceback: Any) -> bool:
        """The running task leaves the block that it entered last."""
        block = self._take(is_destroyed=kind is GeneratorExit)
        if block is None:
            # The block ended with its task.
            return False
        block.entered = None
        return await block.leave(kind, value, traceback)

    def _take(self, is_destroyed: bool) -> Optional[Block]:
        """The last block of this task, or that of a task that is being destroyed. A framework may leave a block in
        another task than it has entered it: the only block there is."""
        blocks = self._of_tasks
        try:
            task = current_task()
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
