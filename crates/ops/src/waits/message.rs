//! What is said of a finding, in one line, and what to do.

use std::{fmt, time::Duration};

use super::{
    blocks::Block,
    claims::Party,
    cycle::Deadlock,
    finder::Finding,
    long_wait::{LongWait, LongWaitCause},
};
use crate::reached::{Reached, shell_word};

impl Finding {
    /// What to do, in one sentence. `reached`: how the reader reaches the engine with this label.
    #[must_use]
    pub fn advice(&self, reached: &dyn Fn(&str) -> Reached) -> String {
        match self {
            Self::Deadlock(deadlock) => deadlock.advice(reached),
            Self::LongWait(long_wait) => long_wait.advice(reached),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadlock(deadlock) => deadlock.fmt(f),
            Self::LongWait(long_wait) => long_wait.fmt(f),
        }
    }
}

/// The whole cycle, in one line.
impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadlock: ")?;
        for (index, block) in self.blocks.iter().enumerate() {
            let before = &self.blocks[(index + self.blocks.len() - 1) % self.blocks.len()].blocker;
            if index > 0 {
                f.write_str("; ")?;
            }
            write_block(f, block, before)?;
        }
        match self.behind {
            0 => {}
            1 => f.write_str("; 1 more task waits behind them")?,
            more => write!(f, "; {more} more tasks wait behind them")?,
        }
        f.write_str(": it lasts until one of them gives up (--wait) or is ended")
    }
}

/// `before`: the claim that the wait before this one of the cycle is for.
fn write_block(f: &mut fmt::Formatter<'_>, block: &Block, before: &Party) -> fmt::Result {
    let Block { waiter, blocker } = block;
    let is_same = waiter.actor.map(|actor| actor.id()) == before.actor.map(|actor| actor.id());
    write!(f, "{}", owner(waiter))?;
    if !is_same && !before.owner.is_empty() {
        write!(f, " (inside {})", owner(before))?;
    }
    match waiter.since {
        Some(since) => write!(f, " has waited {} for {}, ", short(since), lock(waiter))?,
        None => write!(f, " waits for {}, ", lock(waiter))?,
    }
    if !blocker.holds {
        return write!(f, "for which {} waits before it", owner(blocker));
    }
    write!(f, "which {}", held_by(blocker))?;
    blocker.token.map_or(Ok(()), |token| write!(f, " (token {token})"))
}

impl Deadlock {
    /// What to do, in one sentence: the line that breaks the youngest hold of the cycle. `reached`: how the reader
    /// reaches the engine with this label.
    #[must_use]
    pub fn advice(&self, reached: &dyn Fn(&str) -> Reached) -> String {
        let later = "take the names in one order everywhere, or together by one request (--and)";
        match self.victim().and_then(|victim| Some((victim, break_line(victim, reached)?))) {
            Some((victim, line)) => format!(
                "end one of them, for example the youngest hold, that of {} on {}: {line}; then {later}",
                owner(victim),
                lock(victim)
            ),
            None => format!("end one of the waiting programs; then {later}"),
        }
    }
}

impl fmt::Display for LongWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiter, waiting, ahead, typical, cause } = self;
        write!(f, "long wait: {} has waited {} for {}", owner(waiter), short(*waiting), lock(waiter))?;
        if *ahead > 0 {
            write!(f, ", with {ahead} ahead of it")?;
        }
        if let Some(typical) = typical {
            write!(f, " (its holds last {})", short(*typical))?;
        }
        match cause {
            LongWaitCause::Hold(hold) => {
                write!(f, ", which {}", held_by(hold))
            }
            LongWaitCause::Overtaken(count) => {
                write!(f, ": {count} requests that came later were granted it before")
            }
            LongWaitCause::Queue => f.write_str(": more requests come than the holders work off"),
        }
    }
}

impl LongWait {
    /// What to do, in one sentence. `reached`: how the reader reaches the engine with this label.
    #[must_use]
    pub fn advice(&self, reached: &dyn Fn(&str) -> Reached) -> String {
        match &self.cause {
            LongWaitCause::Hold(hold) => match break_line(hold, reached) {
                Some(line) => format!("look whether {} hangs; if so, end it, or: {line}", owner(hold)),
                None => format!("look whether {} hangs, and end it if so", owner(hold)),
            },
            LongWaitCause::Overtaken(_) => {
                "use an engine that grants first come, first served, or let the others ask less often"
                    .to_owned()
            }
            LongWaitCause::Queue => {
                "hold the lock for less of the work, stripe the name, or limit the queue (--max-waiting)"
                    .to_owned()
            }
        }
    }
}

/// The command that breaks this hold; `None` if it has no token or is not of leasehold.
fn break_line(hold: &Party, reached: &dyn Fn(&str) -> Reached) -> Option<String> {
    let token = hold.token.filter(|_| hold.holds && !hold.foreign)?;
    Some(reached(&hold.engine).command(&format!("break --token {token} -- {}", shell_word(&hold.name))))
}

fn owner(party: &Party) -> String {
    party.owner.escape_debug().to_string()
}

fn lock(party: &Party) -> String {
    format!("{} lock {:?}", party.engine, party.name)
}

/// Who holds, and for how long.
fn held_by(hold: &Party) -> String {
    match hold.since {
        Some(since) => format!("{} has held for {}", owner(hold), short(since)),
        None => format!("{} holds", owner(hold)),
    }
}

/// A time as a person reads it.
fn short(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{} s", time.as_secs()),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
