//! The faults of a round. Each client has its own random faults, and so has the server. Phases of faults (storms)
//! alternate with phases without faults (calms).

use std::{collections::BTreeMap, sync::Arc, thread::sleep, time::Duration};

use leasehold_testkit::history::{Recorder, What, nanos, now_nanos};

use crate::{
    rng::Rng,
    speed::EngineSpeed,
    task::TTL,
    world::{Fault, World},
};

/// How long one storm lasts. After that no new fault begins, but the faults that have begun continue to their ends.
const STORM_LENGTH: Duration = Duration::from_secs(8);
/// The length of a calm. It begins when the effects of a storm have ended, and is long enough to see that all clients
/// work again.
const CALM: Duration = Duration::from_millis(2500);
/// The interval at which due faults are started and ended.
const POLL: Duration = Duration::from_millis(3);
/// The range of the pause between two faults of one target, in milliseconds.
const PAUSE: std::ops::Range<u64> = 40..250;

/// The name under which the history records the time of a storm and of its effects.
const STORM: &str = "storm";

/// The name under which the history records the time of the clients' first requests to the engine.
const START: &str = "start";
/// How long the clients' first requests take on an idle machine, at most, if the server grants at once.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The index of the server among the targets.
const SERVER: usize = usize::MAX;

/// A target of faults: a client, or the server.
struct FaultTarget<W: 'static> {
    /// The index of the client, or [`SERVER`].
    index: usize,
    faults: &'static [Fault<W>],
    /// When the current fault of this target ends or, without a current fault, when its next fault begins.
    next: u64,
    /// The current fault.
    current: Option<&'static Fault<W>>,
}

/// The length of a round with one storm. The round ends during the calm after the storm.
#[must_use]
pub fn one_storm_duration(speed: &EngineSpeed) -> Duration {
    warm_up(speed) + CALM + STORM_LENGTH + speed.recovery_time + CALM / 2
}

/// How long it takes at most until the clients' first requests are answered, on an idle machine.
fn warm_up(speed: &EngineSpeed) -> Duration {
    WARM_UP + speed.lock_delay
}

/// Records the start of the round. The caller must call this before the first request of a client to the engine.
pub fn start(recorder: &Recorder) {
    recorder.note(What::NemesisBegin { kind: START.to_owned() });
}

/// Injects faults until the time `until`, in storms. Before the first storm it
/// waits until the clients' first requests and a first calm have passed. Returns the total length of the storms without
/// their effects, and the count of each fault.
pub fn inject_faults<W: World>(
    world: &mut W,
    recorder: &Arc<Recorder>,
    rng: &mut Rng,
    until: u64,
    speed: &EngineSpeed,
    mut report: impl FnMut(u64),
) -> (Duration, BTreeMap<&'static str, u64>) {
    let mut targets: Vec<FaultTarget<W>> = (0..world.clients())
        .map(|index| (index, world.client_faults()))
        .chain([(SERVER, world.server_faults())])
        .filter(|(_, faults)| !faults.is_empty())
        .map(|(index, faults)| FaultTarget { index, faults, next: 0, current: None })
        .collect();
    let (mut time, mut counts) = (Duration::ZERO, BTreeMap::new());
    sleep(warm_up(speed));
    recorder.note(What::NemesisEnd { kind: START.to_owned() });
    // This is the first calm. The checker finds lost wake-ups best in it: after the first kill of a process, the holds
    // of that process may last longer than any calm, so no lock is certainly free any more.
    sleep(CALM);
    while now_nanos() < until {
        let begin = now_nanos();
        let end = until.min(begin + nanos(STORM_LENGTH));
        recorder.note(What::NemesisBegin { kind: STORM.to_owned() });
        for target in &mut targets {
            target.next = now_nanos() + nanos(rng.millis(PAUSE));
        }
        // The storm ends only when every fault has ended.
        while now_nanos() < end || targets.iter().any(|target| target.current.is_some()) {
            let may_begin = now_nanos() < end;
            for target in &mut targets {
                if target.next <= now_nanos() {
                    step(world, recorder, rng, target, may_begin, &mut counts);
                }
            }
            report(counts.values().sum());
            sleep(POLL);
        }
        time += Duration::from_nanos(now_nanos() - begin);
        sleep(speed.recovery_time);
        recorder.note(What::NemesisEnd { kind: STORM.to_owned() });
        sleep(CALM);
    }
    (time, counts)
}

/// Ends the current fault of a target. If the target has none, begins its next fault, but only if `may_begin`.
fn step<W: World>(
    world: &mut W,
    recorder: &Recorder,
    rng: &mut Rng,
    target: &mut FaultTarget<W>,
    may_begin: bool,
    counts: &mut BTreeMap<&'static str, u64>,
) {
    // The same fault of two targets is recorded under two kinds, so that its begins and ends are not mixed up.
    let kind = |fault: &Fault<W>| match target.index {
        SERVER => fault.name.to_owned(),
        index => format!("{} of client {index}", fault.name),
    };
    let next = match target.current.take() {
        Some(fault) => {
            (fault.end)(world, target.index);
            recorder.note(What::NemesisEnd { kind: kind(fault) });
            rng.millis(PAUSE)
        }
        None if may_begin => {
            let fault = rng.pick(target.faults);
            recorder.note(What::NemesisBegin { kind: kind(fault) });
            (fault.begin)(world, target.index);
            *counts.entry(fault.name).or_default() += 1;
            target.current = Some(fault);
            rng.millis(fault.lasts.clone())
        }
        None => TTL,
    };
    target.next = now_nanos() + nanos(next);
}
