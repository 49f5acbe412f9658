//! The spans and events that a subscriber of `tracing` sees.

use std::sync::{Arc, Mutex};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::World;

/// Records spans as they are entered, and events with the span that they happen in.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    spans: Vec<String>,
    entered: Vec<u64>,
    notes: Vec<String>,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(span.metadata().name().to_owned());
        span.record(&mut fields);
        let mut inner = self.0.lock().unwrap();
        inner.spans.push(fields.0);
        Id::from_u64(inner.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let mut inner = self.0.lock().unwrap();
        let below = inner.entered.last().map_or("", |id| inner.spans[*id as usize - 1].as_str()).to_owned();
        inner.notes.push(format!("[{below}]{}", fields.0));
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

#[test]
fn waits_and_holds_are_spans_with_their_events() {
    const EXPECTED: [&str; 5] = [
        "[acquire engine=\"memory\" name=x mode=exclusive] message=granted engine=\"memory\" name=x",
        "[hold engine=\"memory\" name=x mode=exclusive token=1] message=working",
        "[acquire engine=\"memory\" name=x mode=exclusive] message=not granted engine=\"memory\" name=x",
        "[acquire engine=\"memory\" name=x mode=exclusive] message=cancelled engine=\"memory\" name=x",
        "[] message=released engine=\"memory\" name=x",
    ];
    let mut seen = seen();
    // `tracing` may skip this subscriber for an event that another test emits for the first time at that moment: then
    // the run is repeated.
    for _ in 0..100 {
        if EXPECTED.iter().all(|expected| seen.contains(expected)) {
            return;
        }
        seen = self::seen();
    }
    panic!("something is missing:\n{seen}");
}

fn seen() -> String {
    let world = World::new();
    let notes = Notes::default();
    tracing::subscriber::with_default(notes.clone(), || {
        tracing::callsite::rebuild_interest_cache();
        let guard = world.client().mutex("x").blocking().acquire().unwrap();
        pollster::block_on(guard.run(async { tracing::info!(target: "leasehold_test", "working") })).unwrap();
        assert!(world.client().mutex("x").blocking().try_acquire().is_err());
        let mut cancelled = Box::pin(world.client().mutex("x").acquire());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(cancelled.as_mut().poll(&mut context).is_pending());
        drop(cancelled);
        guard.release_blocking().unwrap();
    });
    let inner = notes.0.lock().unwrap();
    assert!(inner.entered.is_empty());
    inner.notes.join("\n")
}
