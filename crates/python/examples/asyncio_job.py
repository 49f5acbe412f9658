"""An asyncio job that is cancelled at the moment at which its lock is lost. ``python asyncio_job.py``.

``LEASEHOLD_URL`` names the locks: ``redis://db``. Not ``file:``, where nobody can end a hold of a process that lives.
"""

from __future__ import annotations

import asyncio
import os

import leasehold


async def index(guard: leasehold.Guard, steps: list[str]) -> None:
    try:
        while True:
            steps.append(f"step with token {guard.token}")
            await asyncio.sleep(0.1)
    finally:
        steps.append("cleaned up")


async def job(locks: leasehold.Locks, steps: list[str]) -> None:
    try:
        async with locks.mutex("index", ttl=10) as guard:
            # An operator ends the hold, as an outage of the server would. In a program nothing stands here.
            asyncio.get_running_loop().call_later(0.5, locks.break_hold, "index", guard.token)
            await index(guard, steps)
    except leasehold.LockLost as lost:
        steps.append(f"stopped: {lost.reason}")


def main() -> list[str]:
    steps: list[str] = []
    asyncio.run(job(leasehold.connect(os.environ.get("LEASEHOLD_URL", "memory:")), steps))
    return steps


if __name__ == "__main__":
    print(*main(), sep="\n")
