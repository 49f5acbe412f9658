//! The requests of operators: show and list names, break a hold, state the guarantee.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{Broken, EngineError, Fault, Name, View};

use crate::{
    ZookeeperEngine,
    claim::children,
    client::Client,
    conn::Conn,
    diagnose,
    error::Failed,
    guarantee,
    keys::{self, Dir, PERMITS, PERMITS_QUEUE},
    latch,
    record::{MAX_DATA_BYTES, Record, read_limit},
    sessions::SessionSlot,
    view::{DirContents, StoredNode},
    wire::{ANY_VERSION, Delete, ErrorCode, Exists, GetData, MultiOp, SetData, Sync},
};

/// The session timeout of an operator's request.
pub(crate) const OPERATOR_TIMEOUT: Duration = Duration::from_secs(4);
/// Shown in place of the data of a node that this login has no right to read.
const UNREADABLE_DATA: &[u8] = b"not readable with this login";
/// The number of names that are read at the same time.
const BATCH: usize = 64;

/// The session and connection of an operator's request.
struct OperatorRequest {
    session_slot: SessionSlot,
    conn: Arc<Conn>,
}

impl Client {
    /// Takes a slot on a session, and brings the server of that session up to date.
    async fn start_request(&self) -> Result<OperatorRequest, EngineError> {
        let session_slot = self.take_session_slot(OPERATOR_TIMEOUT, 0)?;
        let conn = session_slot.session().conn().await?;
        // The server may lag behind its leader.
        conn.send(&Sync { path: &self.base_path() }).answer().await?;
        Ok(OperatorRequest { session_slot, conn })
    }

    /// Ends the request. Closes the session if nothing else uses it.
    async fn end_request(&self, request: OperatorRequest) {
        let session = Arc::clone(request.session_slot.session());
        if session.state.close_if_last_slot() {
            self.sessions.forget(&session);
            // If the request is lost, the session times out.
            let _ = session.close().await;
        }
    }

    /// Reads the prefix, which every login that locks has the right to read. Only such a read, not the login itself,
    /// shows that a password is wrong.
    pub(crate) async fn ping(&self) -> Result<(), EngineError> {
        let request = self.start_request().await?;
        let prefix_read =
            request.conn.send(&GetData { path: &self.base_path(), watch: false }).answer().await;
        self.end_request(request).await;
        match prefix_read {
            // The first claim creates the prefix.
            Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(()),
            prefix_read => Ok(prefix_read.map(drop)?),
        }
    }

    async fn show(&self, name: &Name) -> Result<View, EngineError> {
        self.check_name(name)?;
        let request = self.start_request().await?;
        let dir = self.dir(name);
        let contents = self.read_dir(&request, &dir).await;
        self.end_request(request).await;
        Ok(contents?.view(name.clone(), &dir, &self.config))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let request = self.start_request().await?;
        let views = self.read_names(&request, prefix).await;
        self.end_request(request).await;
        Ok(views?)
    }

    /// The views of all names that begin with `prefix`, except names that no claim holds or waits for.
    async fn read_names(&self, request: &OperatorRequest, prefix: &str) -> Result<Vec<View>, Failed> {
        let mut names: Vec<Name> = match self.config.only_name() {
            Some(only_name) => Name::new(only_name).into_iter().collect(),
            None => {
                let directories = children(&request.conn, &self.base_path()).await?;
                directories.iter().filter_map(|directory| keys::name_of(directory)).collect()
            }
        };
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort();
        let mut views = Vec::new();
        for names in names.chunks(BATCH) {
            let reads = names.iter().map(|name| async move {
                let dir = self.dir(name);
                match self.read_dir(request, &dir).await {
                    Ok(contents) => Ok(contents.view(name.clone(), &dir, &self.config)),
                    // The directory is not readable with this login. All other names are shown.
                    Err(failed) if failed.is(ErrorCode::NO_AUTH) => {
                        Ok(View::unreadable(name.clone(), dir.without_chroot(), &failed.into()))
                    }
                    Err(failed) => Err(failed),
                }
            });
            for view in join_all(reads).await {
                views.push(view?);
            }
        }
        // Directories exist for a while after their last claim.
        views.retain(|view| !(view.holders.is_empty() && view.waiters.is_empty() && view.problem.is_none()));
        Ok(views)
    }

    /// Reads the directory of a name.
    async fn read_dir(&self, request: &OperatorRequest, dir: &Dir) -> Result<DirContents, Failed> {
        let conn = &request.conn;
        let entries = children(conn, dir.path()).await?;
        let mut contents = DirContents::default();
        if !entries.is_empty() {
            contents.lineage = Some(self.existing_lineage(request.session_slot.session(), conn).await?);
        }
        let nodes = keys::queue_nodes(&entries);
        let stored = join_all(nodes.iter().map(|node| read_node(conn, dir.path(), &node.name))).await;
        for (node, stored) in nodes.into_iter().zip(stored) {
            contents.lock_queue.extend(stored?.map(|stored| (node, stored)));
        }
        if self.config.only_name().is_some() {
            // With `path=`, directories with the names of a semaphore's directories can have another purpose.
            return Ok(contents);
        }
        if entries.iter().any(|name| name == PERMITS_QUEUE) {
            let path = dir.permits_queue();
            let nodes = keys::queue_nodes(&children(conn, &path).await?);
            for stored in join_all(nodes.iter().map(|node| read_node(conn, &path, &node.name))).await {
                contents.permits_queue.extend(stored?);
            }
        }
        if entries.iter().any(|name| name == PERMITS) {
            let path = dir.permits();
            let mut permits = children(conn, &path).await?;
            // Each node counts, whichever program created it. The holder watches the first node of its claim.
            permits.sort();
            for stored in join_all(permits.iter().map(|name| read_node(conn, &path, name))).await {
                contents.permits.extend(stored?);
            }
            contents.limit =
                read_node(conn, dir.path(), PERMITS).await?.and_then(|stored| read_limit(&stored.data));
        }
        Ok(contents)
    }

    async fn break_hold(&self, name: &Name, token: u64, force: bool) -> Result<Broken, EngineError> {
        self.check_name(name)?;
        let request = self.start_request().await?;
        let broken = self.break_on(&request, name, token, force).await;
        self.end_request(request).await;
        broken
    }

    /// Marks the hold with this token as broken, or with `force` deletes its nodes.
    async fn break_on(
        &self,
        request: &OperatorRequest,
        name: &Name,
        token: u64,
        force: bool,
    ) -> Result<Broken, EngineError> {
        let contents = self.read_dir(request, &self.dir(name)).await?;
        let holds = contents.held();
        let czxid = self.config.token_blocks.number_of(token);
        let of_token = |stored: &StoredNode| Some(stored.stat.czxid) == czxid;
        let Some(held) = holds.iter().find(|held| held.nodes.first().is_some_and(|stored| of_token(stored)))
        else {
            return Ok(Broken::NotHeld);
        };
        let steps = if force {
            let delete = |stored: &&StoredNode| {
                MultiOp::Delete(Delete { path: stored.path.clone(), version: ANY_VERSION })
            };
            held.nodes.iter().map(delete).collect()
        } else {
            // The holder watches the first node.
            let Some(first) = held.nodes.first() else { return Ok(Broken::NotHeld) };
            if let Some(refused) = latch::change_refused(first.name()) {
                return Err(refused);
            }
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
        match self.apply_changes(request.session_slot.session(), &request.conn, steps).await? {
            Ok(_) => Ok(Broken::Done),
            Err((_, ErrorCode::NO_NODE | ErrorCode::BAD_VERSION)) => Ok(Broken::NotHeld),
            Err((_, code)) => Err(Failed::Refused(code).into()),
        }
    }
}

/// Reads a node; without its data if the data is too long for a record or an owner. `None` if the node is gone.
pub(crate) async fn read_node(
    conn: &Conn,
    directory: &str,
    name: &str,
) -> Result<Option<StoredNode>, Failed> {
    let path = format!("{directory}/{name}");
    let read = async {
        let stat = conn.send(&Exists { path: &path }).answer().await?;
        if stat.length > MAX_DATA_BYTES {
            return Ok((Vec::new(), stat));
        }
        match conn.send(&GetData { path: &path, watch: false }).answer().await {
            // Without the right to read, a client still learns that the node exists.
            Err(failed) if failed.is(ErrorCode::NO_AUTH) => Ok((UNREADABLE_DATA.to_vec(), stat)),
            read => read,
        }
    };
    match read.await {
        Ok((data, stat)) => Ok(Some(StoredNode { path, data, stat })),
        Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(None),
        Err(failed) => Err(failed),
    }
}

leasehold_core::forward_inspect!(ZookeeperEngine, guarantee by guarantee::examine, diagnostics by diagnose::diagnose, changes by Client::tell_changes);
