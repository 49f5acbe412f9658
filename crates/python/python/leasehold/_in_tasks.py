"""What all requests with ``async with`` blocks have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from leasehold._tasks import Blocks


class InTasks:
    """A request that tasks acquire by ``async with``."""

    @property
    def _blocks(self) -> Blocks:
        """The blocks of this request."""
        blocks: Optional[Blocks] = self.__dict__.get("_blocks_of_tasks")
        if blocks is None:
            # Only now, because asyncio takes longer to import than the whole package.
            from leasehold._tasks import Blocks

            blocks = self.__dict__.setdefault("_blocks_of_tasks", Blocks())
        return blocks

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        return await self._blocks.leave(kind, value, traceback)
