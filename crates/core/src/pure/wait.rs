//! The polling of a waiting claim, a pure state machine. Its input is answers and errors, its output the next step.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    Answer, EngineError, Fault, Grant, Hint, How, Instant, Profile,
    pure::pace::{Pace, jittered},
};

/// The longest pause after answers without a queue entry, even if claims in the queue are polled less often.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause while the server accepts no more connections: refused connections cost the server work, too, and a
/// fleet of waiters would take each connection that becomes free before any other client can.
const LONGEST_PAUSE_WHILE_FULL: Duration = Duration::from_secs(10);

/// The next action for a waiting claim.
#[derive(Debug)]
pub enum WaitAction {
    /// It was granted.
    Held(Grant),
    /// Call `claim` again at this instant, or when a notification arrives.
    Call {
        /// The latest time of the call.
        at: Instant,
        /// Whether the call may create anything.
        how: How,
    },
    /// The engine forgot the claim: make a new one with a new id.
    Restart,
    /// Give up.
    Fail(EngineError),
}

/// The state of a waiting claim.
#[derive(Debug)]
pub struct Wait {
    /// The poll intervals of the engine, from the head of the queue to the far end.
    poll: RangeInclusive<Duration>,
    /// Whether the engine pushes notifications.
    push: bool,
    /// Until when to retry an engine that was never reached.
    connect_deadline: Option<Instant>,
    /// How many answers and errors in a row brought neither a grant nor a queue entry: the pauses grow with it.
    tries_without_entry: u32,
    /// The pace that the user wants, in place of the engine's intervals.
    pace: Option<Pace>,
    /// How many pauses the pace has decided.
    paced_pauses: u32,
    /// How to call `claim` the next time.
    how: How,
    /// The engine answered "waiting" or "taken" at least one time: from then on a refusal does not end the wait.
    waited: bool,
}

impl Wait {
    /// A claim that is about to be made. `connect_deadline` is the instant at which to give up an engine that was never
    /// reached; `None` if the engine was reached: then outages are waited out.
    #[must_use]
    pub fn new(profile: &Profile, connect_deadline: Option<Instant>) -> Self {
        Self {
            poll: profile.poll.clone(),
            push: profile.push,
            connect_deadline,
            tries_without_entry: 0,
            pace: None,
            paced_pauses: 0,
            how: How::Create,
            waited: false,
        }
    }

    /// The same request with a new claim id, after the engine forgot the old one. If the request has waited in the
    /// queue or was answered "taken", errors that only refuse new requests do not end it.
    #[must_use]
    pub fn with_new_id(&self, profile: &Profile, connect_deadline: Option<Instant>) -> Self {
        let Self { waited, pace, paced_pauses, .. } = *self;
        Self { waited, pace, paced_pauses, ..Self::new(profile, connect_deadline) }
    }

    /// Sets the pace that the user wants; `None`: the intervals of the engine.
    pub fn set_pace(&mut self, pace: Option<Pace>) {
        if self.pace != pace {
            (self.pace, self.paced_pauses) = (pace, 0);
        }
    }

    /// How to call `claim` the next time.
    #[must_use]
    pub const fn how(&self) -> How {
        self.how
    }

    /// The next action after the engine's answer, which arrived at `now`; `jitter` is any random number.
    pub fn answered(&mut self, answer: Result<Answer, EngineError>, now: Instant, jitter: u32) -> WaitAction {
        match answer {
            Ok(answer) => {
                self.connect_deadline = None;
                self.handle_answer(answer, now, jitter)
            }
            Err(error) => match error.fault {
                Fault::Retry if self.connect_deadline.is_some_and(|deadline| now >= deadline) => {
                    WaitAction::Fail(error)
                }
                Fault::Full => {
                    self.connect_deadline = None;
                    self.back_off_to(LONGEST_PAUSE_WHILE_FULL, now, jitter)
                }
                Fault::Retry | Fault::Unknown => match (self.back_off(now, jitter), self.connect_deadline) {
                    // The last try is made when the time is over, not one pause later.
                    (WaitAction::Call { at, how }, Some(deadline)) if now < deadline => {
                        WaitAction::Call { at: at.min(deadline), how }
                    }
                    (action, _) => action,
                },
                // A server that is read-only or full for a while: requests that already wait go on waiting.
                Fault::Refused if self.waited => self.back_off(now, jitter),
                Fault::Refused | Fault::Denied | Fault::Misconfigured | Fault::Internal => {
                    WaitAction::Fail(error)
                }
            },
        }
    }

    fn handle_answer(&mut self, answer: Answer, now: Instant, jitter: u32) -> WaitAction {
        match answer {
            Answer::Held(grant) => WaitAction::Held(grant),
            Answer::Gone => WaitAction::Restart,
            Answer::Waiting(hint) => {
                self.waited = true;
                self.tries_without_entry = 0;
                self.how = How::Ask;
                let pause = match self.paced_pause(jitter) {
                    // The claim loses its position in the queue if it does not ask for too long.
                    Some(pause) => pause.min(*self.poll.end()).min(hint.ask_in.unwrap_or(Duration::MAX)),
                    None => self.poll_interval(hint, jitter),
                };
                WaitAction::Call { at: now.after(pause), how: How::Ask }
            }
            Answer::Taken(hint) => {
                self.waited = true;
                self.how = How::Create;
                let paused = self.pause_while_taken(now, jitter);
                match (paused, hint.ask_in) {
                    (WaitAction::Call { at, how }, Some(ask_in)) => {
                        WaitAction::Call { at: at.min(now.after(ask_in)), how }
                    }
                    (action, _) => action,
                }
            }
        }
    }

    /// The pause before the next call for a claim in the queue. With push, the poll is only a safety net; without push,
    /// a claim asks the more often, the nearer it is to the head of the queue.
    fn poll_interval(&self, hint: Hint, jitter: u32) -> Duration {
        let (fastest, slowest) = (*self.poll.start(), *self.poll.end());
        let interval = match hint.ahead {
            _ if self.push => slowest,
            Some(ahead) => fastest.saturating_mul(ahead.saturating_add(1)).min(slowest),
            None => slowest,
        };
        hint.ask_in.map_or_else(|| jittered(interval, jitter), |ask_in| ask_in.min(interval))
    }

    /// The pause of the user's pace, if there is one.
    fn paced_pause(&mut self, jitter: u32) -> Option<Duration> {
        let pause = self.pace?.pause(self.paced_pauses, jitter);
        self.paced_pauses = self.paced_pauses.saturating_add(1);
        Some(pause)
    }

    /// The pause after the answer "taken": that of the user's pace, else exponential back-off.
    fn pause_while_taken(&mut self, now: Instant, jitter: u32) -> WaitAction {
        match self.paced_pause(jitter) {
            Some(pause) => WaitAction::Call { at: now.after(pause), how: self.how },
            None => self.back_off(now, jitter),
        }
    }

    /// The pause after an error: exponential back-off, with jitter so that a fleet of clients does not retry in step. A
    /// pace of longer pauses is kept, but never so long that a claim in the queue loses its position.
    fn back_off(&mut self, now: Instant, jitter: u32) -> WaitAction {
        let action = self.back_off_to(LONGEST_PAUSE.min(*self.poll.end()), now, jitter);
        let longest = if self.how == How::Ask { *self.poll.end() } else { Duration::MAX };
        match (action, self.paced_pause(jitter)) {
            (WaitAction::Call { at, how }, Some(pause)) => {
                WaitAction::Call { at: at.max(now.after(pause.min(longest))), how }
            }
            (action, _) => action,
        }
    }

    /// Back-off with pauses of at most `longest`.
    fn back_off_to(&mut self, longest: Duration, now: Instant, jitter: u32) -> WaitAction {
        let doublings = self.tries_without_entry.min(16);
        self.tries_without_entry = self.tries_without_entry.saturating_add(1);
        let interval = self.poll.start().saturating_mul(1 << doublings).min(longest);
        WaitAction::Call { at: now.after(jittered(interval, jitter)), how: self.how }
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
