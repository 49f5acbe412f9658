//! Draws a plan from a seed.

use std::time::Duration;

use super::{Breaking, ClientPlan, Direction, End, Fate, Fault, Lock, Op, Patience, Plan, Protocol};
use crate::{
    bug::Bug,
    rng::Rng,
    scheduler::{Moment, Sleeps},
};

/// The names of the locks.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The typical lease of a run is one of these, in ms.
const LEASES: [u64; 5] = [500, 1000, 2000, 5000, 10_000];
/// The least and the largest delay of messages, in µs: within a rack, within a town, over a slow connection.
const DELAYS: [(u64, u64); 3] = [(30, 300), (300, 3000), (2000, 40_000)];

/// The parameters that decide how the rest of a plan is drawn.
struct Draw {
    rng: Rng,
    /// The typical lease of the run.
    lease: Duration,
    /// The approximate length of the run.
    length: Duration,
    /// How many clients start at the beginning.
    clients: usize,
    /// The number of locks.
    locks: usize,
    /// Whether releases may have a minimum hold time.
    has_min_holds: bool,
}

/// Draws the plan of a seed, with `ops` acquisitions.
pub(super) fn plan(mut rng: Rng, seed: u64, ops: usize, bug: Option<Bug>) -> Plan {
    let protocol =
        *rng.pick(&[Protocol::Push, Protocol::Push, Protocol::Push, Protocol::Watch, Protocol::Poll]);
    let locks: Vec<Lock> = NAMES[..*rng.pick(&[1, 1, 1, 2, 2, 3])]
        .iter()
        .map(|name| Lock { name, limit: rng.percent(15).then(|| rng.among(1..=3) as u32) })
        .collect();
    let (least, most) = *rng.pick(&DELAYS);
    let lease = Duration::from_millis(*rng.pick(&LEASES));
    let clients = rng.among(2..=4) as usize;
    let has_min_holds = rng.percent(30);
    let mut draw = Draw { rng, lease, length: lease * 6, clients, locks: locks.len(), has_min_holds };
    let mut clients: Vec<ClientPlan> = (0..clients).map(|_| draw.client(Duration::ZERO)).collect();
    for _ in 0..ops {
        let client = draw.among(0, clients.len() as u64 - 1) as usize;
        let task = draw.among(0, clients[client].tasks.len() as u64 - 1) as usize;
        let op = draw.op();
        clients[client].tasks[task].push(op);
    }
    let faults = draw.faults(protocol, &mut clients);
    Plan {
        seed,
        protocol,
        bug,
        named: draw.rng.percent(50),
        delay: (Duration::from_micros(least), Duration::from_micros(most)),
        truth_interval: lease / draw.among(2, 12) as u32,
        locks,
        clients,
        faults,
    }
}

impl Draw {
    /// A number from `least` to `most`.
    fn among(&mut self, least: u64, most: u64) -> u64 {
        self.rng.among(least..=most)
    }

    /// A duration between `least` and `most` hundredths of `whole`.
    fn fraction(&mut self, whole: Duration, least: u64, most: u64) -> Duration {
        whole.mul_f64(self.among(least * 1000, most * 1000) as f64 / 100_000.0)
    }

    /// A random time of the run.
    fn random_time(&mut self) -> Duration {
        self.fraction(self.length, 0, 100)
    }

    /// A random client.
    fn random_client(&mut self) -> usize {
        self.among(0, self.clients as u64 - 1) as usize
    }

    /// A client that starts at this time, without operations.
    fn client(&mut self, starts: Duration) -> ClientPlan {
        let fast = match self.among(0, 9) {
            0..2 => 0,
            // It is safe if a client's clock is faster than the margin allows.
            2 => self.among(10_000, 200_000) as i64,
            _ => self.among(0, 18_000) as i64 - 9000,
        };
        ClientPlan { starts, fast, tasks: vec![Vec::new(); self.among(1, 4) as usize] }
    }

    /// Draws an acquisition.
    fn op(&mut self) -> Op {
        let lease = self.lease;
        let hold = match self.among(0, 9) {
            0..5 => self.fraction(lease, 0, 3),
            5..8 => self.fraction(lease, 2, 60),
            _ => self.fraction(lease, 60, 250),
        };
        let patience = match self.among(0, 19) {
            0..11 => Patience::Endless,
            11..15 => Patience::Within(self.fraction(lease, 3, 200)),
            15..18 => Patience::Try,
            _ => Patience::Tries(self.among(2, 5) as u32),
        };
        let end = match self.among(0, 19) {
            0..14 => End::Release,
            14..18 => End::Drop,
            _ if self.has_min_holds => End::MinHold(hold + self.fraction(lease, 0, 40)),
            _ => End::Release,
        };
        // Some requests ask for another lease: requests for different leases do not share a hold.
        let ttl = if self.rng.percent(85) { lease } else { lease * 2 };
        Op {
            breaks: self.rng.percent(2).then_some(Breaking::Gentle),
            pause: if self.rng.percent(70) {
                self.fraction(lease, 0, 4)
            } else {
                self.fraction(lease, 0, 120)
            },
            lock: self.among(0, self.locks as u64 - 1) as usize,
            want: self.among(0, 5) as u32,
            ttl,
            renew: self.rng.percent(80),
            max_hold: self.rng.percent(8).then(|| self.fraction(lease, 1, 150)),
            patience,
            cancel: self.rng.percent(15).then(|| self.fraction(lease, 0, 60)),
            hold,
            writes: if self.rng.percent(50) { self.among(1, 2) as u32 } else { 0 },
            stubborn: self.rng.percent(50),
            confirm: self.rng.percent(10),
            again: self.rng.percent(10),
            end,
            closes: self.rng.percent(1).then(|| self.fraction(lease, 0, 100)),
        }
    }

    /// Draws the faults of the run. For each client that crashes, adds a client.
    fn faults(&mut self, protocol: Protocol, clients: &mut Vec<ClientPlan>) -> Vec<Fault> {
        if self.rng.percent(15) {
            return Vec::new();
        }
        let mut faults: Vec<Fault> = (0..self.among(4, 10)).map(|_| self.fault(protocol)).collect();
        if self.rng.percent(35) {
            self.add_unsurvivable(protocol, clients, &mut faults);
        }
        for fault in &faults {
            if let Fault::Crash { client, at, .. } = *fault {
                // The added client does the second half of the work of the client that crashed.
                let starts = at + self.fraction(self.lease, 0, 200);
                let mut next = self.client(starts);
                next.tasks = clients[client].tasks.iter().map(|ops| ops[ops.len() / 2..].to_vec()).collect();
                clients.push(next);
            }
        }
        faults
    }

    /// Draws a fault after which a lock server still keeps its promises.
    fn fault(&mut self, protocol: Protocol) -> Fault {
        let (client, at, lease) = (self.random_client(), self.random_time(), self.lease);
        match self.among(0, 29) {
            0..9 => {
                let nth = self.among(0, 30);
                Fault::Request { client, nth, fate: self.fate(protocol) }
            }
            9..13 => {
                let nth = self.among(0, 6);
                let fate = self.fate(Protocol::Watch);
                Fault::Notification { client, nth, fate }
            }
            13..16 => {
                let sleeps = if self.rng.percent(70) { Sleeps::GoOn } else { Sleeps::Suspend };
                Fault::Stop { client, at, length: self.fraction(lease, 5, 300), sleeps }
            }
            16..20 => {
                let (readings, length) = (self.among(0, 12) as u32, self.fraction(lease, 5, 300));
                let moment = if self.rng.percent(50) { Moment::Before } else { Moment::After };
                Fault::StopAtReading { client, at, readings, length, moment }
            }
            20..22 => Fault::Crash { client, at, unnoticed: self.rng.percent(50) },
            22 => Fault::Reset { client, at },
            23..26 => {
                let way = *self.rng.pick(&[Direction::Up, Direction::Down, Direction::Both]);
                Fault::Cut { client, at, length: self.fraction(lease, 5, 250), way }
            }
            26 => Fault::Stall { at, length: self.fraction(lease, 5, 200) },
            27 => Fault::Restart { at, length: self.fraction(lease, 1, 150) },
            _ => Fault::Step { at, by: -(self.fraction(lease, 1, 300).as_nanos() as i64) },
        }
    }

    /// Draws the fault of a single message.
    fn fate(&mut self, protocol: Protocol) -> Fate {
        let late = Duration::from_millis(self.among(1, 1900));
        match self.among(0, 3) {
            0 => Fate::Lost,
            1 => Fate::Unanswered,
            2 => Fate::Late(late),
            // On a connection that keeps the order, nothing arrives twice.
            _ if protocol == Protocol::Push => Fate::Lost,
            _ => Fate::Twice(late),
        }
    }

    /// Adds a fault after which no lock server can keep exclusion. In a run with such a fault, exclusion is not
    /// required, but losses have to be reported and the fence has to hold.
    fn add_unsurvivable(&mut self, protocol: Protocol, clients: &mut [ClientPlan], faults: &mut Vec<Fault>) {
        let at = self.random_time();
        // If tokens come from a counter and a fail-over loses the counter, the same tokens are created again. So only
        // engines whose tokens do not come from a counter get a fail-over.
        let most = if protocol == Protocol::Push { 5 } else { 2 };
        match self.among(0, most) {
            0 => {
                faults.push(Fault::Step { at, by: self.fraction(self.lease, 1, 300).as_nanos() as i64 });
                if protocol != Protocol::Push && self.rng.percent(70) {
                    // With this delay, an answer that was sent before the clock step arrives after the message that
                    // reveals the step, but early enough that its client still waits for the answer.
                    let late = self.fraction(self.lease, 4, 14);
                    faults.push(Fault::Lag { at: at.saturating_sub(late), length: late * 2, late });
                }
            }
            1 => {
                let client = self.random_client();
                clients[client].fast = -(self.among(20_000, 200_000) as i64);
            }
            2 => {
                let mut ops = clients.iter_mut().flat_map(|client| client.tasks.iter_mut().flatten());
                let forced = ops.find(|op| op.breaks.is_some());
                forced.into_iter().for_each(|op| op.breaks = Some(Breaking::Forced));
            }
            _ => {
                let (loses, length) = (self.fraction(self.lease, 0, 150), self.fraction(self.lease, 1, 50));
                let skew = match self.among(0, 3) {
                    0 => -(self.fraction(self.lease, 0, 100).as_nanos() as i64),
                    1 => self.fraction(self.lease, 0, 100).as_nanos() as i64,
                    _ => 0,
                };
                faults.push(Fault::Failover { at, length, loses, skew });
            }
        }
    }
}
