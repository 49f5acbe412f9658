//! The health of a member. Some newer releases of etcd report their status to administrators only (3.5.30 and 3.7.3
//! do). For other users, a linearizable read of one key shows that the member has a leader.

use tonic::{Code, Status};

use crate::{
    config::Config,
    keys::probe_key,
    wire::{Grpc, Range, Status as StatusRequest, StatusResponse},
};

/// The request that shows whether a member is healthy.
#[derive(Clone)]
pub(crate) enum HealthCheck {
    Status,
    Read(Range),
}

/// What a member reports about itself to a new connection.
pub(crate) struct MemberInfo {
    /// The id of its cluster.
    pub(crate) cluster: u64,
    /// The version of the server; empty if this user has no right to ask for it.
    pub(crate) version: String,
    /// The member is a learner: it does not vote, and serves no clients yet.
    pub(crate) is_learner: bool,
    pub(crate) has_leader: bool,
    /// The health check that this user may send.
    pub(crate) health: HealthCheck,
}

impl MemberInfo {
    /// Asks for the status of the member. If this user has no right to do so, reads one key instead.
    pub(crate) async fn ask(grpc: &Grpc, config: &Config) -> Result<Self, Status> {
        match grpc.call(StatusRequest {}).await {
            Err(denied) if denied.code() == Code::PermissionDenied => {
                let key_read = Range::key(&probe_key(config)).keys_only();
                let reply = grpc.call(key_read.clone()).await?;
                let cluster = reply.header.map_or(0, |header| header.cluster_id);
                // A linearizable read needs a leader, and a learner refuses it.
                let (is_learner, has_leader) = (false, true);
                Ok(Self {
                    cluster,
                    version: String::new(),
                    is_learner,
                    has_leader,
                    health: HealthCheck::Read(key_read),
                })
            }
            reply => reply.map(Self::from_status),
        }
    }

    /// What a status reports about the member.
    fn from_status(reply: StatusResponse) -> Self {
        Self {
            cluster: reply.header.map_or(0, |header| header.cluster_id),
            version: reply.version,
            is_learner: reply.is_learner,
            has_leader: reply.leader != 0,
            health: HealthCheck::Status,
        }
    }
}

impl HealthCheck {
    /// Sends the request once.
    pub(crate) async fn send(&self, grpc: &Grpc) -> Result<(), Status> {
        match self {
            Self::Status => grpc.call(StatusRequest {}).await.map(drop),
            Self::Read(read) => grpc.call(read.clone()).await.map(drop),
        }
    }
}
