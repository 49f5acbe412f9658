//! An engine with one or more servers. Each client has its own proxy for each server.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Locks};
use leasehold_testkit::{history::Event, server::Proxy};

use crate::{
    Failure,
    proxied::Proxied,
    workers::Workers,
    world::{Fault, Promise, Setting, World, block_on},
};

/// How many client processes each round has.
pub(crate) const CLIENTS: usize = 4;

/// The servers of one engine.
pub trait System: Sized + 'static {
    /// The scheme of the engine's URLs.
    const SCHEME: &'static str;
    /// The longest time in milliseconds for which a client is stopped or its connections are silent: longer than the
    /// client's leases.
    const MAX_STOP: u64;
    /// The longest time in milliseconds for which a proxy holds the messages of one direction.
    const MAX_HOLD_BACK: u64;

    /// The faults of one client in a round with this promise.
    fn client_faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        Served::<Self>::FAULTS
    }

    /// The faults of the servers in a round with this promise.
    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>];

    /// Starts the servers in the configuration that has this promise. `seed` decides the random choices of faults.
    fn start(seed: u64, promise: Promise) -> Self;

    /// The ports of the servers.
    fn ports(&self) -> Vec<u16>;

    /// The URL of these servers, which are given as `host:port,...`.
    fn url(servers: &str) -> String {
        format!("{}://{servers}", Self::SCHEME)
    }

    /// The URL by which a client reaches the servers through these ports. The ports are in the order of
    /// [`ports`](Self::ports).
    fn url_of(&self, ports: &[u16]) -> String {
        let servers: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        Self::url(&servers.join(","))
    }

    /// The URL by which the client with this index reaches the servers through these ports.
    fn url_of_client(&self, _client: usize, ports: &[u16]) -> String {
        self.url_of(ports)
    }

    /// Whether this guarantee is right for the configuration that has this promise. A round fails if the engine reports
    /// another guarantee.
    fn accepts_guarantee(&self, guarantee: &Guarantee, promise: Promise) -> bool;

    /// I6: the records of claims that must not remain after all clients have ended, counted by kind.
    fn leftovers(&self) -> BTreeMap<String, u64>;
}

/// Servers and their clients.
pub struct Served<S> {
    /// The servers.
    pub(crate) system: S,
    /// For each client, a proxy for each server.
    proxies: Vec<Vec<Proxy>>,
    workers: Workers,
    /// An admin client that uses no proxy.
    admin: leasehold::Locks,
    promise: Promise,
}

impl<S: System> Served<S> {
    /// Starts the servers and the client processes.
    ///
    /// # Errors
    /// An error of the operating system; or the engine reports a guarantee that does not fit the configuration.
    pub fn start(setting: &Setting, promise: Promise) -> Result<Self, Failure> {
        Self::start_as(setting, promise, "client")
    }

    /// Starts the servers, and clients of this role.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn start_as(setting: &Setting, promise: Promise, role: &str) -> Result<Self, Failure> {
        let system = S::start(setting.seed, promise);
        let admin = leasehold::Locks::connect(&system.url_of(&system.ports()))?;
        let guarantee = block_on(admin.guarantee())?;
        if !system.accepts_guarantee(&guarantee, promise) {
            return Err(format!("the engine reports {guarantee:?}, which does not fit {promise:?}").into());
        }
        let proxies_of_client = |_| system.ports().into_iter().map(Proxy::start).collect();
        let proxies: Vec<Vec<Proxy>> = (0..CLIENTS).map(proxies_of_client).collect();
        let url_through = |(client, proxies): (usize, &Vec<Proxy>)| {
            system.url_of_client(client, &proxies.iter().map(Proxy::port).collect::<Vec<_>>())
        };
        let urls = proxies.iter().enumerate().map(url_through).collect();
        let workers = Workers::start(setting, role, urls)?;
        Ok(Self { system, proxies, workers, admin, promise })
    }
}

impl<S: System> Proxied for Served<S> {
    const MAX_STOP: u64 = S::MAX_STOP;
    const MAX_HOLD_BACK: u64 = S::MAX_HOLD_BACK;

    fn workers(&mut self) -> &mut Workers {
        &mut self.workers
    }

    fn for_each_proxy(&self, client: usize, act: fn(&Proxy)) {
        self.proxies[client].iter().for_each(act);
    }
}

impl<S: System> World for Served<S> {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn client_faults(&self) -> &'static [Fault<Self>] {
        S::client_faults(self.promise)
    }

    fn server_faults(&self) -> &'static [Fault<Self>] {
        S::faults(self.promise)
    }

    fn admin(&self) -> Locks {
        self.admin.core().clone()
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
