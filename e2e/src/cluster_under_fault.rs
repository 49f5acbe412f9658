//! Clusters of three etcd or ZooKeeper servers. One server at a time is under a fault.

use leasehold_testkit::server::{Cluster, ClusterNode};

use crate::{
    rng::Rng,
    served::{Served, System},
    world::Fault,
};

/// A cluster, and the server that is under a fault.
pub struct ClusterUnderFault<C> {
    pub(crate) servers: C,
    /// The index of the server under a fault.
    target: usize,
    rng: Rng,
}

impl<N: ClusterNode + 'static> ClusterUnderFault<Cluster<N>> {
    pub(crate) const fn new(servers: Cluster<N>, rng: Rng) -> Self {
        Self { servers, target: 0, rng }
    }

    /// Begins a fault of the cluster's leader: `act` applies it.
    fn apply_to_leader(&mut self, act: fn(&mut Cluster<N>, usize)) {
        self.target = self.servers.leader();
        act(&mut self.servers, self.target);
    }

    /// Begins a fault of a random server: `act` applies it.
    fn apply_to_any(&mut self, act: fn(&mut Cluster<N>, usize)) {
        self.target = self.rng.below(self.servers.ports().len() as u64) as usize;
        act(&mut self.servers, self.target);
    }

    /// Ends the fault of the server that is under a fault: `act` ends it.
    fn end(&mut self, act: fn(&mut Cluster<N>, usize)) {
        act(&mut self.servers, self.target);
    }
}

/// The faults of one server. Times are in milliseconds.
impl<N: ClusterNode + 'static> ClusterUnderFault<Cluster<N>>
where
    Self: System,
{
    pub(crate) const LEADER_KILLED: Fault<Served<Self>> = Fault {
        name: "leader killed",
        lasts: 5..2500,
        begin: |w, _| w.system.apply_to_leader(Cluster::kill),
        end: |w, _| w.system.end(Cluster::restart),
    };

    pub(crate) const LEADER_STOPS: Fault<Served<Self>> = Fault {
        name: "leader stops",
        lasts: 100..4500,
        begin: |w, _| w.system.apply_to_leader(Cluster::pause),
        end: |w, _| w.system.end(Cluster::resume),
    };

    pub(crate) const fn leader_cut_off(longest: u64) -> Fault<Served<Self>> {
        Fault {
            name: "leader cut off",
            lasts: 100..longest,
            begin: |w, _| w.system.apply_to_leader(Cluster::cut),
            end: |w, _| w.system.end(Cluster::heal),
        }
    }

    pub(crate) const fn any_cut_off(name: &'static str, longest: u64) -> Fault<Served<Self>> {
        Fault {
            name,
            lasts: 100..longest,
            begin: |w, _| w.system.apply_to_any(Cluster::cut),
            end: |w, _| w.system.end(Cluster::heal),
        }
    }

    pub(crate) const fn any_stops(name: &'static str) -> Fault<Served<Self>> {
        Fault {
            name,
            lasts: 100..4500,
            begin: |w, _| w.system.apply_to_any(Cluster::pause),
            end: |w, _| w.system.end(Cluster::resume),
        }
    }
}
