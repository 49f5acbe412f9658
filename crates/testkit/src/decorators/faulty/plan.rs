//! Decides which call meets which fault: first by a script, then by a seed.

use std::collections::VecDeque;

use crate::decorators::verb::{PerVerb, Verb};

/// A fault of a call or of a batch of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request is not applied, and the caller gets "unknown". Notifications: the batch is lost.
    RequestLost,
    /// The request is applied, and the caller gets "unknown". Notifications: the batch is lost.
    ReplyLost,
    /// The caller gets "unknown", and the request is applied later. Notifications: the batch comes later. Inspections:
    /// pass.
    Late,
    /// The request is applied twice, and the caller gets the first answer. Notifications: the batch comes twice.
    /// Inspections: pass.
    Duplicated,
    /// The request waits until the next call of its verb has been applied, and is applied directly after that call. Its
    /// caller waits for the answer. The request is applied even if the caller gives up. Notifications: the batch comes
    /// after the next batch. Inspections: pass.
    Reordered,
    /// The request is not applied. The session ends, and with it all its claims; every call fails until the session is
    /// healed.
    SessionGone,
}

/// The rates of faults, per thousand calls. All other calls pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// [`Fault::RequestLost`].
    pub request_lost: u16,
    /// [`Fault::ReplyLost`].
    pub reply_lost: u16,
    /// [`Fault::Late`]: the request arrives before one of the next eight calls.
    pub late: u16,
    /// [`Fault::Duplicated`].
    pub duplicated: u16,
    /// [`Fault::Reordered`].
    pub reordered: u16,
    /// [`Fault::SessionGone`].
    pub session_gone: u16,
}

/// With a seed, a late request arrives at most this many calls after its own call.
const LATEST: u64 = 8;

/// The script, and the random numbers for calls without a planned fault.
#[derive(Debug, Default)]
pub(super) struct Plan {
    script: PerVerb<VecDeque<Fault>>,
    rng: Option<(Rng, Rates)>,
    calls: u64,
}

impl Plan {
    pub(super) fn seeded(seed: u64, rates: Rates) -> Self {
        Self { rng: Some((Rng(seed), rates)), ..Self::default() }
    }

    pub(super) fn push(&mut self, verb: Verb, fault: Fault) {
        self.script.get_mut(verb).push_back(fault);
    }

    pub(super) fn pending(&self) -> usize {
        Verb::ALL.iter().map(|&verb| self.script.get(verb).len()).sum()
    }

    pub(super) fn clear_planned(&mut self) {
        self.script = PerVerb::default();
    }

    pub(super) fn stop_random_faults(&mut self) {
        self.rng = None;
    }

    /// The fault of the next call of `verb`. `None`: the call passes.
    pub(super) fn draw(&mut self, verb: Verb) -> Option<Fault> {
        self.calls += 1;
        let scripted = self.script.get_mut(verb).pop_front();
        scripted.or_else(|| self.rng.as_mut().and_then(|(rng, rates)| rates.pick(rng.roll(1000) as u16)))
    }

    /// The number of calls drawn so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// The number of the call before which a late request arrives. `None`: it arrives when the test delivers it.
    pub(super) fn arrival(&mut self) -> Option<u64> {
        let calls = self.calls;
        self.rng.as_mut().map(|(rng, _)| calls + 1 + rng.roll(LATEST))
    }
}

impl Rates {
    fn pick(&self, mut roll: u16) -> Option<Fault> {
        for (rate, fault) in [
            (self.request_lost, Fault::RequestLost),
            (self.reply_lost, Fault::ReplyLost),
            (self.late, Fault::Late),
            (self.duplicated, Fault::Duplicated),
            (self.reordered, Fault::Reordered),
            (self.session_gone, Fault::SessionGone),
        ] {
            if roll < rate {
                return Some(fault);
            }
            roll -= rate;
        }
        None
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): a small generator with the same numbers on every machine.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}
