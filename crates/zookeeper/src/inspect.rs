//! The requests of operators: show and list names, break a hold, state the guarantee.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{Broken, EngineError, Fault, Name, View};

use crate::{
    ZookeeperEngine,
    claim::children,
    client::Client,
    conn::Conn,
    error::Failed,
    guarantee,
    keys::{self, Dir, PERMITS, PERMITS_QUEUE},
    record::{MAX_DATA_BYTES, Record, limit},
    sessions::SessionSlot,
    view::{DirContents, StoredNode},
    wire::{Code, Data, Delete, Exists, MultiOp, SetData, Sync},
};

/// The session timeout of an operator's request.
const VISIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Shown in place of the data of a node that this login may not read.
const HIDDEN: &[u8] = b"not readable with this login";
/// The number of names that are read at the same time.
const BATCH: usize = 64;

/// The session and connection of an operator's request.
struct Visit {
    slot: SessionSlot,
    conn: Arc<Conn>,
}

impl Client {
    async fn visit(&self) -> Result<Visit, EngineError> {
        let slot = self.slot(VISIT_TIMEOUT, 0)?;
        let conn = slot.session().conn().await?;
        // The server may lag behind its leader.
        conn.send(&Sync { path: &self.base() }).answer().await?;
        Ok(Visit { slot, conn })
    }

    /// Ends the request. Closes the session if nothing else uses it.
    async fn end_visit(&self, visit: Visit) {
        let session = Arc::clone(visit.slot.session());
        if session.facts.close_after_last() {
            self.sessions.forget(&session);
            // If the request is lost, the session times out.
            let _ = session.close().await;
        }
    }

    /// Reads the prefix, which every login that locks may read: a wrong password shows in no other way.
    async fn ping(&self) -> Result<(), EngineError> {
        let visit = self.visit().await?;
        let read = visit.conn.send(&Data { path: &self.base(), watch: false }).answer().await;
        self.end_visit(visit).await;
        match read {
            // The first claim creates the prefix.
            Err(failed) if failed.is(Code::NO_NODE) => Ok(()),
            read => Ok(read.map(drop)?),
        }
    }

    async fn show(&self, name: &Name) -> Result<View, EngineError> {
        let visit = self.visit().await?;
        let dir = self.dir(name);
        let contents = self.look(&visit, &dir).await;
        self.end_visit(visit).await;
        Ok(contents?.view(name.clone(), &dir))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let visit = self.visit().await?;
        let views = self.look_at_all(&visit, prefix).await;
        self.end_visit(visit).await;
        Ok(views?)
    }

    async fn look_at_all(&self, visit: &Visit, prefix: &str) -> Result<Vec<View>, Failed> {
        let directories = children(&visit.conn, &self.base()).await?;
        let mut names: Vec<Name> =
            directories.iter().filter_map(|directory| keys::name_of(directory)).collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort();
        let mut views = Vec::new();
        for names in names.chunks(BATCH) {
            let looks = names.iter().map(|name| async move {
                let dir = self.dir(name);
                match self.look(visit, &dir).await {
                    Ok(contents) => Ok(contents.view(name.clone(), &dir)),
                    // The directory is not readable with this login. All other names are shown.
                    Err(failed) if failed.is(Code::NO_AUTH) => {
                        Ok(View::unreadable(name.clone(), dir.shown(), &failed.into()))
                    }
                    Err(failed) => Err(failed),
                }
            });
            for view in join_all(looks).await {
                views.push(view?);
            }
        }
        // Directories exist for a while after their last claim.
        views.retain(|view| !(view.holders.is_empty() && view.waiters.is_empty() && view.problem.is_none()));
        Ok(views)
    }

    /// Reads the directory of a name.
    async fn look(&self, visit: &Visit, dir: &Dir) -> Result<DirContents, Failed> {
        let conn = &visit.conn;
        let entries = children(conn, dir.path()).await?;
        let mut contents = DirContents::default();
        if !entries.is_empty() {
            contents.lineage = Some(self.known_lineage(visit.slot.session(), conn).await?);
        }
        let nodes = keys::queue_nodes(&entries);
        let seen = join_all(nodes.iter().map(|node| read_node(conn, dir.path(), &node.name))).await;
        for (node, seen) in nodes.into_iter().zip(seen) {
            contents.locks.extend(seen?.map(|seen| (node, seen)));
        }
        if entries.iter().any(|name| name == PERMITS_QUEUE) {
            let path = dir.permits_queue();
            let nodes = keys::queue_nodes(&children(conn, &path).await?);
            for seen in join_all(nodes.iter().map(|node| read_node(conn, &path, &node.name))).await {
                contents.queue.extend(seen?);
            }
        }
        if entries.iter().any(|name| name == PERMITS) {
            let path = dir.permits();
            let mut permits = children(conn, &path).await?;
            // Each node counts, whichever program created it. The holder watches the first node of its claim.
            permits.sort();
            for seen in join_all(permits.iter().map(|name| read_node(conn, &path, name))).await {
                contents.permits.extend(seen?);
            }
            contents.limit = read_node(conn, dir.path(), PERMITS).await?.and_then(|seen| limit(&seen.data));
        }
        Ok(contents)
    }

    async fn break_hold(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        let visit = self.visit().await?;
        let broken = self.break_on(&visit, name, token, force).await;
        self.end_visit(visit).await;
        broken
    }

    async fn break_on(
        &self,
        visit: &Visit,
        name: &Name,
        token: u64,
        force: bool,
    ) -> Result<Broken, EngineError> {
        let contents = self.look(visit, &self.dir(name)).await?;
        let held = contents.held();
        let of_token = |seen: &StoredNode| seen.token() == Some(token);
        let Some(held) = held.iter().find(|held| held.nodes.first().is_some_and(|seen| of_token(seen)))
        else {
            return Ok(Broken::NotHeld);
        };
        let steps = if force {
            let delete =
                |seen: &&StoredNode| MultiOp::Delete(Delete { path: seen.path.clone(), version: -1 });
            held.nodes.iter().map(delete).collect()
        } else {
            // The holder watches the first node.
            let Some(first) = held.nodes.first() else { return Ok(Broken::NotHeld) };
            if first.is_broken() {
                return Ok(Broken::Done);
            }
            let Some(record) = first.record() else {
                let why = "another program holds it, which does not listen: break it with --force";
                return Err(EngineError::new(Fault::Denied, why));
            };
            let data = Record { broken: true, ..record }.text();
            vec![MultiOp::SetData(SetData { path: first.path.clone(), data, version: first.stat.version })]
        };
        match self.change(visit.slot.session(), &visit.conn, steps).await? {
            Ok(_) => Ok(Broken::Done),
            Err((_, Code::NO_NODE | Code::BAD_VERSION)) => Ok(Broken::NotHeld),
            Err((_, code)) => Err(Failed::Refused(code).into()),
        }
    }
}

/// A node with its data, unless that is too long for a record or an owner. `None` if the node is gone.
async fn read_node(conn: &Conn, directory: &str, name: &str) -> Result<Option<StoredNode>, Failed> {
    let path = format!("{directory}/{name}");
    let read = async {
        let stat = conn.send(&Exists { path: &path }).answer().await?;
        if stat.length > MAX_DATA_BYTES {
            return Ok((Vec::new(), stat));
        }
        match conn.send(&Data { path: &path, watch: false }).answer().await {
            // Without the right to read, a client may still learn that the node exists.
            Err(failed) if failed.is(Code::NO_AUTH) => Ok((HIDDEN.to_vec(), stat)),
            read => read,
        }
    };
    match read.await {
        Ok((data, stat)) => Ok(Some(StoredNode { path, data, stat })),
        Err(failed) if failed.is(Code::NO_NODE) => Ok(None),
        Err(failed) => Err(failed),
    }
}

leasehold_core::forward_inspect!(ZookeeperEngine, guarantee::look);
