//! One run: builds a world from a plan, runs it to its end, and judges it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Env, Event, Keeper, Locks, Observe};
use leasehold_testkit::history::{Phase, What};
use tokio::sync::Notify;

use crate::{
    client::{ClientClock, ClientRng, Host, SimEngine},
    journal::{Actor, Journal},
    nemesis,
    network::Network,
    plan::Plan,
    resource::Resources,
    rng::Rng,
    scheduler::{Group, Scheduler},
    tally::Tally,
    truth::Truths,
    user::User,
    verdict::{self, Complaint},
};

/// The longest time of a run. A wait that has lasted this long never ends.
const HORIZON: Duration = Duration::from_secs(3600);
/// How long after the last operation everything that lapses has lapsed. Queue entries last a minute.
const REST: Duration = Duration::from_secs(150);
/// How long a client tries to reach its engine for the first time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The figures of the run.
    pub tally: Tally,
    /// The violations. Empty if there are none.
    pub complaints: Vec<Complaint>,
    /// A hash of all events. It is equal for runs with the same events in the same order.
    pub digest: u64,
    /// The events, if the run was traced.
    pub trace: Vec<String>,
}

/// A world: the server, the network, the clients and their resources on one scheduler.
pub(crate) struct World {
    pub(crate) plan: Arc<Plan>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) network: Arc<Network>,
    pub(crate) truths: Arc<Truths>,
    /// The groups of the clients, numbered as in the plan.
    pub(crate) groups: Vec<Group>,
    resources: Arc<Resources>,
    /// The number of unfinished tasks of each client.
    left: Vec<AtomicUsize>,
}

/// Runs a plan. If `traced`, the outcome has the events as text.
#[must_use]
pub fn run(plan: &Plan, traced: bool) -> Outcome {
    let world = World::new(plan, traced);
    let ran = catch_unwind(AssertUnwindSafe(|| world.live()));
    let mut complaints = Vec::new();
    if let Err(panic) = ran {
        complaints.push(Complaint::panic(&*panic));
    }
    let _ = catch_unwind(AssertUnwindSafe(|| world.scheduler.end()));
    world.judge(complaints)
}

impl World {
    fn new(plan: &Plan, traced: bool) -> Arc<Self> {
        let scheduler = Scheduler::new(plan.seed, traced, plan.clients.len());
        let groups: Vec<Group> = scheduler.groups().collect();
        let journal = Arc::new(Journal::new(Arc::clone(&scheduler), plan.seed));
        let network = Network::new(plan, &groups, Arc::clone(&journal));
        let plan = Arc::new(plan.clone());
        Arc::new(Self {
            truths: Arc::new(Truths::new(Arc::clone(&journal), Arc::clone(&network), Arc::clone(&plan))),
            resources: Arc::new(Resources::new(Arc::clone(&scheduler), plan.seed, plan.delay)),
            left: plan.clients.iter().map(|client| AtomicUsize::new(client.tasks.len())).collect(),
            plan,
            scheduler,
            journal,
            network,
            groups,
        })
    }

    /// Runs the world until no event can happen any more, or until [`HORIZON`]. Probes it at the begin and at the end.
    fn live(self: &Arc<Self>) {
        self.probe(Phase::Start, 0, 0);
        for client in 0..self.plan.clients.len() {
            let world = Arc::clone(self);
            let starts = Scheduler::instant(self.plan.clients[client].starts);
            self.scheduler.at(starts, move || world.start(client));
        }
        for fault in &self.plan.faults {
            nemesis::schedule_fault(self, fault);
        }
        self.look_again();
        self.scheduler.run(Scheduler::instant(HORIZON));
        let alive = self.groups.iter().filter(|group| self.scheduler.is_alive(**group));
        let tasks = alive.map(|group| self.scheduler.tasks(*group)).sum();
        let rest = self.scheduler.now().after(REST);
        let names = self.network.server(|machine| machine.in_use(rest));
        self.probe(Phase::Rest, names, tasks);
    }

    /// Whether no client that is alive has operations left.
    pub(crate) fn is_over(&self) -> bool {
        let left = |(group, left): (&Group, &AtomicUsize)| {
            self.scheduler.is_alive(*group) && left.load(Ordering::Relaxed) > 0
        };
        !self.groups.iter().zip(&self.left).any(left)
    }

    /// Starts a client process.
    fn start(self: &Arc<Self>, client: usize) {
        let (group, plan) = (self.groups[client], &self.plan.clients[client]);
        let boot = Duration::from_secs(Rng::of(&[self.plan.seed, client as u64]).among(0..=1_000_000));
        let clock = Arc::new(ClientClock::new(Arc::clone(&self.journal), group, boot, plan.fast));
        let host = Host::new(Arc::clone(&self.scheduler), group, Arc::clone(&clock));
        let engine = SimEngine::new(&self.plan, &host, &self.network);
        let renewed = Arc::new(Notify::new());
        let locks = Locks::builder(Arc::new(engine))
            .env(Env { clock, entropy: Arc::new(ClientRng::new(self.plan.seed, group)) })
            .keeper(Keeper::with(Arc::new(host.clone())))
            .observe(Arc::new(Observer {
                host: host.clone(),
                journal: Arc::clone(&self.journal),
                renewed: Arc::clone(&renewed),
            }))
            .owner("somebody")
            .connect_timeout(CONNECT_TIMEOUT)
            .build();
        for (task, ops) in plan.tasks.iter().enumerate() {
            let user = User {
                plan: Arc::clone(&self.plan),
                actor: Actor { process: group, task: task as u32 },
                host: host.clone(),
                locks: locks.clone(),
                journal: Arc::clone(&self.journal),
                resources: Arc::clone(&self.resources),
                truths: Arc::clone(&self.truths),
                renewed: Arc::clone(&renewed),
            };
            let (world, ops) = (Arc::clone(self), ops.clone());
            host.run(async move {
                user.work(ops).await;
                world.left[client].fetch_sub(1, Ordering::Relaxed);
                let passed = world.scheduler.passed();
                world.journal.figures(|tally| tally.simulated = passed);
            });
        }
    }

    /// Observes the server's state at intervals, as long as any client works.
    fn look_again(self: &Arc<Self>) {
        let (world, next) = (Arc::clone(self), self.scheduler.now().after(self.plan.truth_interval));
        self.scheduler.at(next, move || {
            if !world.is_over() {
                world.truths.observe();
                world.look_again();
            }
        });
    }

    fn probe(&self, phase: Phase, names: usize, tasks: usize) {
        let found = [("names in use".to_owned(), names as u64), ("tasks".to_owned(), tasks as u64)];
        self.journal.note("", What::Probe { phase, found: found.into() });
    }

    fn judge(&self, mut complaints: Vec<Complaint>) -> Outcome {
        if complaints.is_empty() && !self.is_over() {
            complaints.push(Complaint::stuck(&self.left));
        }
        let mut record = self.journal.take();
        complaints.append(&mut record.complaints);
        let tally = &mut record.tally;
        (tally.fenced, tally.unfenced) = self.resources.updates();
        tally.runs = 1;
        tally.beyond = u64::from(!self.plan.promise().exclusion);
        if complaints.is_empty() {
            verdict::judge(&self.plan, &mut record, &mut complaints);
        }
        record.tally.violated = u64::from(!complaints.is_empty());
        let (digest, trace) = self.scheduler.digest_and_trace();
        // The digests of all runs are added up, and a sum does not depend on the order. So each digest is combined with
        // its seed first.
        record.tally.digest = Rng::of(&[self.plan.seed, digest]).next();
        Outcome { tally: record.tally, complaints, digest, trace }
    }
}

/// Counts the events that core reports, and makes users check their holds after a renewal.
struct Observer {
    host: Host,
    journal: Arc<Journal>,
    renewed: Arc<Notify>,
}

impl Observe for Observer {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Granted { waited, local, .. } => {
                let waited = self.host.in_world(*waited);
                self.journal.figures(|tally| {
                    tally.grants += 1;
                    tally.local += u64::from(*local);
                    tally.longest_wait = tally.longest_wait.max(waited);
                });
            }
            Event::Lost { .. } => self.journal.figures(|tally| tally.losses += 1),
            Event::Renewed { .. } => self.renewed.notify_waiters(),
            _ => {}
        }
    }
}
