//! Faults by the dice: every client and the server have trouble now and then, each on its own, in storms with calm between.

use std::{collections::BTreeMap, sync::Arc, thread::sleep, time::Duration};

use leasehold_testkit::history::{Recorder, What, nanos, now_nanos};

use crate::{
    rng::Rng,
    task::TTL,
    world::{Fault, World},
};

/// How long faults begin.
const FAULT_RUN: Duration = Duration::from_secs(8);
/// How long none does after the traces of the storm are gone: time to see that all is well.
const CALM: Duration = Duration::from_millis(2500);
/// How often it is looked what is due.
const TICK: Duration = Duration::from_millis(3);
/// For how many milliseconds a place has no trouble.
const REST: std::ops::Range<u64> = 40..250;

/// The kind under which the whole storm with its traces is written down.
const WHOLE: &str = "storm";

/// The kind under which it is written down that clients begin to speak to an engine.
const START: &str = "start";
/// How long that takes at most, on an idle machine.
const WARM_UP: Duration = Duration::from_millis(1500);

/// A place for trouble: a client, or the server.
struct FaultTarget<W: 'static> {
    at: usize,
    faults: &'static [Fault<W>],
    /// When something happens next: a fault ends, or the next begins.
    next: u64,
    now: Option<&'static Fault<W>>,
}

/// How long a round takes that has one storm, of which `traces` may be seen for so long after, and ends in the calm after it.
#[must_use]
pub fn time_of_one(traces: Duration) -> Duration {
    WARM_UP + CALM + FAULT_RUN + traces + CALM / 2
}

/// To be called before the first client begins to speak to an engine.
pub fn start(recorder: &Recorder) {
    recorder.note(What::NemesisBegin { kind: START.to_owned() });
}

/// Strikes, after a calm, until the time is up, in storms of which `traces` may be seen for so long after; for how long in all, and how often
/// each kind struck.
pub fn rage<W: World>(
    world: &mut W,
    recorder: &Arc<Recorder>,
    rng: &mut Rng,
    until: u64,
    traces: Duration,
    mut tell: impl FnMut(u64),
) -> (Duration, BTreeMap<&'static str, u64>) {
    let mut places: Vec<FaultTarget<W>> = (0..world.clients())
        .map(|at| (at, W::OF_CLIENTS))
        .chain([(usize::MAX, world.of_server())])
        .filter(|(_, faults)| !faults.is_empty())
        .map(|(at, faults)| FaultTarget { at, faults, next: 0, now: None })
        .collect();
    let (mut time, mut counts) = (Duration::ZERO, BTreeMap::new());
    sleep(WARM_UP);
    recorder.note(What::NemesisEnd { kind: START.to_owned() });
    // Of a killed process something may stand for longer than any calm, so that no lock is free for sure: lost wake-ups show best
    // while nobody was killed yet.
    sleep(CALM);
    while now_nanos() < until {
        let begin = now_nanos();
        let end = until.min(begin + nanos(FAULT_RUN));
        recorder.note(What::NemesisBegin { kind: WHOLE.to_owned() });
        for place in &mut places {
            place.next = now_nanos() + nanos(rng.millis(REST));
        }
        // Each fault that has begun is ended before the storm is.
        while now_nanos() < end || places.iter().any(|place| place.now.is_some()) {
            let begins = now_nanos() < end;
            for place in &mut places {
                if place.next <= now_nanos() {
                    step(world, recorder, rng, place, begins, &mut counts);
                }
            }
            tell(counts.values().sum());
            sleep(TICK);
        }
        time += Duration::from_nanos(now_nanos() - begin);
        sleep(traces);
        recorder.note(What::NemesisEnd { kind: WHOLE.to_owned() });
        sleep(CALM);
    }
    (time, counts)
}

fn step<W: World>(
    world: &mut W,
    recorder: &Recorder,
    rng: &mut Rng,
    place: &mut FaultTarget<W>,
    begins: bool,
    counts: &mut BTreeMap<&'static str, u64>,
) {
    // Faults of two places of one kind are two disturbances.
    let kind = |fault: &Fault<W>| match place.at {
        usize::MAX => fault.name.to_owned(),
        at => format!("{} of client {at}", fault.name),
    };
    let next = match place.now.take() {
        Some(fault) => {
            (fault.end)(world, place.at);
            recorder.note(What::NemesisEnd { kind: kind(fault) });
            rng.millis(REST)
        }
        None if begins => {
            let fault = rng.pick(place.faults);
            recorder.note(What::NemesisBegin { kind: kind(fault) });
            (fault.begin)(world, place.at);
            *counts.entry(fault.name).or_default() += 1;
            place.now = Some(fault);
            rng.millis(fault.lasts.clone())
        }
        None => TTL,
    };
    place.next = now_nanos() + nanos(next);
}
