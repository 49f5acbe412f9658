"""Metrics for ``prometheus_client``: series of waits, holds and losses.

The library counts in memory, and a scrape reads the sums: no event waits for the interpreter. The names, labels and
meanings are those of the Rust crate. Each process has its own series; the mode of ``prometheus_client`` for several
processes does not know them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional

from leasehold._leasehold import record_metrics, recorded_metrics

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

_HELP = {
    "leasehold_acquire_duration_seconds": "The time of a request for a lock, from its begin to its end",
    "leasehold_hold_duration_seconds": "The time from a grant to the end of its guard",
    "leasehold_waiter_count": "Requests that have begun and not ended",
    "leasehold_holder_count": "Guards that were granted and neither ended nor lost",
    "leasehold_queue_position": "How many requests were ahead when a request was queued or moved up",
    "leasehold_losses_total": "Guards whose hold was lost",
    "leasehold_renewals_total": "Renewals of holds",
    "leasehold_renewal_margin_seconds": "For how much longer a hold would have been valid without its renewal",
    "leasehold_request_duration_seconds": "The time of a request to the engine",
    "leasehold_connects_total": "Connections that were made",
    "leasehold_reconnects_total": "Connections that were made after an earlier one",
    "leasehold_disconnects_total": "Connections that were lost",
    "leasehold_server_switches_total": "Changes to another server",
}


class Collector:
    """Reads the series at each scrape. :func:`install` registers one."""

    def describe(self) -> list[Any]:
        """No series is announced before it has a value."""
        return []

    def collect(self) -> Iterator[Any]:
        """The series of all locks of this process."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        families: dict[str, Any] = {}
        for name, engine, labels, value in recorded_metrics():
            family: Any = families.get(name)
            if family is None:
                names = ["engine", *(label for label, _ in labels)]
                if name.endswith("_total"):
                    family = CounterMetricFamily(name, _HELP[name], labels=names)
                elif isinstance(value, int):
                    family = GaugeMetricFamily(name, _HELP[name], labels=names)
                else:
                    family = HistogramMetricFamily(name, _HELP[name], labels=names)
                families[name] = family
            values = [engine, *(text for _, text in labels)]
            if isinstance(value, int):
                family.add_metric(values, value)
            else:
                buckets, count, total = value
                ends = [(str(end), below) for end, below in buckets]
                family.add_metric(values, [*ends, ("+Inf", count)], sum_value=total)
        yield from families.values()


def install(registry: Optional[CollectorRegistry] = None) -> Collector:
    """Records the locks that are connected from now on, and registers their series.

    ``registry``: that of ``prometheus_client`` by default. Call it one time, at the start of the program, before
    :func:`leasehold.connect`.

    >>> import leasehold, leasehold.metrics
    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> collector = leasehold.metrics.install(registry)
    >>> with leasehold.connect("memory:").mutex("order/17"):
    ...     registry.get_sample_value("leasehold_holder_count", {"engine": "memory", "mode": "exclusive"})
    1
    """
    if registry is None:
        from prometheus_client import REGISTRY

        registry = REGISTRY
    if record_metrics():
        import warnings

        message = "the series do not contain the locks that were connected before: call install() before connect()"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    collector = Collector()
    registry.register(collector)
    return collector
