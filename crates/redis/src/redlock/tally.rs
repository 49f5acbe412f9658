//! Counts the votes of the nodes on one claim. A pure machine, without clock or I/O: the nodes' answers come in, a
//! decision comes out.

use std::time::Duration;

use leasehold_core::{EngineError, Fault, Previous};

use super::{
    agreement::{largest_agreeing_set, largest_possibly_agreeing_set, tolerance},
    offset::ClockLead,
};

/// The answer of one node to a claim.
#[derive(Debug)]
pub(super) enum Ballot {
    /// No answer yet.
    Pending,
    /// The node has the lock of the claim, and its vote counts.
    Vote(Vote),
    /// Another lock is in the way, for this long; `None`: that lock has no expiry.
    Taken(Option<Duration>),
    /// The node has no lock of the claim.
    Absent,
    /// The claim was released on the node, or an operator broke its hold.
    Dead,
    /// The vote of the node does not count, or the node gave no vote.
    Failed(EngineError),
}

/// The vote of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    /// The node's time when it answered the request, in microseconds.
    pub(super) node_micros: u64,
    /// How far the node's clock is ahead of ours.
    pub(super) clock_lead: ClockLead,
    /// The newest token on the node before this request, and how the hold of that token ended.
    pub(super) newest_token: u64,
    pub(super) newest_hold_ended: Previous,
    /// The first token of the block that is written on the node for the claim; 0 if there is none.
    pub(super) first_token: u64,
    /// How many tokens the block has.
    pub(super) tokens: u32,
    /// Whether the node had the lock of the claim before this request.
    pub(super) was_locked: bool,
    /// Whether the node has had its data only for a short time: then it may have forgotten how the previous hold ended.
    pub(super) is_data_new: bool,
}

/// The votes on one claim.
pub(super) struct Tally {
    /// The answers, by the number of the node.
    pub(super) ballots: Vec<Ballot>,
    /// By how much the clocks of nodes whose votes are counted together may differ.
    tolerance: Duration,
    /// The token that was sent with the request; 0 for none. It counts on a node only if it is not behind that node's
    /// clock.
    guessed_token: u64,
    /// The block of tokens, which is written to the nodes after the votes: its first token, its number of tokens, and
    /// for each node whether the node has confirmed the write.
    block_write: Option<(u64, u32, Vec<bool>)>,
}

/// The decision.
#[derive(Debug)]
pub(super) enum Decision {
    /// No decision yet: more answers are needed.
    Undecided,
    /// The claim holds, with this block of tokens: its first token, and their number.
    Held { first_token: u64, tokens: u32, previous: Previous },
    /// A majority granted the lock to this claim: the block that begins with `first_token` must be written on the nodes
    /// that voted. `tokens` is the number of tokens of this block if an earlier attempt has written it on some nodes
    /// already; `None` if the block is new.
    Write { first_token: u64, tokens: Option<u32> },
    /// Other locks are in the way. Asking again may succeed after this time, if it is known.
    Taken(Option<Duration>),
    /// The nodes do not know the claim, or the claim was released.
    Gone,
    /// There is no majority.
    Failed(EngineError),
}

impl Tally {
    /// A tally without answers yet, of a claim with this ttl.
    pub(super) fn new(nodes: usize, ttl: Duration, guessed_token: u64) -> Self {
        let ballots = (0..nodes).map(|_| Ballot::Pending).collect();
        Self { ballots, tolerance: tolerance(ttl), guessed_token, block_write: None }
    }

    /// The size of a majority.
    fn quorum(&self) -> usize {
        self.ballots.len() / 2 + 1
    }

    /// The votes that count, with the numbers of their nodes.
    fn votes(&self) -> impl Iterator<Item = (usize, &Vote)> {
        self.ballots.iter().enumerate().filter_map(|(node, ballot)| match ballot {
            Ballot::Vote(vote) => Some((node, vote)),
            _ => None,
        })
    }

    /// How many ballots fulfil a condition.
    fn count(&self, condition: impl Fn(&Ballot) -> bool) -> usize {
        self.ballots.iter().filter(|ballot| condition(ballot)).count()
    }

    /// Begins to count the nodes on which this block of tokens is written, in place of an earlier block.
    pub(super) fn start_write(&mut self, first_token: u64, tokens: u32) {
        self.block_write = Some((first_token, tokens, vec![false; self.ballots.len()]));
    }

    /// Records the answer of a node: whether the block is written there, how far its clock is ahead, and its newest
    /// token.
    pub(super) fn record_write(
        &mut self,
        node: usize,
        is_written: bool,
        clock_lead: Option<ClockLead>,
        newest_token: u64,
    ) {
        if let (Some((.., is_written_on)), true) = (&mut self.block_write, is_written) {
            is_written_on[node] = true;
        }
        if let Ballot::Vote(vote) = &mut self.ballots[node] {
            vote.clock_lead = clock_lead.unwrap_or(vote.clock_lead);
            if !is_written {
                vote.newest_token = vote.newest_token.max(newest_token);
            }
        }
    }

    /// Replaces the vote of this node by an error.
    pub(super) fn drop_vote(&mut self, node: usize, error: EngineError) {
        self.ballots[node] = Ballot::Failed(error);
    }

    /// The decision by the ballots so far; `is_final`: no further answers are expected.
    pub(super) fn decide(&self, is_final: bool) -> Decision {
        let (quorum, nodes) = (self.quorum(), self.ballots.len());
        if let Some(decision) = self.decide_held() {
            return decision;
        }
        let votes = self.votes().count();
        let pending = self.count(|ballot| matches!(ballot, Ballot::Pending));
        if votes >= quorum && self.block_write.is_none() {
            let agreeing_voters = self.possibly_agreeing_voters();
            // If a node has refused the guessed token, or none was sent, it is useless to wait for nodes that might
            // accept it. But a node that has not answered may have a token that an earlier request of the claim wrote.
            let (own_token, is_guess_refused) =
                (self.own_token(), self.votes().any(|(_, vote)| vote.first_token == 0));
            let is_guess_useless = is_guess_refused && (own_token == 0 || own_token == self.guessed_token);
            if agreeing_voters.len() >= quorum && (is_guess_useless || is_final || pending == 0) {
                return self.token_to_write(&agreeing_voters);
            }
        }
        if self.count(|ballot| matches!(ballot, Ballot::Dead)) > 0 {
            return Decision::Gone;
        }
        if votes + pending >= quorum && !is_final {
            return Decision::Undecided;
        }
        let absent = self.count(|ballot| matches!(ballot, Ballot::Absent));
        if absent > nodes - quorum {
            return Decision::Gone;
        }
        if self.count(|ballot| matches!(ballot, Ballot::Taken(_))) > 0 {
            return Decision::Taken(self.free_in());
        }
        Decision::Failed(self.no_majority_error())
    }

    /// The largest token that any voter has for this claim; several voters may have it. 0 if no voter has a token for
    /// it.
    fn own_token(&self) -> u64 {
        self.votes().map(|(_, vote)| vote.first_token).max().unwrap_or(0)
    }

    /// The decision that the claim holds, if a majority whose clocks agree has the claim's token.
    fn decide_held(&self) -> Option<Decision> {
        let (first_token, tokens, with_token) = match &self.block_write {
            Some((first_token, tokens, is_written_on)) => {
                (*first_token, *tokens, self.agreeing_voters(|node, _| is_written_on[node]))
            }
            None => {
                let first_token = self.own_token();
                let tokens = self.votes().find(|(_, vote)| vote.first_token == first_token)?.1.tokens;
                // A guess that is behind the clock of the node that wrote it does not count there: if the node forgets
                // the guess, it could accept a smaller token later.
                let is_current =
                    |vote: &Vote| first_token != self.guessed_token || vote.node_micros <= first_token;
                (
                    first_token,
                    tokens,
                    self.agreeing_voters(|_, vote| vote.first_token == first_token && is_current(vote)),
                )
            }
        };
        let is_held = first_token > 0 && with_token.len() >= self.quorum();
        is_held.then(|| Decision::Held { first_token, tokens, previous: self.previous() })
    }

    /// Of the voters that fulfil a condition, the largest set whose clocks agree.
    fn agreeing_voters(&self, condition: impl Fn(usize, &Vote) -> bool) -> Vec<usize> {
        let clocks: Vec<_> = self
            .votes()
            .filter(|(node, vote)| condition(*node, vote))
            .map(|(node, vote)| (node, vote.clock_lead))
            .collect();
        largest_agreeing_set(&clocks, self.tolerance)
    }

    /// The largest set of voters whose clocks may agree: more answers may show that they do.
    fn possibly_agreeing_voters(&self) -> Vec<usize> {
        let clocks: Vec<_> = self.votes().map(|(node, vote)| (node, vote.clock_lead)).collect();
        largest_possibly_agreeing_set(&clocks, self.tolerance)
    }

    /// The token to write. This is the token that some nodes have for this claim, if no larger token is known, and no
    /// other claim can have held since that token was written. Otherwise it is a token that is larger than all known
    /// tokens, and not smaller than the time of any of the voters whose clocks agree.
    fn token_to_write(&self, agreeing_voters: &[usize]) -> Decision {
        let own_token = self.own_token();
        let others = self.votes().filter(|(_, vote)| vote.first_token != own_token);
        let newest_other = others.map(|(_, vote)| vote.newest_token).max().unwrap_or(0);
        let is_current = if own_token == self.guessed_token {
            !self.votes().any(|(_, vote)| vote.node_micros > own_token)
        } else {
            self.votes().filter(|(_, vote)| vote.was_locked).count() >= self.quorum()
        };
        if own_token > newest_other && is_current {
            let tokens =
                self.votes().find(|(_, vote)| vote.first_token == own_token).map(|(_, vote)| vote.tokens);
            return Decision::Write { first_token: own_token, tokens };
        }
        // The smallest token that is larger than all tokens of a voter.
        let next_free = |vote: &Vote| (vote.first_token + u64::from(vote.tokens)).max(vote.newest_token + 1);
        let above_all = self.votes().map(|(_, vote)| next_free(vote)).max().unwrap_or(1);
        let latest_time = self
            .votes()
            .filter(|(node, _)| agreeing_voters.contains(node))
            .map(|(_, vote)| vote.node_micros)
            .max();
        Decision::Write { first_token: above_all.max(latest_time.unwrap_or(0)), tokens: None }
    }

    /// The token to write next, after a token could not be written on a majority; `None` if no majority has the lock
    /// any more. If a majority has the token, and only the clocks are not known well enough, it is the same token
    /// again.
    pub(super) fn next_token(&self) -> Option<u64> {
        let (first_token, tokens, is_written_on) = self.block_write.as_ref()?;
        let agreeing_voters = self.possibly_agreeing_voters();
        if agreeing_voters.len() < self.quorum() {
            return None;
        }
        if agreeing_voters.iter().filter(|node| is_written_on[**node]).count() >= self.quorum() {
            return Some(*first_token);
        }
        match self.token_to_write(&agreeing_voters) {
            Decision::Write { first_token: larger, .. } => Some(larger.max(first_token + u64::from(*tokens))),
            _ => None,
        }
    }

    /// How the previous hold ended, as reported by the voter that knows the newest token. This token is the token of
    /// the previous hold: a majority votes for this claim and a majority voted for that hold, so at least one node
    /// voted for both.
    fn previous(&self) -> Previous {
        // A node that wrote the token without knowing how the previous hold ended reports that end as unknown.
        let newest_vote = self
            .votes()
            .max_by_key(|(_, vote)| (vote.newest_token, vote.newest_hold_ended != Previous::Unknown));
        match newest_vote {
            Some((_, vote)) if vote.newest_token > 0 => vote.newest_hold_ended,
            // No voter has a token: there was no hold lately, or the nodes that knew of the hold have forgotten it.
            _ if self.votes().any(|(_, vote)| vote.is_data_new) => Previous::Unknown,
            _ => Previous::Clean,
        }
    }

    /// The time until a majority of the nodes can be free: until as many other locks have ended as votes are missing.
    /// `None` if that time is unknown.
    fn free_in(&self) -> Option<Duration> {
        let lacking_votes = self.quorum().saturating_sub(self.votes().count()).max(1);
        let mut ttls_left: Vec<_> = self
            .ballots
            .iter()
            .filter_map(|ballot| match ballot {
                Ballot::Taken(ttl_left) => Some(ttl_left.unwrap_or(Duration::MAX)),
                _ => None,
            })
            .collect();
        ttls_left.sort_unstable();
        ttls_left.get(lacking_votes - 1).copied().filter(|ttl_left| *ttl_left < Duration::MAX)
    }

    /// The error that says why there is no majority.
    fn no_majority_error(&self) -> EngineError {
        let errors = || {
            self.ballots.iter().filter_map(|ballot| match ballot {
                Ballot::Failed(error) => Some(error),
                _ => None,
            })
        };
        // Nodes in quarantine (`Fault::Full`) will have a vote later: the claim continues to wait.
        let in_quarantine = errors().filter(|error| error.fault == Fault::Full).count();
        let is_permanent =
            |fault: Fault| matches!(fault, Fault::Refused | Fault::Denied | Fault::Misconfigured);
        let (nodes, quorum) = (self.ballots.len(), self.quorum());
        // If so many nodes refuse permanently that the others are no majority, the error of the refusing nodes is
        // reported.
        let fault = match errors().find(|error| is_permanent(error.fault)) {
            Some(error) if errors().filter(|error| is_permanent(error.fault)).count() > nodes - quorum => {
                error.fault
            }
            _ if in_quarantine > 0 && in_quarantine + self.votes().count() >= quorum => Fault::Full,
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
