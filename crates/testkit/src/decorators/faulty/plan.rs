//! Which call meets which fault: a script, then a seed.

use std::collections::VecDeque;

use crate::decorators::verb::{PerVerb, Verb};

/// What happens to a call, or to a batch of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request is not applied; the caller is told "unknown". News: the batch is lost.
    RequestLost,
    /// The request is applied; the caller is told "unknown". News: the batch is lost.
    ReplyLost,
    /// The caller is told "unknown"; the request is applied later. News: the batch comes later. Inspections: passes.
    Late,
    /// The request is applied twice; the caller gets the first answer. News: the batch comes twice. Inspections: passes.
    Duplicated,
    /// The request is applied only after another call of its verb has passed, which the caller sits out; it arrives
    /// also when the caller gave up. News: the batch comes behind the next one. Inspections: passes.
    Reordered,
    /// The request is not applied, and the session is gone, with all its claims, until it is healed.
    SessionGone,
}

/// How often faults happen, of a thousand calls each. What is left of the thousand passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// [`Fault::RequestLost`].
    pub request_lost: u16,
    /// [`Fault::ReplyLost`].
    pub reply_lost: u16,
    /// [`Fault::Late`], arriving before one of the next eight calls.
    pub late: u16,
    /// [`Fault::Duplicated`].
    pub duplicated: u16,
    /// [`Fault::Reordered`].
    pub reordered: u16,
    /// [`Fault::SessionGone`].
    pub session_gone: u16,
}

/// Before which call at the latest a late request arrives in seeded mode, counted from its own.
const LATEST: u64 = 8;

/// The script, and the dice for when it has nothing to say.
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

    pub(super) fn forgive(&mut self) {
        self.script = PerVerb::default();
    }

    pub(super) fn calm(&mut self) {
        self.rng = None;
    }

    /// What the next call of `verb` meets.
    pub(super) fn draw(&mut self, verb: Verb) -> Option<Fault> {
        self.calls += 1;
        let scripted = self.script.get_mut(verb).pop_front();
        scripted.or_else(|| self.rng.as_mut().and_then(|(rng, rates)| rates.pick(rng.roll(1000) as u16)))
    }

    /// The number of the last call drawn.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Before which call a request that is late now arrives; `None`: when the test says so.
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

/// `SplitMix64` (Steele, Lea, Flood 2014): small, and the same on every machine.
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
