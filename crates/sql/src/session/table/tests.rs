//! Several processes on one simulated server, with random requests, replies in random order, and sessions that end.

mod one_process;

use std::{collections::HashMap, time::Duration};

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Fault, Grant, How, Instant, Lineage, Mode, Name, Previous, Release,
};

use super::{KeyedClaim, Outcome, Plan, SessionTerms, Table};
use crate::session::{
    lock_key::Key,
    server::{Batch, BatchReply, NameKeys, Share, Tried},
};

/// The processes, and the names for which they compete. The last two names have one key.
const PROCESSES: usize = 3;
const NAMES: usize = 4;
/// Enough steps for many releases, collisions and ended sessions.
const STEPS: usize = 4000;

/// A server: as a database does, it lets a session take its own lock again.
#[derive(Default)]
struct Server {
    /// For each key: the sessions that have it, and how.
    locks: HashMap<Key, Vec<(u64, Share)>>,
    token: u64,
}

impl Server {
    fn lock(&mut self, session: u64, key: &Key, share: Share) -> bool {
        let locks = self.locks.entry(key.clone()).or_default();
        let blocked = locks
            .iter()
            .any(|(other, held)| *other != session && (share == Share::Alone || *held == Share::Alone));
        assert!(locks.iter().all(|(other, _)| *other != session), "session {session} locks {key} again");
        if !blocked {
            locks.push((session, share));
        }
        !blocked
    }

    fn unlock(&mut self, session: u64, key: &Key, share: Share) {
        let locks = self.locks.get_mut(key).unwrap();
        let index = locks.iter().position(|lock| *lock == (session, share));
        locks.remove(index.unwrap_or_else(|| panic!("session {session} does not have {key}")));
    }

    /// Whether another session waits.
    fn wakes(&self, session: u64, waiters: &Option<Key>) -> bool {
        let locks = waiters.as_ref().and_then(|waiters| self.locks.get(waiters));
        locks.is_some_and(|locks| locks.iter().any(|(other, _)| *other != session))
    }

    fn exchange(&mut self, session: u64, batch: &Batch) -> BatchReply {
        let mut reply = BatchReply::default();
        for unlock in &batch.unlocks {
            self.unlock(session, &unlock.key, unlock.share);
            reply.woke.push(self.wakes(session, &unlock.wake));
        }
        for watch in &batch.watches {
            let (waiters, poller) = (watch.keys.waiters.as_ref(), watch.keys.poller.as_ref());
            let announced = watch.announced || self.lock(session, waiters.unwrap(), Share::Beside);
            let polls = watch.polls || self.lock(session, poller.unwrap(), Share::Alone);
            reply.watched.push((announced, polls));
        }
        for attempt in &batch.tries {
            let locked = attempt.lock.as_ref().is_none_or(|(key, share)| self.lock(session, key, *share));
            let mut taken = Vec::new();
            if let (true, Some(permits)) = (locked, &attempt.permits) {
                let free = |key: &&Key| self.locks.get(*key).is_none_or(Vec::is_empty);
                taken = permits.candidates.iter().filter(free).take(permits.count).cloned().collect();
                if taken.len() == permits.count {
                    taken.iter().for_each(|key| assert!(self.lock(session, key, Share::Alone)));
                } else {
                    attempt.lock.iter().for_each(|(key, share)| self.unlock(session, key, *share));
                    reply.tried.push(Tried::Taken);
                    continue;
                }
            }
            reply.tried.push(if locked { Tried::Granted(taken) } else { Tried::Taken });
        }
        self.token += 1;
        reply.token = self.token;
        reply
    }

    fn end_session(&mut self, session: u64) {
        self.locks.values_mut().for_each(|locks| locks.retain(|(other, _)| *other != session));
    }
}

/// A process: its table, its claims, and the batches in flight.
struct Process {
    table: Table,
    session: u64,
    in_flight: Vec<((Batch, Plan), BatchReply)>,
    claims: HashMap<ClaimId, Claim>,
    /// The holds that the process relies on, with their tokens.
    held: HashMap<ClaimId, u64>,
}

/// Everything, and random numbers.
struct World {
    server: Server,
    processes: Vec<Process>,
    now: Instant,
    random_state: u64,
    newest_tokens: HashMap<Name, u64>,
    next_id: u128,
    sessions: u64,
    grants: usize,
}

/// The names. The last two have one key.
fn name(number: usize) -> Name {
    Name::new(&format!("n{number}")).unwrap()
}

/// A claim that may queue.
fn claim_of(mode: Mode) -> Claim {
    let (id, name) = (ClaimId([0; 16]), name(0));
    let (ttl, claim_time) = (Duration::from_secs(10), Duration::from_secs(1));
    let (may_queue, tokens, owner, stops_on_term) = (true, 1, "test".into(), false);
    Claim { id, name, mode, ttl, claim_time, may_queue, tokens, owner, stops_on_term }
}

fn keys_of(number: usize) -> NameKeys {
    let number = i64::try_from(number.min(NAMES - 2)).unwrap();
    let key = |kind| Key::Bigint(number * 100 + kind);
    NameKeys { lock: key(0), waiters: Some(key(1)), poller: Some(key(2)) }
}

impl World {
    fn new(seed: u64) -> Self {
        let (server, processes, newest_tokens, next_id, sessions, grants) = Default::default();
        let now = Instant::from_nanos(1_000_000_000);
        let mut world =
            Self { server, processes, now, random_state: seed, newest_tokens, next_id, sessions, grants };
        for process in 0..PROCESSES {
            let (session, in_flight, claims, held) = Default::default();
            world.processes.push(Process { table: Table::new(), session, in_flight, claims, held });
            world.begin_session(process);
        }
        world
    }

    /// A random number, by `SplitMix64`.
    fn random(&mut self, below: usize) -> usize {
        self.random_state = self.random_state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random_state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) as usize % below
    }

    fn begin_session(&mut self, process: usize) {
        self.sessions += 1;
        let terms = SessionTerms {
            number: self.sessions,
            lineage: Lineage::new(1),
            longest_ttl: Duration::from_secs(15),
            max_keys: usize::MAX,
            grants_from: self.now,
        };
        self.processes[process].session = self.sessions;
        self.processes[process].table.begin_session(terms, self.now);
    }

    /// A claim that may queue.
    fn new_claim(&mut self, number: usize, mode: Mode) -> Claim {
        self.next_id += 1;
        Claim { id: ClaimId(self.next_id.to_be_bytes()), name: name(number), ..claim_of(mode) }
    }

    fn claim(&mut self, process: usize) {
        let number = self.random(NAMES);
        let mode = match (number, self.random(3)) {
            (1, count) => Mode::Permits { count: u32::try_from(count).unwrap() + 1, limit: 3 },
            (_, 0) => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let may_queue = self.random(4) > 0;
        let claim = Claim { may_queue, ..self.new_claim(number, mode) };
        let id = claim.id;
        self.processes[process].claims.insert(id, claim.clone());
        self.request(process, &claim, How::Create);
    }

    fn request(&mut self, process: usize, claim: &Claim, how: How) {
        let number: usize = claim.name.as_str()[1..].parse().unwrap();
        let permits = (0..3).map(|permit| Key::Bigint(5000 + permit)).collect();
        let permit_keys = (claim.mode.limit().is_some()).then_some((permits, Key::Bigint(6000)));
        let keyed = KeyedClaim { claim, keys: keys_of(number), permit_keys, asked: self.now };
        self.processes[process].table.claim(keyed, how, self.now);
    }

    fn random_claim(&mut self, process: usize) -> Option<Claim> {
        let mut ids: Vec<ClaimId> = self.processes[process].claims.keys().copied().collect();
        ids.sort();
        let index = (!ids.is_empty()).then(|| self.random(ids.len()))?;
        self.processes[process].claims.get(&ids[index]).cloned()
    }

    fn release(&mut self, process: usize, claim: &Claim) {
        let Claim { id, name, mode, .. } = claim.clone();
        let process = &mut self.processes[process];
        // From now on the process does not rely on the hold.
        process.held.remove(&id);
        process.claims.remove(&id);
        let (token, ended, min_hold) = (None, Previous::Clean, None);
        process.table.release(&Release { id, name, mode, token, ended, min_hold }, self.now);
    }

    fn send(&mut self, process: usize) {
        let process = &mut self.processes[process];
        let taken = match process.in_flight.len() {
            0..3 => process.table.take_half(),
            3 => process.table.take_batch(),
            _ => None,
        };
        if let Some((batch, plan)) = taken {
            let reply = self.server.exchange(process.session, &batch);
            process.in_flight.push(((batch, plan), reply));
        }
    }

    fn deliver(&mut self, process: usize) {
        let count = self.processes[process].in_flight.len();
        if count > 0 {
            let index = self.random(count);
            let process = &mut self.processes[process];
            let (batch, reply) = process.in_flight.remove(index);
            process.table.apply(batch, reply, self.now, self.now);
        }
    }

    fn end_session(&mut self, process: usize) {
        self.server.end_session(self.processes[process].session);
        self.processes[process].table.end_session(&EngineError::new(Fault::Unknown, "cut"));
        self.processes[process].in_flight.clear();
        self.handle_outcomes(process);
        self.begin_session(process);
    }

    fn handle_outcomes(&mut self, process: usize) {
        for outcome in self.processes[process].table.take_outcomes() {
            match outcome {
                Outcome::Answer(id, Ok(Answer::Held(grant))) | Outcome::Granted { id, grant, .. } => {
                    self.check_grant(process, id, &grant);
                }
                Outcome::Answer(_, Ok(Answer::Waiting(_))) | Outcome::Recheck(..) | Outcome::Released(..) => {
                }
                // The outcome of the request is not known, so core releases the claim.
                Outcome::Answer(id, Err(error)) if error.fault == Fault::Unknown => {
                    if let Some(claim) = self.processes[process].claims.get(&id).cloned() {
                        self.release(process, &claim);
                    }
                }
                Outcome::Answer(id, _) | Outcome::Lost(_, id) => {
                    self.processes[process].held.remove(&id);
                    self.processes[process].claims.remove(&id);
                }
            }
        }
    }

    fn check_grant(&mut self, process: usize, id: ClaimId, grant: &Grant) {
        let Some(claim) = self.processes[process].claims.get(&id).cloned() else { return };
        let token = grant.token.number;
        if let Some(known) = self.processes[process].held.insert(id, token) {
            return assert_eq!(known, token, "a repeated answer is the same grant");
        }
        self.grants += 1;
        // The replies to two grants that exist together may arrive in any order.
        let newest = self.newest_tokens.entry(claim.name.clone()).or_default();
        assert!(*newest < token || claim.mode != Mode::Exclusive, "{token} follows {newest}");
        *newest = token.max(*newest);
        let mut permits = 0;
        for other in &self.processes {
            for held in other.held.keys().filter(|held| **held != id).map(|held| &other.claims[held]) {
                let same_key = keys_of(held.name.as_str()[1..].parse().unwrap()).lock
                    == keys_of(claim.name.as_str()[1..].parse().unwrap()).lock;
                match (held.mode, claim.mode) {
                    _ if !same_key => {}
                    (Mode::Shared, Mode::Shared) => {}
                    (Mode::Permits { count, .. }, Mode::Permits { .. }) => permits += count,
                    _ => panic!("{} and {} hold one key", held.name, claim.name),
                }
            }
        }
        if let Mode::Permits { count, limit } = claim.mode {
            assert!(permits + count <= limit, "too many permits");
        }
    }

    /// One random action of a random process.
    fn step(&mut self) {
        let process = self.random(PROCESSES);
        match self.random(24) {
            0..4 => self.claim(process),
            4..6 => {
                if let Some(claim) = self.random_claim(process) {
                    self.request(process, &claim, How::Ask);
                }
            }
            6..10 => {
                if let Some(claim) = self.random_claim(process) {
                    self.release(process, &claim);
                }
            }
            10..16 => self.send(process),
            16..22 => self.deliver(process),
            22 => {
                let millis = if self.random(2) == 0 { 1 } else { 30 };
                self.now = self.now.after(Duration::from_millis(millis));
                self.processes[process].table.poll(self.now);
            }
            _ if self.random(10) == 0 => self.end_session(process),
            _ => {}
        }
        self.handle_outcomes(process);
    }

    /// Releases everything, and lets all processes come to rest.
    fn finish(&mut self) {
        for process in 0..PROCESSES {
            while let Some(claim) = self.random_claim(process) {
                self.release(process, &claim);
            }
            for _ in 0..50 {
                self.send(process);
                self.deliver(process);
                self.handle_outcomes(process);
            }
            assert_eq!(self.processes[process].table.names().count(), 0, "process {process} knows names");
            assert!(
                self.processes[process].table.keys.is_empty() && self.processes[process].table.due.is_empty()
            );
        }
        let left: Vec<_> = self.server.locks.iter().filter(|(_, locks)| !locks.is_empty()).collect();
        assert!(left.is_empty(), "the server has {left:?}");
    }
}

#[test]
fn processes_exclude_each_other_and_leave_nothing() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.finish();
        assert!(world.grants > 50, "seed {seed}: {} grants", world.grants);
    }
}

/// Every waiting claim is granted in the end, if every holder releases.
#[test]
fn no_waiting_claim_is_forgotten() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        (0..STEPS / 4).for_each(|_| world.step());
        // From now on every claim that holds is released, and time passes.
        for _ in 0..2000 {
            for process in 0..PROCESSES {
                let held: Vec<ClaimId> = world.processes[process].held.keys().copied().collect();
                for id in held {
                    let claim = world.processes[process].claims[&id].clone();
                    world.release(process, &claim);
                }
                world.now = world.now.after(Duration::from_millis(20));
                let now = world.now;
                world.processes[process].table.poll(now);
                world.send(process);
                world.deliver(process);
                world.handle_outcomes(process);
            }
        }
        let waiting: Vec<_> = world.processes.iter().flat_map(|process| process.claims.values()).collect();
        assert!(waiting.is_empty(), "seed {seed}: {waiting:?}");
        world.finish();
    }
}
