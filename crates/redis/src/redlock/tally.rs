//! Counts the votes of the nodes. A pure machine: answers come in, a decision comes out.

use std::time::Duration;

use leasehold_core::{EngineError, Fault, Previous};

use super::{
    agreement::{largest_agreeing, largest_possibly_agreeing, tolerance},
    offset::ClockLead,
};

/// The answer of one node to a claim.
#[derive(Debug)]
pub(super) enum Ballot {
    /// No answer yet.
    Open,
    /// The node has the lock of the claim, and its vote counts.
    Vote(Vote),
    /// Another lock is in the way, for this time.
    Taken(Option<Duration>),
    /// The node has no lock of the claim.
    Absent,
    /// The claim was released there.
    Dead,
    /// The vote does not count, or the node gave none.
    Failed(EngineError),
}

/// The vote of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    /// The node's time when it was asked, in microseconds, and how far that is ahead of ours.
    pub(super) micros: u64,
    pub(super) clock_lead: ClockLead,
    /// The newest token that was there before, and how its hold ended.
    pub(super) newest: u64,
    pub(super) ended: Previous,
    /// The block of tokens that is written there for the claim; none if `first` is 0.
    pub(super) first: u64,
    pub(super) tokens: u32,
    /// The lock of the claim was there before the request.
    pub(super) was_locked: bool,
    /// The node has no earlier history.
    pub(super) is_new: bool,
}

/// The votes on one claim.
pub(super) struct Tally {
    pub(super) ballots: Vec<Ballot>,
    tolerance: Duration,
    /// The token that was sent along. It must not be behind the clock of a node that wrote it.
    guess: u64,
    /// The token that was written since, and on which nodes.
    written: Option<(u64, u32, Vec<bool>)>,
}

/// The decision.
#[derive(Debug)]
pub(super) enum Decision {
    /// None yet.
    Open,
    /// The claim holds, with this block of tokens.
    Held { first: u64, tokens: u32, previous: Previous },
    /// A majority has the lock: this block must be written there.
    Write { first: u64, tokens: Option<u32> },
    /// Other claims are in the way: asking again may succeed after this time.
    Taken(Option<Duration>),
    /// The nodes do not know the claim, or it was released.
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

    /// From now on this token is written, in place of the earlier one.
    pub(super) fn start_write(&mut self, first: u64, tokens: u32) {
        self.written = Some((first, tokens, vec![false; self.ballots.len()]));
    }

    /// A node answered whether the token is written there, how far its clock is ahead, and what its newest token is.
    pub(super) fn record_write(&mut self, node: usize, is_written: bool, clock_lead: Option<ClockLead>, newest: u64) {
        if let (Some((.., at)), true) = (&mut self.written, is_written) {
            at[node] = true;
        }
        if let Ballot::Vote(vote) = &mut self.ballots[node] {
            vote.clock_lead = clock_lead.unwrap_or(vote.clock_lead);
            if !is_written {
                vote.newest = vote.newest.max(newest);
            }
        }
    }

    /// The vote of this node no longer counts.
    pub(super) fn drop_vote(&mut self, node: usize, error: EngineError) {
        self.ballots[node] = Ballot::Failed(error);
    }

    /// The decision; with `last`, no further answers are waited for.
    pub(super) fn decide(&self, last: bool) -> Decision {
        let (quorum, nodes) = (self.quorum(), self.ballots.len());
        if let Some(held) = self.held() {
            return held;
        }
        let votes = self.votes().count();
        let open = self.count(|ballot| matches!(ballot, Ballot::Open));
        if votes >= quorum && self.written.is_none() {
            let agreed = self.may_agree();
            // If a node has refused the guess, or there was no guess, nodes that might accept it are not waited for; a
            // node that may have an earlier token of the claim is.
            let (own_token, refused) = (self.candidate(), self.votes().any(|(_, vote)| vote.first == 0));
            let is_split = refused && (own_token == 0 || own_token == self.guess);
            if agreed.len() >= quorum && (is_split || last || open == 0) {
                return self.token_to_write(&agreed);
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
        Decision::Failed(self.no_majority())
    }

    /// The token that more than one node may have written for this claim.
    fn candidate(&self) -> u64 {
        self.votes().map(|(_, vote)| vote.first).max().unwrap_or(0)
    }

    fn held(&self) -> Option<Decision> {
        let (first, tokens, at) = match &self.written {
            Some((first, tokens, at)) => (*first, *tokens, self.agreed(|node, _| at[node])),
            None => {
                let first = self.candidate();
                let tokens = self.votes().find(|(_, vote)| vote.first == first)?.1.tokens;
                // The guess may be behind the clock of a node that took it: a node that forgot it might then take a
                // smaller one.
                let is_current = |vote: &Vote| first != self.guess || vote.micros <= first;
                (first, tokens, self.agreed(|_, vote| vote.first == first && is_current(vote)))
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
            .map(|(node, vote)| (node, vote.clock_lead))
            .collect();
        largest_agreeing(&clocks, self.tolerance)
    }

    /// The largest set of voters that may turn out to agree: more answers narrow their clocks.
    fn may_agree(&self) -> Vec<usize> {
        let clocks: Vec<_> = self.votes().map(|(node, vote)| (node, vote.clock_lead)).collect();
        largest_possibly_agreeing(&clocks, self.tolerance)
    }

    /// The token to write: one that some nodes have for this claim, if no larger one is known, and no other claim can
    /// have held since; else one that is larger than all seen tokens, and than the time of all voters.
    fn token_to_write(&self, agreed: &[usize]) -> Decision {
        let own_token = self.candidate();
        let others = self.votes().filter(|(_, vote)| vote.first != own_token);
        let newest = others.map(|(_, vote)| vote.newest).max().unwrap_or(0);
        let is_current = if own_token == self.guess {
            !self.votes().any(|(_, vote)| vote.micros > own_token)
        } else {
            self.votes().filter(|(_, vote)| vote.was_locked).count() >= self.quorum()
        };
        if own_token > newest && is_current {
            let tokens = self.votes().find(|(_, vote)| vote.first == own_token).map(|(_, vote)| vote.tokens);
            return Decision::Write { first: own_token, tokens };
        }
        let last = |vote: &Vote| (vote.first + u64::from(vote.tokens)).max(vote.newest + 1);
        let seen = self.votes().map(|(_, vote)| last(vote)).max().unwrap_or(1);
        let clock = self.votes().filter(|(node, _)| agreed.contains(node)).map(|(_, vote)| vote.micros).max();
        Decision::Write { first: seen.max(clock.unwrap_or(0)), tokens: None }
    }

    /// After a token could not be written: the next token, if a majority still has the lock. The same token, if it is
    /// there, and only the clocks are not known well enough.
    pub(super) fn next_token(&self) -> Option<u64> {
        let (first, tokens, at) = self.written.as_ref()?;
        let agreed = self.may_agree();
        if agreed.len() < self.quorum() {
            return None;
        }
        if agreed.iter().filter(|node| at[**node]).count() >= self.quorum() {
            return Some(*first);
        }
        match self.token_to_write(&agreed) {
            Decision::Write { first: token_to_write, .. } => Some(token_to_write.max(first + u64::from(*tokens))),
            _ => None,
        }
    }

    /// How the previous hold ended, by the newest token that any voter knows: at least one voter voted for that hold.
    fn previous(&self) -> Previous {
        // A node that wrote the token without knowing the end of the previous hold reports it as unknown.
        let newest = self.votes().max_by_key(|(_, vote)| (vote.newest, vote.ended != Previous::Unknown));
        match newest {
            Some((_, vote)) if vote.newest > 0 => vote.ended,
            // No voter has a token: there was no recent hold, or the nodes that knew it have forgotten it.
            _ if self.votes().any(|(_, vote)| vote.is_new) => Previous::Unknown,
            _ => Previous::Clean,
        }
    }

    /// When a majority may be free: as many obstacles must have ended as votes are lacking.
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

    /// The reason why there is no majority.
    fn no_majority(&self) -> EngineError {
        let errors = || {
            self.ballots.iter().filter_map(|ballot| match ballot {
                Ballot::Failed(error) => Some(error),
                _ => None,
            })
        };
        // Nodes without a vote yet were reached, and have a vote later: the claim goes on waiting.
        let waited_for = errors().filter(|error| error.fault == Fault::Full).count();
        let is_permanent =
            |fault: Fault| matches!(fault, Fault::Refused | Fault::Denied | Fault::Misconfigured);
        let (nodes, quorum) = (self.ballots.len(), self.quorum());
        // Enough nodes refuse for reasons that do not pass by themselves.
        let fault = match errors().find(|error| is_permanent(error.fault)) {
            Some(error) if errors().filter(|error| is_permanent(error.fault)).count() > nodes - quorum => {
                error.fault
            }
            _ if waited_for > 0 && waited_for + self.votes().count() >= quorum => Fault::Full,
            _ => Fault::Retry,
        };
        let mut reasons: Vec<String> = errors().map(|error| error.message.clone()).collect();
        let votes = self.votes().count();
        if reasons.is_empty() && votes >= quorum {
            reasons.push(
                "the clocks of the nodes differ, or their answers are too slow to compare the clocks"
                    .to_owned(),
            );
        }
        if reasons.is_empty() {
            reasons.push("the others do not answer in time".to_owned());
        }
        EngineError::new(fault, format!("{votes} of {nodes} nodes gave their vote: {}", reasons.join("; ")))
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
