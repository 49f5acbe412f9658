//! The clusters of three servers of etcd and of ZooKeeper, under faults of one server at a time.

use leasehold_testkit::server::{Cluster, ClusterNode};

use crate::{
    rng::Rng,
    served::{Served, System},
    world::Fault,
};

/// A cluster, and the server that is under a fault.
pub struct Struck<C> {
    pub(crate) servers: C,
    /// The index of the server under a fault.
    struck: usize,
    rng: Rng,
}

impl<N: ClusterNode + 'static> Struck<Cluster<N>> {
    pub(crate) const fn new(servers: Cluster<N>, rng: Rng) -> Self {
        Self { servers, struck: 0, rng }
    }

    fn strike_leader(&mut self, act: fn(&mut Cluster<N>, usize)) {
        self.struck = self.servers.leader();
        act(&mut self.servers, self.struck);
    }

    fn strike_any(&mut self, act: fn(&mut Cluster<N>, usize)) {
        self.struck = self.rng.below(self.servers.ports().len() as u64) as usize;
        act(&mut self.servers, self.struck);
    }

    fn end(&mut self, act: fn(&mut Cluster<N>, usize)) {
        act(&mut self.servers, self.struck);
    }
}

/// The faults of one server. Times are in milliseconds.
impl<N: ClusterNode + 'static> Struck<Cluster<N>>
where
    Self: System,
{
    pub(crate) const LEADER_KILLED: Fault<Served<Self>> = Fault {
        name: "leader killed",
        lasts: 5..2500,
        begin: |w, _| w.system.strike_leader(Cluster::kill),
        end: |w, _| w.system.end(Cluster::restart),
    };

    pub(crate) const LEADER_STOPS: Fault<Served<Self>> = Fault {
        name: "leader stops",
        lasts: 100..4500,
        begin: |w, _| w.system.strike_leader(Cluster::pause),
        end: |w, _| w.system.end(Cluster::resume),
    };

    pub(crate) const fn leader_cut_off(longest: u64) -> Fault<Served<Self>> {
        Fault {
            name: "leader cut off",
            lasts: 100..longest,
            begin: |w, _| w.system.strike_leader(Cluster::cut),
            end: |w, _| w.system.end(Cluster::heal),
        }
    }

    pub(crate) const fn any_cut_off(name: &'static str, longest: u64) -> Fault<Served<Self>> {
        Fault {
            name,
            lasts: 100..longest,
            begin: |w, _| w.system.strike_any(Cluster::cut),
            end: |w, _| w.system.end(Cluster::heal),
        }
    }

    pub(crate) const fn any_stops(name: &'static str) -> Fault<Served<Self>> {
        Fault {
            name,
            lasts: 100..4500,
            begin: |w, _| w.system.strike_any(Cluster::pause),
            end: |w, _| w.system.end(Cluster::resume),
        }
    }
}
