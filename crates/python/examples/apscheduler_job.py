"""A job of APScheduler in several processes, of which one runs it. ``python apscheduler_job.py``; needs
``apscheduler``. ``LEASEHOLD_URL`` names the locks: ``redis://db``."""

from __future__ import annotations

import os
import threading

from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

import leasehold

locks = leasehold.connect(os.environ.get("LEASEHOLD_URL", "memory:"))
runs: list[int] = []
ran = threading.Event()


def report() -> None:
    # The name stays taken for 50 s: a process whose clock is late does not run the report of this minute again.
    guard = locks.mutex("report", at_least=50).try_acquire()
    if guard is not None:
        with guard:
            runs.append(guard.token)
    ran.set()


def main() -> list[int]:
    scheduler = BackgroundScheduler()
    for _process in range(3):
        scheduler.add_job(report)  # In a program: add_job(report, "cron", minute="*").
    scheduler.start()
    ran.wait()
    scheduler.shutdown()  # It waits for the jobs.
    return runs


if __name__ == "__main__":
    print(main())
