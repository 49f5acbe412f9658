//! The guarantee of locks of a session on a PostgreSQL server, as it is configured.

use leasehold_core::{Guarantee, Level};

use super::pinned::PinnedSession;
use crate::{
    database::Failed,
    postgres::{
        error::{Stage, classify},
        rows::column,
    },
    session::guarantee::judge_delay,
};

/// Counts the replicas that could be promoted. A base backup and a logical subscriber receive the same stream as a
/// replica, and cannot be promoted.
const REPLICAS: &str = "SELECT count(*) FROM pg_stat_replication AS sent \
    WHERE sent.state IS DISTINCT FROM 'backup' AND NOT EXISTS (SELECT FROM pg_replication_slots AS slot \
    WHERE slot.active_pid = sent.pid AND slot.slot_type = 'logical')";
/// What an operator's end of a session means.
const END_NOTE: &str = "an operator who ends a session alone (pg_terminate_backend) frees its names at once: its holder is told over its connection, and until then, for at most 15s, two processes may rely on one hold";
/// What the server does not know.
const MODE_NOTE: &str = "the server stores only locks: a claim with another limit of permits is not refused if another process holds the name, and the larger limit counts; a waiting writer does not stop readers of other processes";
/// What the tokens depend on.
const TOKEN_NOTE: &str =
    "tokens are transaction ids: each grant uses one, and a restart of the server begins a new lineage";

/// Judges the guarantee.
pub(super) async fn guarantee(session: &PinnedSession) -> Result<Guarantee, Failed> {
    let row = session.client.query_typed_one(REPLICAS, &[]).await;
    let row = row.map_err(|error| classify(&error, Stage::BeforeCommit))?;
    let replicas: i64 = column(&row, 0)?;
    let mut guarantee = Guarantee::new(Level::LeaseBounded, &[END_NOTE, MODE_NOTE, TOKEN_NOTE]);
    judge_delay(session.delay, &mut guarantee);
    if !session.has_timeouts {
        guarantee.lower(
            "tcp_user_timeout or tcp_keepalives_idle",
            "another value than that of the session",
            "30s and 15s, which the system of the server may not support",
            "the server may end a session whose network is slow before the holds of the session lapse",
        );
    }
    session.path.judge("a pooler, proxy or NAT", &mut guarantee);
    if replicas > 0 {
        guarantee.lower(
            "the number of replicas",
            &replicas.to_string(),
            "0",
            "locks of sessions are not replicated: a replica that is promoted grants names that are held",
        );
    }
    Ok(guarantee)
}
