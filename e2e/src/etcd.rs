//! etcd: a server of the round's own, or a cluster of three, and for each client a proxy before each member.

mod alone;
mod cluster;

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Locks};
use leasehold_testkit::{
    history::{Event, History},
    server::Proxy,
};

use crate::{
    Failure,
    client::Orders,
    crew::Crew,
    proxied::Proxied,
    world::{Fault, Promise, Setting, World, block_on},
};

pub use alone::Alone;
pub use cluster::{CLUSTER, Three, promise_of};

/// How many client processes a round has.
const CLIENTS: usize = 4;

/// Servers that make one etcd.
pub trait System: Sized + 'static {
    /// What may happen to it where exclusion is promised, and where it is not.
    fn faults(promise: Promise) -> &'static [Fault<Etcd<Self>>];

    /// Starts it; chance of its own comes from the seed.
    fn start(seed: u64) -> Self;

    /// Where its members listen.
    fn ports(&self) -> Vec<u16>;

    /// Whether the engine may say this of it.
    fn deserves(&self, said: &Guarantee, promise: Promise) -> bool;

    /// Runs `etcdctl`, and answers what it said, line by line.
    fn command(&self, arguments: &[&str]) -> Vec<String>;
}

/// An etcd and its clients.
pub struct Etcd<S> {
    system: S,
    /// For each client one before each member.
    proxies: Vec<Vec<Proxy>>,
    crew: Crew,
    admin: leasehold::Locks,
    promise: Promise,
}

impl<S: System> Etcd<S> {
    /// Starts the servers and the clients, which are processes.
    ///
    /// # Errors
    /// The operating system's; and when the engine says another level than the configuration deserves.
    pub fn start(setting: &Setting, promise: Promise) -> Result<Self, Failure> {
        let system = S::start(setting.seed);
        let admin = leasehold::Locks::connect(&url(system.ports()))?;
        let said = block_on(admin.guarantee())?;
        if !system.deserves(&said, promise) {
            return Err(format!("the engine says {said:?} where {promise:?} is judged").into());
        }
        let before_all = |_| system.ports().into_iter().map(Proxy::start).collect();
        let proxies: Vec<Vec<Proxy>> = (0..CLIENTS).map(before_all).collect();
        let orders = proxies.iter().zip(0..).map(|(proxies, at)| Orders {
            role: "client".to_owned(),
            url: url(proxies.iter().map(Proxy::port).collect()),
            run: setting.seed,
            seed: setting.seed.wrapping_mul(1_000_003).wrapping_add(at),
            until: setting.until,
            history: setting.dir.join(format!("client-{at}")),
            shelf: setting.dir.clone(),
        });
        let crew = Crew::start(&setting.program, setting.recorder.clone(), orders.collect())?;
        Ok(Self { system, proxies, crew, admin, promise })
    }
}

fn url(ports: Vec<u16>) -> String {
    let members: Vec<String> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("etcd://{}", members.join(","))
}

impl<S: System> Proxied for Etcd<S> {
    const STOPPED: u64 = 3500;
    const HELD: u64 = 2500;

    fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    fn each(&self, at: usize, act: fn(&Proxy)) {
        self.proxies[at].iter().for_each(act);
    }
}

impl<S: System> World for Etcd<S> {
    const OF_CLIENTS: &'static [Fault<Self>] = Self::FAULTS;

    fn clients(&self) -> usize {
        CLIENTS
    }

    fn of_server(&self) -> &'static [Fault<Self>] {
        S::faults(self.promise)
    }

    fn admin(&self) -> Locks {
        Locks::clone(&self.admin)
    }

    fn finish(&mut self) -> Result<Vec<Event>, Failure> {
        self.crew.join()?;
        Ok(History::merge(self.crew.histories())?.events().to_vec())
    }

    fn things(&self) -> BTreeMap<String, u64> {
        // What belongs to a lease ends with it, and the leases of whoever is gone end by themselves.
        let keys = self.system.command(&["get", "", "--prefix", "--keys-only"]);
        let keys = keys.into_iter().filter(|key| !key.is_empty());
        let mut things: BTreeMap<String, u64> = keys.map(|key| (format!("key {key}"), 1)).collect();
        // The first line tells how many there are.
        let leases = self.system.command(&["lease", "list"]).len().saturating_sub(1);
        things.insert("leases".to_owned(), leases as u64);
        things
    }

    fn promise(&self) -> Promise {
        self.promise
    }
}
