"""The ``async with`` blocks of one object, of all tasks. A block's task is cancelled when what it holds is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from leasehold._loops import current_task, new_block

if TYPE_CHECKING:
    from leasehold._blocks import AsyncioBlock
    from leasehold._trio import TrioBlock

    Block = Union[AsyncioBlock, TrioBlock]


class Blocks:
    """The blocks that tasks are in. A task leaves its blocks in the opposite order."""

    def __init__(self) -> None:
        self._of_tasks: dict[int, list[Block]] = {}

    def enter(self, held: Any) -> None:
        """The running task is in a block that holds ``held``."""
        task = current_task()
        self._of_tasks.setdefault(id(task), []).append(new_block(held, task))

    async def leave(self, kind: Any, value: Any, traceback: Any) -> bool:
        """The running task leaves the block that it entered last."""
        return await self._take().leave(kind, value, traceback)

    def _take(self) -> Block:
        try:
            key = id(current_task())
        except RuntimeError:
            # A destroyed task.
            key = 0
        if key not in self._of_tasks:
            # A framework may leave a block in another task than it has entered it: the only block there is.
            if len(self._of_tasks) != 1:
                raise RuntimeError(
                    "this task is in no `async with` block of this object, but other tasks are in several: make an "
                    "object for each block"
                )
            key = next(iter(self._of_tasks))
        blocks = self._of_tasks[key]
        block = blocks.pop()
        if not blocks:
            del self._of_tasks[key]
        return block
