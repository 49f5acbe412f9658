//! A run of random faults: each client and the server have their own faults. Phases of faults (storms) alternate with
//! phases without faults (calms).

use std::{collections::BTreeMap, sync::Arc, thread::sleep, time::Duration};

use leasehold_testkit::history::{Recorder, What, nanos, now_nanos};

use crate::{
    rng::Rng,
    task::TTL,
    world::{Fault, World},
};

/// For how long new faults begin within a storm.
const FAULT_RUN: Duration = Duration::from_secs(8);
/// The time without faults after the effects of a storm have ended: long enough to see that everything works.
const CALM: Duration = Duration::from_millis(2500);
/// The interval at which due faults are started and ended.
const POLL: Duration = Duration::from_millis(3);
/// The pause between two faults of one target, in milliseconds.
const REST: std::ops::Range<u64> = 40..250;

/// The kind under which a storm with its effects is recorded.
const STORM: &str = "storm";

/// The kind under which the clients' first requests to the engine are recorded.
const START: &str = "start";
/// The longest time that they take on an idle machine.
const WARM_UP: Duration = Duration::from_millis(1500);

/// A target of faults: a client, or the server.
struct FaultTarget<W: 'static> {
    at: usize,
    faults: &'static [Fault<W>],
    /// When its current fault ends, or its next fault begins.
    next: u64,
    now: Option<&'static Fault<W>>,
}

/// The length of a round with one storm whose effects last for `traces`. It ends in the calm after the storm.
#[must_use]
pub fn one_storm_duration(traces: Duration) -> Duration {
    WARM_UP + CALM + FAULT_RUN + traces + CALM / 2
}

/// Records the start. To be called before the first request of a client to the engine.
pub fn start(recorder: &Recorder) {
    recorder.note(What::NemesisBegin { kind: START.to_owned() });
}

/// After a first calm, injects faults until the time is up, in storms whose effects last for `traces`. Returns the
/// total length of the storms, and the count of each fault.
pub fn inject_faults<W: World>(
    world: &mut W,
    recorder: &Arc<Recorder>,
    rng: &mut Rng,
    until: u64,
    traces: Duration,
    mut report: impl FnMut(u64),
) -> (Duration, BTreeMap<&'static str, u64>) {
    let mut targets: Vec<FaultTarget<W>> = (0..world.clients())
        .map(|at| (at, W::CLIENT_FAULTS))
        .chain([(usize::MAX, world.server_faults())])
        .filter(|(_, faults)| !faults.is_empty())
        .map(|(at, faults)| FaultTarget { at, faults, next: 0, now: None })
        .collect();
    let (mut time, mut counts) = (Duration::ZERO, BTreeMap::new());
    sleep(WARM_UP);
    recorder.note(What::NemesisEnd { kind: START.to_owned() });
    // The holds of a killed process may last longer than any calm, so later no lock is certainly free. Lost wake-ups
    // are found best before the first kill.
    sleep(CALM);
    while now_nanos() < until {
        let begin = now_nanos();
        let end = until.min(begin + nanos(FAULT_RUN));
        recorder.note(What::NemesisBegin { kind: STORM.to_owned() });
        for target in &mut targets {
            target.next = now_nanos() + nanos(rng.millis(REST));
        }
        // Every fault ends before the storm ends.
        while now_nanos() < end || targets.iter().any(|target| target.now.is_some()) {
            let begins = now_nanos() < end;
            for target in &mut targets {
                if target.next <= now_nanos() {
                    step(world, recorder, rng, target, begins, &mut counts);
                }
            }
            report(counts.values().sum());
            sleep(POLL);
        }
        time += Duration::from_nanos(now_nanos() - begin);
        sleep(traces);
        recorder.note(What::NemesisEnd { kind: STORM.to_owned() });
        sleep(CALM);
    }
    (time, counts)
}

fn step<W: World>(
    world: &mut W,
    recorder: &Recorder,
    rng: &mut Rng,
    target: &mut FaultTarget<W>,
    begins: bool,
    counts: &mut BTreeMap<&'static str, u64>,
) {
    // The same fault at two targets is recorded under two kinds.
    let kind = |fault: &Fault<W>| match target.at {
        usize::MAX => fault.name.to_owned(),
        at => format!("{} of client {at}", fault.name),
    };
    let next = match target.now.take() {
        Some(fault) => {
            (fault.end)(world, target.at);
            recorder.note(What::NemesisEnd { kind: kind(fault) });
            rng.millis(REST)
        }
        None if begins => {
            let fault = rng.pick(target.faults);
            recorder.note(What::NemesisBegin { kind: kind(fault) });
            (fault.begin)(world, target.at);
            *counts.entry(fault.name).or_default() += 1;
            target.now = Some(fault);
            rng.millis(fault.lasts.clone())
        }
        None => TTL,
    };
    target.next = now_nanos() + nanos(next);
}
