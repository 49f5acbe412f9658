"""Celery beat on several machines, of which one sends each task. ``python celery_beat.py``; needs ``celery``.

Each machine runs a beat under a supervisor. The leader sends; the others wait, and one of them takes over when the
leader ends or is cut off from the locks. A beat that was paused looks before each task whether it still leads, and one
that lost the lead ends with ``LockLost``: its supervisor starts it again. ``LEASEHOLD_URL`` names the locks, and
``BROKER_URL`` the broker: ``redis://db``. The defaults are for one process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from celery import Celery  # type: ignore[import-untyped]
from celery.beat import PersistentScheduler, Service  # type: ignore[import-untyped]

import leasehold

app = Celery("shop", broker=os.environ.get("BROKER_URL", "memory://"))
app.conf.beat_schedule = {"report": {"task": "shop.report", "schedule": 60.0}}
app.conf.beat_schedule_filename = os.environ.get("BEAT_SCHEDULE", "celerybeat-schedule")


class LeadersScheduler(PersistentScheduler):  # type: ignore[misc]
    """Sends a task only while this process certainly leads."""

    def __init__(self, leading: leasehold.Leading, *args: Any, **kwargs: Any) -> None:
        self.leading = leading
        super().__init__(*args, **kwargs)

    def apply_async(self, *args: Any, **kwargs: Any) -> Any:
        return super().apply_async(*args, **kwargs) if self.leading.check() else None


def main(run_for: float = threading.TIMEOUT_MAX) -> int:
    locks = leasehold.connect(os.environ.get("LEASEHOLD_URL", "memory:"))
    with locks.election("celery-beat") as leading:
        # It looks so often whether it is stopped.
        beat = Service(app, max_interval=0.2, scheduler_cls=lambda *a, **kw: LeadersScheduler(leading, *a, **kw))
        leading.on_lost(lambda reason: beat.stop())
        threading.Timer(run_for, beat.stop).start() if run_for < threading.TIMEOUT_MAX else None
        beat.start()
        return leading.term


if __name__ == "__main__":
    # Otherwise the end of a deployment would leave the lead to the end of its lease.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    main()
