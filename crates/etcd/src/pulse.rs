//! How a member is: it says so itself, but from some release on only to users with every right. A read by the others shows that
//! it has a leader.

use tonic::{Code, Status};

use crate::{
    config::Config,
    wire::{Grpc, Range, Status as AskStatus, StatusResponse},
};

/// What a member is asked.
#[derive(Clone)]
pub(crate) enum Pulse {
    Status,
    Read(Range),
}

/// What a member is to its clients.
pub(crate) struct Member {
    pub(crate) cluster: u64,
    /// Empty: the user may not know.
    pub(crate) version: String,
    pub(crate) is_learner: bool,
    pub(crate) has_leader: bool,
    /// What this user may ask it from now on.
    pub(crate) pulse: Pulse,
}

impl Member {
    /// Asks for the status or, where the user may not, for a key of ours.
    pub(crate) async fn ask(grpc: &Grpc, config: &Config) -> Result<Self, Status> {
        match grpc.call(AskStatus {}).await {
            Err(denied) if denied.code() == Code::PermissionDenied => {
                let key = format!("{}/", config.prefix).into_bytes();
                let read = Range { key, limit: 1, keys_only: true, ..Range::default() };
                let said = grpc.call(read.clone()).await?;
                let cluster = said.header.map_or(0, |header| header.cluster_id);
                // It was read as the cluster agrees on it, so that there is a leader; a learner does not serve that.
                let (is_learner, has_leader) = (false, true);
                Ok(Self { cluster, version: String::new(), is_learner, has_leader, pulse: Pulse::Read(read) })
            }
            said => said.map(Self::of),
        }
    }

    fn of(said: StatusResponse) -> Self {
        Self {
            cluster: said.header.map_or(0, |header| header.cluster_id),
            version: said.version,
            is_learner: said.is_learner,
            has_leader: said.leader != 0,
            pulse: Pulse::Status,
        }
    }
}

impl Pulse {
    /// Asks it once.
    pub(crate) async fn feel(&self, grpc: &Grpc) -> Result<(), Status> {
        match self {
            Self::Status => grpc.call(AskStatus {}).await.map(drop),
            Self::Read(read) => grpc.call(read.clone()).await.map(drop),
        }
    }
}
