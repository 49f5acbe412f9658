//! The views that this client tells of changes, each by one persistent recursive watch. The watch writes nothing, and
//! the server reports only nodes that the login may read. Servers before 3.6 have no such watches.

use std::sync::{Arc, Mutex};

use leasehold_core::{EngineError, Name, NoticeSender, Watched};
use tokio::sync::Notify;

use crate::{
    client::Client,
    inspect::OPERATOR_TIMEOUT,
    keys, lock_mutex,
    sessions::Session,
    wire::{AddWatch, ErrorCode},
};

/// The views of one client.
#[derive(Default)]
pub(crate) struct Views(Mutex<Vec<Arc<View>>>);

/// A view.
struct View {
    /// The node whose descendants are watched.
    root: String,
    watched: Watched,
    notices: NoticeSender,
    session: Arc<Session>,
    /// Notified when the watch may have ended.
    again: Notify,
}

/// A view in the list, until it is dropped.
struct Registration<'a> {
    views: &'a Views,
    view: Arc<View>,
}

impl Client {
    /// Tells a view of changes of these names until the session of its watch is over.
    pub(crate) async fn tell_changes(
        &self,
        watched: &Watched,
        notices: &NoticeSender,
    ) -> Result<(), EngineError> {
        // Looks use the same session, so they create and close none of their own.
        let session_slot = self.take_session_slot(OPERATOR_TIMEOUT, 0)?;
        let (root, watched) = match (watched, self.config.only_name()) {
            (Watched::Name(name), _) => (self.dir(name).path().to_owned(), watched.clone()),
            // With `path=` this is the directory of the only name.
            (Watched::Prefix(_), Some(_)) => (self.base_path(), Watched::Prefix(String::new())),
            (Watched::Prefix(_), None) => (self.base_path(), watched.clone()),
        };
        let view = Arc::new(View {
            root,
            watched,
            notices: notices.clone(),
            session: Arc::clone(session_slot.session()),
            again: Notify::new(),
        });
        let registration = Registration::new(&self.views, view);
        let view = &registration.view;
        loop {
            let conn = view.session.conn().await?;
            match conn.send(&AddWatch { path: &view.root }).answer().await {
                Ok(()) => notices.begin(),
                // An old server, which also ends the connection.
                Err(failed) if failed.is(ErrorCode::UNIMPLEMENTED) => return Ok(()),
                Err(failed) => return Err(failed.into()),
            }
            view.again.notified().await;
        }
    }
}

impl Views {
    /// Tells the views of a change of the node at `path`.
    pub(crate) fn tell(&self, path: &str) {
        for view in lock_mutex(&self.0).iter().filter(|view| view.shows(path)) {
            view.notices.changed();
        }
    }

    /// Sets the watches again, which ended with a connection.
    pub(crate) fn watch_again(&self) {
        lock_mutex(&self.0).iter().for_each(|view| view.again.notify_one());
    }

    /// Whether this session has the watch of a view.
    pub(crate) fn has(&self, session: &Arc<Session>) -> bool {
        lock_mutex(&self.0).iter().any(|view| Arc::ptr_eq(&view.session, session))
    }
}

impl View {
    /// Whether the view shows what is stored at this path.
    fn shows(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix(&self.root) else { return false };
        match &self.watched {
            Watched::Name(_) => true,
            Watched::Prefix(prefix) if prefix.is_empty() => true,
            Watched::Prefix(_) => directory_name(below).is_some_and(|name| self.watched.includes(&name)),
        }
    }
}

/// The name whose directory is the first part of this path below the prefix.
fn directory_name(below: &str) -> Option<Name> {
    keys::name_of(below.strip_prefix('/')?.split('/').next()?)
}

impl<'a> Registration<'a> {
    fn new(views: &'a Views, view: Arc<View>) -> Self {
        lock_mutex(&views.0).push(Arc::clone(&view));
        Self { views, view }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        lock_mutex(&self.views.0).retain(|view| !Arc::ptr_eq(view, &self.view));
    }
}
