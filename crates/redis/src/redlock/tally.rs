//! What the votes of the nodes come to. A pure machine: answers come in, a decision comes out.

use std::time::Duration;

use leasehold_core::{EngineError, Fault, Previous};

use super::{
    agreement::{largest, possible, tolerance},
    offset::Ahead,
};

/// What one node said of a claim.
#[derive(Debug)]
pub(super) enum Ballot {
    /// Nothing yet.
    Open,
    /// It has the lock of the claim, and its vote counts.
    Vote(Vote),
    /// Another is in the way, for so long still.
    Taken(Option<Duration>),
    /// It has no lock of the claim.
    Absent,
    /// The claim was released there.
    Dead,
    /// Its vote does not count, or it gave none.
    Failed(EngineError),
}

/// The vote of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    /// Its time when it was asked, in microseconds, and by how much that is ahead of ours.
    pub(super) micros: u64,
    pub(super) ahead: Ahead,
    /// The newest token that was written there before, and how its hold ended.
    pub(super) newest: u64,
    pub(super) ended: Previous,
    /// The block that is written there for the claim; none if the first is 0.
    pub(super) first: u64,
    pub(super) tokens: u32,
    /// The lock of the claim stood there before it was asked for.
    pub(super) stood: bool,
    /// The node has nothing of before.
    pub(super) is_new: bool,
}

/// The votes on one claim.
pub(super) struct Tally {
    pub(super) ballots: Vec<Ballot>,
    tolerance: Duration,
    /// A token that was sent along: it is not to be behind the clock of whoever wrote it.
    guess: u64,
    /// The token that was written since, and where.
    written: Option<(u64, u32, Vec<bool>)>,
}

/// What comes of it.
#[derive(Debug)]
pub(super) enum Decision {
    /// Nothing yet.
    Open,
    /// The claim holds, with this block of tokens.
    Held { first: u64, tokens: u32, previous: Previous },
    /// A majority has the lock: this block is to be written there.
    Write { first: u64, tokens: Option<u32> },
    /// Others are in the way: asking may pay after this time.
    Taken(Option<Duration>),
    /// The nodes know nothing of the claim, or that it was released.
    Gone,
    /// There is no majority.
    Failed(EngineError),
}

impl Tally {
    pub(super) fn new(nodes: usize, ttl: Duration, guess: u64) -> Self {
        let ballots = (0..nodes).map(|_| Ballot::Open).collect();
        Self { ballots, tolerance: tolerance(ttl), guess, written: None }
    }

    fn quorum(&self) -> usize {
        self.ballots.len() / 2 + 1
    }

    fn votes(&self) -> impl Iterator<Item = (usize, &Vote)> {
        self.ballots.iter().enumerate().filter_map(|(node, ballot)| match ballot {
            Ballot::Vote(vote) => Some((node, vote)),
            _ => None,
        })
    }

    fn count(&self, is: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().filter(|ballot| is(ballot)).count()
    }

    /// A token is written from now on, in place of what was there.
    pub(super) fn writes(&mut self, first: u64, tokens: u32) {
        self.written = Some((first, tokens, vec![false; self.ballots.len()]));
    }

    /// A node said whether it is written there, when its clock was so far ahead, and what the newest token there is.
    pub(super) fn wrote(&mut self, node: usize, is_written: bool, ahead: Option<Ahead>, newest: u64) {
        if let (Some((.., at)), true) = (&mut self.written, is_written) {
            at[node] = true;
        }
        if let Ballot::Vote(vote) = &mut self.ballots[node] {
            vote.ahead = ahead.unwrap_or(vote.ahead);
            if !is_written {
                vote.newest = vote.newest.max(newest);
            }
        }
    }

    /// The vote of a node counts no more.
    pub(super) fn lost(&mut self, node: usize, error: EngineError) {
        self.ballots[node] = Ballot::Failed(error);
    }

    /// What it comes to; `last`: nobody else is waited for.
    pub(super) fn decide(&self, last: bool) -> Decision {
        let (quorum, nodes) = (self.quorum(), self.ballots.len());
        if let Some(held) = self.held() {
            return held;
        }
        let votes = self.votes().count();
        let open = self.count(|ballot| matches!(ballot, Ballot::Open));
        if votes >= quorum && self.written.is_none() {
            let agreed = self.may_agree();
            // Where one has refused the guess, or there was none, it is not waited for who might take it; for who may have an earlier
            // token of the claim it is.
            let (own, refused) = (self.candidate(), self.votes().any(|(_, vote)| vote.first == 0));
            let is_split = refused && (own == 0 || own == self.guess);
            if agreed.len() >= quorum && (is_split || last || open == 0) {
                return self.next(&agreed);
            }
        }
        if self.count(|ballot| matches!(ballot, Ballot::Dead)) > 0 {
            return Decision::Gone;
        }
        if votes + open >= quorum && !last {
            return Decision::Open;
        }
        let absent = self.count(|ballot| matches!(ballot, Ballot::Absent));
        if absent > nodes - quorum {
            return Decision::Gone;
        }
        if self.count(|ballot| matches!(ballot, Ballot::Taken(_))) > 0 {
            return Decision::Taken(self.free_in());
        }
        Decision::Failed(self.why())
    }

    /// The token that more than one may have written for this claim.
    fn candidate(&self) -> u64 {
        self.votes().map(|(_, vote)| vote.first).max().unwrap_or(0)
    }

    fn held(&self) -> Option<Decision> {
        let (first, tokens, at) = match &self.written {
            Some((first, tokens, at)) => (*first, *tokens, self.agreed(|node, _| at[node])),
            None => {
                let first = self.candidate();
                let tokens = self.votes().find(|(_, vote)| vote.first == first)?.1.tokens;
                // A guess may be behind the clock of who took it: then a node that forgot it might take a smaller one.
                let stands = |vote: &Vote| first != self.guess || vote.micros <= first;
                (first, tokens, self.agreed(|_, vote| vote.first == first && stands(vote)))
            }
        };
        let is_held = first > 0 && at.len() >= self.quorum();
        is_held.then(|| Decision::Held { first, tokens, previous: self.previous() })
    }

    /// The largest set of these voters that agrees on the time.
    fn agreed(&self, is: impl Fn(usize, &Vote) -> bool) -> Vec<usize> {
        let clocks: Vec<_> = self
            .votes()
            .filter(|(node, vote)| is(*node, vote))
            .map(|(node, vote)| (node, vote.ahead))
            .collect();
        largest(&clocks, self.tolerance)
    }

    /// The largest set of voters that may turn out to agree: more answers tell more of their clocks.
    fn may_agree(&self) -> Vec<usize> {
        let clocks: Vec<_> = self.votes().map(|(node, vote)| (node, vote.ahead)).collect();
        possible(&clocks, self.tolerance)
    }

    /// What is to be written: the token that some have already for this claim, if no larger one is known, and nobody can have held
    /// since; else one larger than all that were seen, and than the time of all who vote.
    fn next(&self, agreed: &[usize]) -> Decision {
        let own = self.candidate();
        let others = self.votes().filter(|(_, vote)| vote.first != own);
        let newest = others.map(|(_, vote)| vote.newest).max().unwrap_or(0);
        let stands = if own == self.guess {
            !self.votes().any(|(_, vote)| vote.micros > own)
        } else {
            self.votes().filter(|(_, vote)| vote.stood).count() >= self.quorum()
        };
        if own > newest && stands {
            let tokens = self.votes().find(|(_, vote)| vote.first == own).map(|(_, vote)| vote.tokens);
            return Decision::Write { first: own, tokens };
        }
        let last = |vote: &Vote| (vote.first + u64::from(vote.tokens)).max(vote.newest + 1);
        let seen = self.votes().map(|(_, vote)| last(vote)).max().unwrap_or(1);
        let clock = self.votes().filter(|(node, _)| agreed.contains(node)).map(|(_, vote)| vote.micros).max();
        Decision::Write { first: seen.max(clock.unwrap_or(0)), tokens: None }
    }

    /// After a token could not be written: the next one, if a majority has the lock still. The same one, if it is there, and only the
    /// clocks are not known well enough.
    pub(super) fn again(&self) -> Option<u64> {
        let (first, tokens, at) = self.written.as_ref()?;
        let agreed = self.may_agree();
        if agreed.len() < self.quorum() {
            return None;
        }
        if agreed.iter().filter(|node| at[**node]).count() >= self.quorum() {
            return Some(*first);
        }
        match self.next(&agreed) {
            Decision::Write { first: next, .. } => Some(next.max(first + u64::from(*tokens))),
            _ => None,
        }
    }

    /// How the hold before ended, as told by the newest token that any voter knows: one of them was there.
    fn previous(&self) -> Previous {
        // Who wrote it where nobody had told how the one before ended does not know.
        let newest = self.votes().max_by_key(|(_, vote)| (vote.newest, vote.ended != Previous::Unknown));
        match newest {
            Some((_, vote)) if vote.newest > 0 => vote.ended,
            // Nobody remembers any: there was none lately, or who knew of it has forgotten.
            _ if self.votes().any(|(_, vote)| vote.is_new) => Previous::Unknown,
            _ => Previous::Clean,
        }
    }

    /// When a majority may be free: as many of those in the way must have ended as are lacking.
    fn free_in(&self) -> Option<Duration> {
        let lacking = self.quorum().saturating_sub(self.votes().count()).max(1);
        let mut left: Vec<_> = self
            .ballots
            .iter()
            .filter_map(|ballot| match ballot {
                Ballot::Taken(left) => Some(left.unwrap_or(Duration::MAX)),
                _ => None,
            })
            .collect();
        left.sort_unstable();
        left.get(lacking - 1).copied().filter(|left| *left < Duration::MAX)
    }

    /// Why there is no majority.
    fn why(&self) -> EngineError {
        let errors = || {
            self.ballots.iter().filter_map(|ballot| match ballot {
                Ballot::Failed(error) => Some(error),
                _ => None,
            })
        };
        // Those that have no vote yet were reached, and have one later: whoever waits goes on waiting.
        let waited_for = errors().filter(|error| error.fault == Fault::Full).count();
        let for_good = |fault: Fault| matches!(fault, Fault::Refused | Fault::Denied | Fault::Misconfigured);
        let (nodes, quorum) = (self.ballots.len(), self.quorum());
        // As many as are needed say no, for reasons that do not pass by themselves.
        let fault = match errors().find(|error| for_good(error.fault)) {
            Some(error) if errors().filter(|error| for_good(error.fault)).count() > nodes - quorum => {
                error.fault
            }
            _ if waited_for > 0 && waited_for + self.votes().count() >= quorum => Fault::Full,
            _ => Fault::Retry,
        };
        let mut why: Vec<String> = errors().map(|error| error.message.clone()).collect();
        let votes = self.votes().count();
        if why.is_empty() && votes >= quorum {
            why.push("the clocks of the nodes differ, or their answers take too long to tell".to_owned());
        }
        if why.is_empty() {
            why.push("the others do not answer in time".to_owned());
        }
        EngineError::new(fault, format!("{votes} of {nodes} nodes gave their vote: {}", why.join("; ")))
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
