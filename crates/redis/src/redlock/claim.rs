//! Claims on a Redlock: first the lock key is set on a majority of the nodes, then the token is written there.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use leasehold_core::{Answer, Claim, EngineError, Fault, Grant, Hint, How, Instant, Mode, Token};

use super::{
    agreement::{largest_agreeing_set, tolerance, validity},
    engine::RedlockEngine,
    messages::{
        ClaimEnd, ClaimRequest, LockAnswer, LockOutcome, Waits, read_lock_answer, read_write_answer,
        write_item,
    },
    node::{Node, RoundTrip},
    node_requests::{NodeRequest, collect_answers},
    tally::{Ballot, Decision, Tally, Vote},
};
use crate::{keys::Keys, scripts::Script, token_counter::LINEAGE};

/// By how much the guessed token is ahead of the nodes' clocks, in microseconds: when the request arrives, the token
/// must still be larger than the node's time.
const TOKEN_LEAD_MICROS: u64 = 5_000;
/// How many times the token of one claim is written at most. A node refuses a token if its newest token is as large or
/// larger; then a larger token is tried.
const MAX_TOKEN_ATTEMPTS: u32 = 3;
/// For how long a node stores how the last hold ended (`TOKEN_LIFE` in `lua/redlock/head.lua`): a node that has had its
/// data for a shorter time may have forgotten that end.
const MAX_END_AGE: Duration = Duration::from_secs(3600);
/// How much longer a lease may last on a node than by our clock, and how far a token may be ahead of the node's clock:
/// see [`RedlockEngine::quarantine`].
const QUARANTINE_MARGIN: Duration = Duration::from_secs(1);

/// One attempt of a claim. Each attempt has its own number, which is part of the value of the lock key.
struct ClaimAttempt<'a> {
    claim: &'a Claim,
    keys: &'a Keys<'a>,
    number: u32,
}

impl RedlockEngine {
    /// Claims a name: sets the lock key on the nodes, writes the token if no majority has accepted the guessed token,
    /// and returns the answer.
    pub(super) async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        if claim.mode != Mode::Exclusive {
            return Err(unsupported_mode(claim.mode));
        }
        let keys = self.keys(&claim.name)?;
        if self.nodes[0].in_flight.is_released(claim.id, self.clock.now()) {
            return Ok(Answer::Gone);
        }
        if claim.ttl > self.config.max_ttl {
            let (ttl, max_ttl) = (claim.ttl, self.config.max_ttl);
            let message = format!(
                "a ttl of {ttl:?} is longer than max_ttl ({max_ttl:?}): a node that forgot it would vote too early"
            );
            return Err(EngineError::new(Fault::Misconfigured, message));
        }
        self.wait_until_ready().await?;
        let attempt =
            ClaimAttempt { claim, keys: &keys, number: self.next_attempt.fetch_add(1, Ordering::Relaxed) };
        let guessed_token = if how == How::Ask { 0 } else { self.guess_token(claim.ttl) };
        let mut tally = Tally::new(self.nodes.len(), claim.ttl, guessed_token);
        let mut decision = self.lock(&attempt, how, guessed_token, &mut tally).await?;
        if let Decision::Write { first_token, tokens } = decision {
            decision = self.write(&attempt, first_token, tokens.unwrap_or(claim.tokens), &mut tally).await?;
        }
        self.conclude(&attempt, how, &tally, decision)
    }

    /// The answer to the claim. If a request to create the claim is not granted, releases what it may have left on the
    /// nodes.
    fn conclude(
        &self,
        attempt: &ClaimAttempt<'_>,
        how: How,
        tally: &Tally,
        decision: Decision,
    ) -> Result<Answer, EngineError> {
        let claim = attempt.claim;
        if let Decision::Held { first_token, tokens, previous } = decision {
            self.set_waiting(claim.id, false);
            let token = Token { lineage: LINEAGE, number: first_token };
            return Ok(Answer::Held(Grant { token, tokens, ttl: Some(validity(claim.ttl)), previous }));
        }
        if how == How::Create {
            let (id, token, ended) = (claim.id, 0, leasehold_core::Previous::Clean);
            let end =
                ClaimEnd { id, attempt: Some(attempt.number), may_retry: claim.may_queue, token, ended };
            let may_have_lock =
                |ballot: &Ballot| !matches!(ballot, Ballot::Taken(_) | Ballot::Absent | Ballot::Dead);
            let nodes = self.nodes.iter().zip(&tally.ballots).filter(|(_, ballot)| may_have_lock(ballot));
            nodes.for_each(|(node, _)| node.release_later(&claim.name, end));
        }
        match decision {
            Decision::Taken(ask_in) => {
                self.set_waiting(claim.id, claim.may_queue);
                Ok(Answer::Taken(Hint { ask_in, ..Hint::default() }))
            }
            Decision::Gone => Ok(Answer::Gone),
            Decision::Failed(error) => Err(error),
            _ => Err(EngineError::new(Fault::Retry, "the nodes did not answer in time")),
        }
    }

    /// Guesses a token from the clocks of the nodes. The guess is larger than every earlier token; only a token that
    /// was granted just now can be as large. 0 if the clocks of a majority are not known, or do not agree.
    fn guess_token(&self, ttl: Duration) -> u64 {
        let now = self.clock.now();
        let clocks: Vec<_> = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| Some((index, node.clock_lead(now)?)))
            .collect();
        let agreeing_nodes = largest_agreeing_set(&clocks, tolerance(ttl));
        if agreeing_nodes.len() < self.quorum() {
            return 0;
        }
        let largest_lead = clocks
            .iter()
            .filter(|(index, _)| agreeing_nodes.contains(index))
            .map(|(_, clock_lead)| clock_lead.most)
            .max();
        let our_micros = i64::try_from(now.as_nanos() / 1000).unwrap_or(i64::MAX);
        largest_lead.map_or(0, |clock_lead| {
            u64::try_from(clock_lead.saturating_add(our_micros))
                .unwrap_or(0)
                .saturating_add(TOKEN_LEAD_MICROS)
        })
    }

    /// Asks all responsive nodes to set the lock key and to write the guessed token, until the votes decide.
    async fn lock(
        &self,
        attempt: &ClaimAttempt<'_>,
        how: How,
        guessed_token: u64,
        tally: &mut Tally,
    ) -> Result<Decision, EngineError> {
        let claim = attempt.claim;
        let waits = match (claim.may_queue, self.is_waiting(claim.id)) {
            (_, true) => Waits::Still,
            (true, false) => Waits::Now,
            (false, false) => Waits::Never,
        };
        let item_for = |node: &Node| {
            let (max_ttl, channel) = (self.max_ttl(), node.client.channel.as_str());
            ClaimRequest { claim, how, attempt: attempt.number, guessed_token, waits, max_ttl, channel }
                .item(attempt.keys)
        };
        let mut requests = Vec::with_capacity(self.nodes.len());
        // Nodes that answered late are asked only if there is no majority without them.
        let asks_late = self.responsive_count() < self.quorum();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(conn) = node.responsive_conn().or_else(|| node.conn().filter(|_| asks_late)) else {
                tally.ballots[index] = Ballot::Failed(node.unavailable());
                continue;
            };
            let (item, id) = (item_for(node), claim.id);
            let (asked_node, asked_conn) = (Arc::clone(node), Arc::clone(&conn));
            let answer = Box::pin(async move {
                let in_flight =
                    asked_node.in_flight.start(id, asked_conn.number, asked_node.client.clock.now());
                let reply = asked_node.ask(&asked_conn, Script::LockNode, [item].into()).await;
                if !reply.as_ref().is_err_and(|error| error.fault.may_be_applied()) {
                    in_flight.complete();
                }
                reply.and_then(|(reply, round_trip)| Ok((read_lock_answer(reply)?, round_trip)))
            });
            requests.push(NodeRequest { index, node: Arc::clone(node), conn, answer });
        }
        let mut decision = tally.decide(requests.is_empty());
        if matches!(decision, Decision::Undecided) {
            collect_answers(requests, self.config.answer_timeout(claim.ttl), |index, reply| {
                tally.ballots[index] = self.ballot(index, reply, how);
                decision = tally.decide(false);
                !matches!(decision, Decision::Undecided)
            })
            .await;
        }
        Ok(if matches!(decision, Decision::Undecided) { tally.decide(true) } else { decision })
    }

    /// The ballot for the answer of a node: a vote that counts, or the reason why there is none.
    fn ballot(&self, index: usize, reply: Result<(LockAnswer, RoundTrip), EngineError>, how: How) -> Ballot {
        let node = &self.nodes[index];
        let (answer, round_trip) = match reply {
            Ok(reply) => reply,
            Err(error) => return Ballot::Failed(error),
        };
        let clock_lead = node.learn(round_trip, answer.node_micros);
        self.record_max_ttl(answer.max_ttl);
        match answer.outcome {
            LockOutcome::Taken => return Ballot::Taken(answer.ttl_left),
            LockOutcome::Absent => return Ballot::Absent,
            LockOutcome::Dead => return Ballot::Dead,
            LockOutcome::WrongType => {
                let message =
                    "the key of this lock has a value that is not a string: choose another name or prefix";
                return Ballot::Failed(node.with_name(&EngineError::new(Fault::Misconfigured, message)));
            }
            LockOutcome::Locked | LockOutcome::Relocked => {}
        }
        let Some(clock_lead) = clock_lead else {
            return Ballot::Failed(node.with_name(&EngineError::new(Fault::Retry, "its clock is not known")));
        };
        // With `How::Ask` the node only extends a lock that this claim has there: such a vote needs no check for a
        // quarantine.
        if how == How::Create
            && let Some(error) = self.why_no_vote(node, &answer, round_trip.answered)
        {
            return Ballot::Failed(error);
        }
        let LockAnswer {
            node_micros, newest_token, newest_hold_ended, first_token, tokens, data_age, ..
        } = answer;
        let (was_locked, is_data_new) = (answer.outcome == LockOutcome::Relocked, data_age < MAX_END_AGE);
        Ballot::Vote(Vote {
            node_micros,
            clock_lead,
            newest_token,
            newest_hold_ended,
            first_token,
            tokens,
            was_locked,
            is_data_new,
        })
    }

    /// The reason why the vote of this node does not count: it may have forgotten locks that are still valid. `None` if
    /// the vote counts.
    fn why_no_vote(&self, node: &Node, answer: &LockAnswer, now: Instant) -> Option<EngineError> {
        let Some((_, started_micros)) = node.run_id_and_start() else {
            let message = "does not allow INFO to this user, and only INFO shows when the node started: give the user the rights of docs/engines/redlock.md";
            return Some(node.with_name(&EngineError::new(Fault::Denied, message)));
        };
        let uptime = Duration::from_micros(answer.node_micros.saturating_sub(started_micros));
        // The node has certainly forgotten no lock that was set within this time.
        let (history, needed) = (uptime.min(answer.data_age), self.quarantine());
        if history < needed {
            let (since, vote_in) = (history.as_secs(), (needed - history).as_secs() + 1);
            let event = if uptime <= answer.data_age { "started" } else { "was emptied, or first used," };
            let message = format!(
                "{event} {since} s ago, and has no vote for {vote_in} s more: it may have forgotten locks of up to max_ttl"
            );
            return Some(node.with_name(&EngineError::new(Fault::Full, message)));
        }
        let suspended_for = node.suspended_for(now, self.quarantine())?;
        let message = format!("its clock was set forward, and it has no vote for {suspended_for:?} more");
        Some(node.with_name(&EngineError::new(Fault::Full, message)))
    }

    /// How long a node has no vote after a restart: the longest lease, two hundredths of it, and a margin. One
    /// hundredth is for a node whose clock is faster. With the second hundredth, every token that the node has
    /// forgotten is smaller than the time of each other node whose clock agrees with this node's clock.
    pub(super) fn quarantine(&self) -> Duration {
        let max_ttl = self.max_ttl();
        max_ttl + max_ttl / 50 + QUARANTINE_MARGIN
    }

    /// Writes a block of tokens on the nodes that voted. If some node has a larger token, tries again with a block of
    /// larger tokens.
    async fn write(
        &self,
        attempt: &ClaimAttempt<'_>,
        mut first_token: u64,
        tokens: u32,
        tally: &mut Tally,
    ) -> Result<Decision, EngineError> {
        let claim = attempt.claim;
        for _ in 0..MAX_TOKEN_ATTEMPTS {
            tally.start_write(first_token, tokens);
            let mut requests = Vec::with_capacity(self.nodes.len());
            for (index, node) in self.nodes.iter().enumerate() {
                if !matches!(tally.ballots[index], Ballot::Vote(_)) {
                    continue;
                }
                let Some(conn) = node.conn() else {
                    tally.drop_vote(index, node.unavailable());
                    continue;
                };
                let item = write_item(attempt.keys, claim, attempt.number, first_token, tokens);
                let (asked_node, asked_conn) = (Arc::clone(node), Arc::clone(&conn));
                let answer = Box::pin(async move {
                    let (reply, round_trip) =
                        asked_node.ask(&asked_conn, Script::WriteToken, [item].into()).await?;
                    Ok::<_, EngineError>((read_write_answer(reply)?, round_trip))
                });
                requests.push(NodeRequest { index, node: Arc::clone(node), conn, answer });
            }
            let mut decision = Decision::Undecided;
            collect_answers(requests, self.config.answer_timeout(claim.ttl), |index, reply| {
                match reply {
                    Ok(((is_written, node_micros, newest_token), round_trip)) => {
                        let clock_lead = self.nodes[index].learn(round_trip, node_micros);
                        tally.record_write(index, is_written, clock_lead, newest_token);
                    }
                    Err(error) => tally.drop_vote(index, error),
                }
                decision = tally.decide(false);
                matches!(decision, Decision::Held { .. })
            })
            .await;
            if matches!(decision, Decision::Held { .. }) {
                return Ok(decision);
            }
            match tally.next_token() {
                Some(next_token) => first_token = next_token,
                None => break,
            }
        }
        Ok(tally.decide(true))
    }
}

/// The error for a mode that a Redlock does not support.
fn unsupported_mode(mode: Mode) -> EngineError {
    let message = match mode {
        Mode::Permits { .. } => {
            "a Redlock has no permits: each node counts alone, so majorities of the nodes can grant more permits than the limit; use one durable server (redis://) or another engine"
        }
        _ => {
            "a Redlock has no shared locks: the value that other programs read on the nodes names one holder; use one durable server (redis://) or another engine"
        }
    };
    EngineError::new(Fault::Misconfigured, message)
}
