"""A Django management command that runs at most one time at once. ``python django_command.py``; needs ``django``.

In a project it is ``shop/management/commands/send_invoices.py``, and the URL is a setting.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings  # type: ignore[import-untyped]
from django.core.management.base import BaseCommand, CommandError  # type: ignore[import-untyped]

import leasehold

if not settings.configured:
    settings.configure(LEASEHOLD_URL="memory:")
locks = leasehold.connect(settings.LEASEHOLD_URL)


class Command(BaseCommand):  # type: ignore[misc]
    help = "Sends the invoices of today."

    def handle(self, *args: Any, **options: Any) -> str:
        try:
            # Without a wait: cron starts it again tomorrow.
            with locks.mutex("send-invoices", wait=0) as guard:
                return f"sent, with token {guard.token}"
        except leasehold.Busy as busy:
            raise CommandError(f"it runs already, started by {busy.holder}") from busy


def main() -> str:
    return Command().handle()


if __name__ == "__main__":
    print(main())
