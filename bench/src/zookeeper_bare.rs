//! A bare client of ZooKeeper. It sends the requests of a program that locks only with the server's own operations.

use std::{sync::Arc, time::Duration};

use zookeeper_client::{Acls, Client, CreateMode, EventType, MultiWriteResult};

use crate::Failure;

/// The timeout of the client's sessions. A busy machine may keep a bench from sending heartbeats for a while; the
/// timeout is longer than any such pause.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// The data of a node. It is about as long as the data of leasehold's nodes.
const OWNER: &[u8] = b"30000 user@host:12345";

/// Several sessions, over which the tasks are distributed.
#[derive(Clone)]
pub(crate) struct Bare {
    sessions: Arc<[Client]>,
}

impl Bare {
    pub(crate) async fn connect(port: u16, sessions: usize) -> Result<Self, Failure> {
        let mut clients = Vec::with_capacity(sessions);
        for _ in 0..sessions {
            let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
            clients.push(connector.connect(&format!("127.0.0.1:{port}")).await?);
        }
        Ok(Self { sessions: clients.into() })
    }

    fn session(&self, task: usize) -> &Client {
        &self.sessions[task % self.sessions.len()]
    }

    /// Creates a directory and its parents.
    pub(crate) async fn create_dir(&self, dir: &str) -> Result<(), Failure> {
        Ok(self.sessions[0].mkdir(dir, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?)
    }

    /// Creates a sequential node, lists the queue, and deletes the node. These are three requests; each is sent after
    /// the answer to the previous one.
    pub(crate) async fn pair(&self, task: usize, dir: &str) -> Result<(), Failure> {
        let session = self.session(task);
        let path = format!("{dir}/lock-");
        let (_, number) = session.create(&path, OWNER, &sequential_options()).await?;
        expect_alone_in_queue(session.list_children(dir).await)?;
        Ok(session.delete(&format!("{path}{number}"), None).await?)
    }

    /// Like [`pair`](Self::pair), but sends the list request without waiting for the answer to the creation.
    pub(crate) async fn quick_pair(&self, task: usize, dir: &str) -> Result<(), Failure> {
        let session = self.session(task);
        let path = format!("{dir}/lock-");
        // Both requests are sent here: first the creation, then the list request.
        let (created, listed) =
            (session.create(&path, OWNER, &sequential_options()), session.list_children(dir));
        let (_, number) = created.await?;
        expect_alone_in_queue(listed.await)?;
        Ok(session.delete(&format!("{path}{number}"), None).await?)
    }

    /// Like [`pair`](Self::pair), for several names together: one transaction creates all nodes, one request for each
    /// queue lists it, and one transaction deletes all nodes.
    pub(crate) async fn joint_pairs(&self, task: usize, dirs: &[String]) -> Result<(), Failure> {
        let session = self.session(task);
        let mut create = session.new_multi_writer();
        for dir in dirs {
            create.add_create(&format!("{dir}/lock-"), OWNER, &sequential_options())?;
        }
        let created = create.commit();
        let listed: Vec<_> = dirs.iter().map(|dir| session.list_children(dir)).collect();
        let mut delete = session.new_multi_writer();
        for clients in created.await? {
            if let MultiWriteResult::Create { path, .. } = clients {
                delete.add_delete(&path, None)?;
            }
        }
        for listed in listed {
            expect_alone_in_queue(listed.await)?;
        }
        delete.commit().await?;
        Ok(())
    }

    /// Creates an ephemeral node at this path. The node is not sequential.
    pub(crate) async fn create(&self, path: &str) -> Result<(), Failure> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        self.sessions[0].create(path, OWNER, &options).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), Failure> {
        Ok(self.sessions[0].delete(path, None).await?)
    }

    /// Whether a node exists.
    pub(crate) async fn is_there(&self, path: &str) -> Result<bool, Failure> {
        Ok(self.sessions[0].check_stat(path).await?.is_some())
    }

    /// Waits until a node is deleted, and then lists the queue. The node exists already or will exist.
    pub(crate) async fn wait_for_deletion(&self, dir: &str, path: &str) -> Result<(), Failure> {
        loop {
            let (_, watcher) = self.sessions[0].check_and_watch_stat(path).await?;
            if watcher.changed().await.event_type == EventType::NodeDeleted {
                self.sessions[0].list_children(dir).await?;
                return Ok(());
            }
        }
    }
}

fn sequential_options() -> zookeeper_client::CreateOptions<'static> {
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all())
}

/// Returns an error unless the client's own node is alone in the queue. If it is alone, the client has the lock.
fn expect_alone_in_queue(queue: Result<Vec<String>, zookeeper_client::Error>) -> Result<(), Failure> {
    match queue?.len() {
        1 => Ok(()),
        others => Err(format!("{others} in a queue where one was expected").into()),
    }
}
