"""Celery beat on several machines, of which one sends each task. ``python celery_beat.py``; needs ``celery``.

Each machine runs a beat. The leader sends; the others wait, and one of them takes over when the leader ends or is cut
off from the locks: its beat stops at the loss. ``LEASEHOLD_URL`` names the locks: ``redis://db``.
"""

from __future__ import annotations

import os
import threading

from celery import Celery  # type: ignore[import-untyped]
from celery.beat import Service  # type: ignore[import-untyped]

import leasehold

app = Celery("shop", broker="memory://")
app.conf.beat_schedule = {"report": {"task": "shop.report", "schedule": 60.0}}
app.conf.beat_schedule_filename = os.environ.get("BEAT_SCHEDULE", "celerybeat-schedule")


def main(run_for: float = threading.TIMEOUT_MAX) -> int:
    locks = leasehold.connect(os.environ.get("LEASEHOLD_URL", "memory:"))
    with locks.election("celery-beat") as leading:
        beat = Service(app, max_interval=0.2)  # It looks so often whether it is stopped.
        leading.on_lost(lambda reason: beat.stop())
        threading.Timer(run_for, beat.stop).start() if run_for < threading.TIMEOUT_MAX else None
        beat.start()
        return leading.term


if __name__ == "__main__":
    main()
