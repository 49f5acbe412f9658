//! An engine of one or more servers of the round's own, and for each client a proxy before each of them.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Locks};
use leasehold_testkit::{history::Event, server::Proxy};

use crate::{
    Failure,
    proxied::Proxied,
    workers::Workers,
    world::{Fault, Promise, Setting, World, block_on},
};

/// How many client processes a round has.
const CLIENTS: usize = 4;

/// The servers.
pub trait System: Sized + 'static {
    /// What its URLs begin with.
    const SCHEME: &'static str;
    /// For how long a client is stopped, or nothing comes through to it, at most, in milliseconds: longer than its leases.
    const STOPPED: u64;
    /// For how long what one side says is held at most, likewise.
    const HELD: u64;

    /// What may happen to it where exclusion is promised, and where it is not.
    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>];

    /// Starts it, as what is promised needs it; chance of its own comes from the seed.
    fn start(seed: u64, promise: Promise) -> Self;

    /// Where they listen.
    fn ports(&self) -> Vec<u16>;

    /// What leads to them.
    fn url(servers: &str) -> String {
        format!("{}://{servers}", Self::SCHEME)
    }

    /// What leads to its servers, where these ports stand for its own, in their order.
    fn url_of(&self, ports: &[u16]) -> String {
        let servers: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Self::url(&servers.join(","))
    }

    /// Whether the engine may say this of it.
    fn accepts_guarantee(&self, guarantee: &Guarantee, promise: Promise) -> bool;

    /// What of claims is on them, and how much of it.
    fn leftovers(&self) -> BTreeMap<String, u64>;
}

/// Servers and their clients.
pub struct Served<S> {
    pub(crate) system: S,
    /// For each client one before each member.
    proxies: Vec<Vec<Proxy>>,
    workers: Workers,
    admin: leasehold::Locks,
    promise: Promise,
}

impl<S: System> Served<S> {
    /// Starts the servers and the clients, which are processes.
    ///
    /// # Errors
    /// The operating system's; and when the engine says another level than the configuration deserves.
    pub fn start(setting: &Setting, promise: Promise) -> Result<Self, Failure> {
        Self::start_as(setting, promise, "client")
    }

    /// The same with clients of this role.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_as(setting: &Setting, promise: Promise, role: &str) -> Result<Self, Failure> {
        let system = S::start(setting.seed, promise);
        let admin = leasehold::Locks::connect(&system.url_of(&system.ports()))?;
        let guarantee = block_on(admin.guarantee())?;
        if !system.accepts_guarantee(&guarantee, promise) {
            return Err(format!("the engine says {guarantee:?} where {promise:?} is judged").into());
        }
        let proxies_of_client = |_| system.ports().into_iter().map(Proxy::start).collect();
        let proxies: Vec<Vec<Proxy>> = (0..CLIENTS).map(proxies_of_client).collect();
        let to = |proxies: &Vec<Proxy>| system.url_of(&proxies.iter().map(Proxy::port).collect::<Vec<_>>());
        let workers = Workers::start(setting, role, proxies.iter().map(to).collect())?;
        Ok(Self { system, proxies, workers, admin, promise })
    }
}

impl<S: System> Proxied for Served<S> {
    const STOPPED: u64 = S::STOPPED;
    const HELD: u64 = S::HELD;

    fn workers(&mut self) -> &mut Workers {
        &mut self.workers
    }

    fn each(&self, at: usize, act: fn(&Proxy)) {
        self.proxies[at].iter().for_each(act);
    }
}

impl<S: System> World for Served<S> {
    const CLIENT_FAULTS: &'static [Fault<Self>] = Self::FAULTS;

    fn clients(&self) -> usize {
        CLIENTS
    }

    fn server_faults(&self) -> &'static [Fault<Self>] {
        S::faults(self.promise)
    }

    fn admin(&self) -> Locks {
        Locks::clone(&self.admin)
    }

    fn finish(&mut self) -> Result<Vec<Event>, Failure> {
        self.workers.join()
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        self.system.leftovers()
    }

    fn promise(&self) -> Promise {
        self.promise
    }
}
