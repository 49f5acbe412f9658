//! The series that `Metrics` records.
#![cfg(all(feature = "metrics", feature = "test"))]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{
    Connect, Locks, Loss, Metrics, Verb,
    test::{Fault, Kit},
};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// Stores the value of each series: the sum of a counter, the value of a gauge, the count of a histogram.
#[derive(Clone, Default)]
struct Series(Arc<Mutex<HashMap<Key, Arc<Cell>>>>);

#[derive(Debug, Default)]
struct Cell(Mutex<f64>);

impl Cell {
    fn add(&self, value: f64) {
        *self.0.lock().unwrap() += value;
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {}
}

impl HistogramFn for Cell {
    fn record(&self, _: f64) {
        self.add(1.0);
    }
}

impl Series {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let mut series = self.0.lock().unwrap();
        match series.get(key) {
            Some(cell) => Arc::clone(cell),
            None => Arc::clone(series.entry(key.clone()).or_default()),
        }
    }

    /// The sum of the series with this name and all these labels.
    fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let series = self.0.lock().unwrap();
        let has_labels = |key: &Key| {
            labels.iter().all(|wanted| {
                key.labels().any(|label| *wanted == format!("{}={}", label.key(), label.value()))
            })
        };
        let wanted = series.iter().filter(|(key, _)| key.name() == name && has_labels(key));
        wanted.map(|(_, cell)| *cell.0.lock().unwrap()).sum()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Recorder for Series {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

/// Runs `test` on paused time, with the series of its locks.
fn with_series<T>(metrics: Metrics, test: impl AsyncFnOnce(Kit, Locks, Series) -> T) -> T {
    let series = Series::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&series.clone(), || {
        runtime.block_on(async {
            let kit = Kit::new();
            let locks = kit.process_with("a", Connect::default().observe(Arc::new(metrics)));
            test(kit, locks, series).await
        })
    })
}

#[test]
fn waits_holds_renewals_losses_and_connections_have_series() {
    with_series(Metrics::new().class(|_| "order"), async |kit, locks, series: Series| {
        let guard = locks.mutex("order/1").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.mutex("order/1").acquire());
        let cancelled = tokio::time::timeout(Duration::from_secs(1), locks.mutex("order/1").acquire()).await;
        assert!(cancelled.is_err() && locks.mutex("order/1").try_acquire().await.is_err());
        let common = ["engine=memory", "class=order", "mode=exclusive"];
        assert_eq!(series.value("leasehold_waiter_count", &common), 1.0);
        assert_eq!(series.value("leasehold_holder_count", &common), 1.0);
        kit.fail_next("a", Verb::Renew, Fault::RequestLost);
        assert!(guard.confirm().await.is_err());
        kit.advance(Duration::from_secs(60)).await;
        kit.cut_for("a", Duration::from_secs(1));
        kit.advance(Duration::from_secs(5)).await;
        kit.lose("order/1", Loss::Gone);
        guard.lost().await;
        assert!(guard.release().await.is_err());
        waiting.await.unwrap().unwrap().release().await.unwrap();
        for (name, labels, expected) in [
            ("leasehold_acquire_duration_seconds", vec!["outcome=granted", "contended=true"], 1.0),
            ("leasehold_acquire_duration_seconds", vec!["outcome=granted", "contended=false"], 1.0),
            ("leasehold_acquire_duration_seconds", vec!["outcome=cancelled", "contended=true"], 1.0),
            ("leasehold_acquire_duration_seconds", vec!["outcome=taken"], 1.0),
            ("leasehold_hold_duration_seconds", vec!["end=lost"], 1.0),
            ("leasehold_hold_duration_seconds", vec!["end=released"], 1.0),
            ("leasehold_losses_total", vec!["cause=gone"], 1.0),
            ("leasehold_renewals_total", vec!["outcome=unknown"], 1.0),
            ("leasehold_waiter_count", vec![], 0.0),
            ("leasehold_holder_count", vec![], 0.0),
        ] {
            let labels = [&common[..], &labels].concat();
            assert_eq!(series.value(name, &labels), expected, "{name} {labels:?}: {:#?}", series.0);
        }
        let kept = series.value("leasehold_renewals_total", &["outcome=kept"]);
        assert!(kept >= 5.0 && kept == series.value("leasehold_renewal_margin_seconds", &common));
        assert!(series.value("leasehold_queue_position", &common) >= 2.0);
        for verb in ["verb=claim", "verb=renew", "verb=release"] {
            assert!(series.value("leasehold_request_duration_seconds", &[verb]) > 0.0, "{verb}");
        }
        assert_eq!(
            ["connects", "reconnects", "disconnects"]
                .map(|what| series.value(&format!("leasehold_{what}_total"), &["engine=memory"])),
            [2.0, 1.0, 1.0]
        );
    });
}

/// Whatever happens to a set, each of its names stops waiting once.
#[test]
fn the_names_of_a_set_are_counted_once() {
    with_series(Metrics::new(), async |kit, locks, series: Series| {
        let set = || locks.all().mutex("a").mutex("b");
        set().acquire().await.unwrap().release().await.unwrap();
        let held = kit.process("other").mutex("b").acquire().await.unwrap();
        assert!(set().attempts(3).acquire().await.is_err());
        let waiting = tokio::spawn(set().acquire());
        assert!(tokio::time::timeout(Duration::from_secs(1), set().acquire()).await.is_err());
        // The keeper ends the request that was dropped.
        kit.advance(Duration::from_secs(1)).await;
        assert_eq!(series.value("leasehold_waiter_count", &[]), 2.0);
        assert_eq!(series.value("leasehold_holder_count", &[]), 0.0, "no set is granted");
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        for (name, labels, expected) in [
            ("leasehold_waiter_count", vec![], 0.0),
            ("leasehold_holder_count", vec![], 0.0),
            ("leasehold_acquire_duration_seconds", vec!["outcome=granted"], 4.0),
            ("leasehold_acquire_duration_seconds", vec!["outcome=taken"], 1.0),
            ("leasehold_acquire_duration_seconds", vec!["outcome=cancelled"], 3.0),
            ("leasehold_hold_duration_seconds", vec!["end=released"], 4.0),
        ] {
            assert_eq!(series.value(name, &labels), expected, "{name} {labels:?}: {:#?}", series.0);
        }
    });
}

#[test]
fn a_holder_that_entered_again_in_another_mode_does_not_count_after_the_loss() {
    with_series(Metrics::new(), async |kit, locks, series: Series| {
        let owner = leasehold::Owner::new("importer");
        let prices = locks.rw("prices");
        let write = prices.write().owner(owner.clone()).acquire().await.unwrap();
        let read = prices.read().owner(owner.clone()).acquire().await.unwrap();
        let holders = |mode: &str| series.value("leasehold_holder_count", &[mode]);
        assert_eq!((holders("mode=exclusive"), holders("mode=shared")), (1.0, 1.0));
        kit.lose("prices", Loss::Gone);
        write.lost().await;
        read.lost().await;
        drop((write, read));
        assert_eq!((holders("mode=exclusive"), holders("mode=shared")), (0.0, 0.0));
        for mode in ["mode=exclusive", "mode=shared"] {
            assert_eq!(series.value("leasehold_losses_total", &[mode, "cause=gone"]), 1.0, "{mode}");
        }
        // At `close`, and by the guard's own `max_hold`, as well.
        let _write = prices.write().owner(owner.clone()).acquire().await.unwrap();
        let limited =
            prices.read().owner(owner.clone()).max_hold(Duration::from_secs(1)).acquire().await.unwrap();
        limited.lost().await;
        assert_eq!((holders("mode=exclusive"), holders("mode=shared")), (1.0, 0.0));
        let _read = prices.read().owner(owner.clone()).acquire().await.unwrap();
        locks.close(Duration::ZERO).await;
        assert_eq!((holders("mode=exclusive"), holders("mode=shared")), (0.0, 0.0));
    });
}

#[test]
fn a_converted_guard_counts_in_its_new_mode() {
    with_series(Metrics::new(), async |kit, locks, series: Series| {
        let holders =
            || ["mode=exclusive", "mode=shared"].map(|mode| series.value("leasehold_holder_count", &[mode]));
        let writer = locks.rw("prices").write().acquire().await.unwrap();
        // The reply of the first request is lost, and the repetition finds the hold shared.
        kit.fail_next("a", Verb::Convert, Fault::ReplyLost);
        let reader = writer.downgrade().await.unwrap();
        assert_eq!(holders(), [0.0, 1.0]);
        let writer = reader.try_upgrade().await.unwrap();
        assert_eq!(holders(), [1.0, 0.0]);
        writer.release().await.unwrap();
        assert_eq!(holders(), [0.0, 0.0]);
        let requests = |error: &str| {
            series.value(
                "leasehold_request_duration_seconds",
                &["verb=convert", &format!("error_type={error}")],
            )
        };
        assert_eq!((requests("unknown"), requests("none")), (1.0, 2.0));
    });
}

#[test]
fn a_cancelled_request_is_contended_only_if_another_had_the_name() {
    with_series(Metrics::new(), async |kit, locks, series: Series| {
        let cancelled = |contended: &str| {
            series.value("leasehold_acquire_duration_seconds", &["outcome=cancelled", contended])
        };
        let moment = Duration::from_secs(1);
        // The store does not answer, so nothing is known about a holder.
        kit.cut("a");
        assert!(tokio::time::timeout(moment, locks.mutex("x").acquire()).await.is_err());
        assert!(tokio::time::timeout(moment, locks.mutex("x").attempts(1000).acquire()).await.is_err());
        kit.mend("a");
        kit.advance(moment).await;
        assert_eq!((cancelled("contended=true"), cancelled("contended=false")), (0.0, 2.0));
        let _holder = kit.process("b").mutex("x").acquire().await.unwrap();
        assert!(tokio::time::timeout(moment, locks.mutex("x").acquire()).await.is_err());
        assert!(tokio::time::timeout(moment, locks.mutex("x").attempts(1000).acquire()).await.is_err());
        kit.advance(moment).await;
        assert_eq!((cancelled("contended=true"), cancelled("contended=false")), (2.0, 2.0));
    });
}

#[test]
fn a_hundred_thousand_names_make_no_more_series_than_one() {
    let series = Series::default();
    // The memory engine answers on this thread, which has the recorder.
    metrics::with_local_recorder(&series.clone(), || {
        let options = Connect::default().observe(Arc::new(Metrics::new()));
        let locks = options.connect("memory:a-hundred-thousand-names").unwrap();
        let pair = |number: u32| drop(locks.mutex(format!("order/{number}")).blocking().acquire().unwrap());
        pair(0);
        let count = series.count();
        (1..100_000).for_each(pair);
        assert_eq!(series.count(), count);
    });
    assert_eq!(series.value("leasehold_hold_duration_seconds", &["end=released"]), 100_000.0);
}

#[test]
fn names_are_labels_when_asked() {
    with_series(Metrics::new().label_names(), async |_, locks, series: Series| {
        for name in ["one", "two", "two"] {
            locks.mutex(name).acquire().await.unwrap().release().await.unwrap();
        }
        assert_eq!(series.value("leasehold_hold_duration_seconds", &["name=one"]), 1.0);
        assert_eq!(series.value("leasehold_hold_duration_seconds", &["name=two"]), 2.0);
    });
}
