//! Reads what one member reports about itself. What this user may not read is left out, and recorded.

use std::time::Duration;

use leasehold_core::{Endpoint, EngineError, Fault};
use tonic::Status as Error;

use super::metrics::{self, Metrics};
use crate::{
    config::Config,
    conn::Conn,
    error::{classify, wants_user},
    wire::{Grpc, Member, Members, Range, Status, StatusResponse, UnaryRequest},
};

/// What one member reports about itself.
pub(super) struct MemberReport {
    /// The connection, for further requests.
    pub(super) grpc: Option<Grpc>,
    /// `None` if this user may not ask.
    pub(super) status: Option<StatusResponse>,
    /// The members of the cluster; `None` if this user may not ask.
    pub(super) members: Option<Vec<Member>>,
    /// `None` if the member shows no metrics at the address of the URL.
    pub(super) metrics: Option<Metrics>,
    /// Whether the member has authentication turned on and the URL has no user.
    pub(super) wants_user: bool,
    /// The moment after which the certificate of the member is no longer valid, since 1970.
    pub(super) certificate_end: Option<Duration>,
}

impl MemberReport {
    /// Asks the member.
    ///
    /// # Errors
    /// The member does not answer, or has no leader. A request without the right to it is no error.
    pub(super) async fn read(config: &Config, member: &Endpoint) -> Result<Self, EngineError> {
        let (grpc, certificate_end) = Conn::dial(config, member).await?;
        Conn::log_in(&grpc, config, member).await?;
        let (status, members) = (grpc.call(Status {}).await, grpc.call(Members {}).await);
        let mut wants_a_user =
            [status.as_ref().err(), members.as_ref().err()].into_iter().flatten().any(wants_user);
        if config.login.is_none() && !wants_a_user {
            // The requests above need no user on some releases; a read of a key does.
            let read = grpc.call(Range { key: b"leasehold".to_vec(), limit: 1, ..Range::default() }).await;
            wants_a_user = read.is_err_and(|error| wants_user(&error));
        }
        let (status, members) = (allowed(status)?, allowed(members)?.map(|reply| reply.members));
        let metrics = metrics::read(config, member).await;
        Ok(Self { grpc: Some(grpc), status, members, metrics, wants_user: wants_a_user, certificate_end })
    }

    /// Sends a further request. `None`: the member refuses it, or does not answer.
    pub(super) async fn ask<R: UnaryRequest>(&self, request: R) -> Option<R::Answer> {
        self.grpc.as_ref()?.call(request).await.ok()
    }

    /// The id of this member.
    pub(super) fn id(&self) -> Option<u64> {
        self.status.as_ref()?.header.as_ref().map(|header| header.member_id)
    }
}

/// The answer; `None` if this user has no right to the request.
fn allowed<T>(answer: Result<T, Error>) -> Result<Option<T>, EngineError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => match classify(&error) {
            refused if refused.fault == Fault::Denied => Ok(None),
            failed => Err(failed),
        },
    }
}

#[cfg(test)]
impl MemberReport {
    /// The report of the leader of a cluster of one member, with this change of its status.
    pub(super) fn example(change: impl FnOnce(&mut StatusResponse)) -> Self {
        let header = Some(crate::wire::Header { cluster_id: 1, member_id: 7, revision: 500 });
        let mut status = StatusResponse {
            header,
            version: "3.5.21".to_owned(),
            leader: 7,
            raft_index: 1000,
            raft_applied_index: 1000,
            db_size: 1 << 20,
            db_size_in_use: 1 << 20,
            ..StatusResponse::default()
        };
        change(&mut status);
        let members = Some(vec![Member { id: 7, name: "a".to_owned(), is_learner: false }]);
        Self {
            grpc: None,
            status: Some(status),
            members,
            metrics: None,
            wants_user: false,
            certificate_end: None,
        }
    }
}
