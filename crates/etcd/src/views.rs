//! The views that this client tells of changes: watches of the keys of names. They need the right to read these keys,
//! as `list` does, and write nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use leasehold_core::{EngineError, Fault, NoticeSender, Watched};
use tokio::sync::Notify;

use crate::{
    client::Client,
    config::Layout,
    conn::Conn,
    keys::{Span, names_starting_with, queues_starting_with},
    lock_mutex, runtime,
    watches::{WatchStart, WatchTarget},
};

/// With `layout=key`: when a change is told a second time. The release of a hold is seen by its queue key, and the
/// grant after it creates the lock key alone, which no watch of a prefix sees.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The views of one client.
#[derive(Default)]
pub(crate) struct Views {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By the numbers in their watches.
    watches: HashMap<u64, ViewWatch>,
    /// The largest number.
    last: u64,
}

/// One watch of a view.
struct ViewWatch {
    span: Span,
    notices: NoticeSender,
    /// Notified when the server has ended the watch.
    ended: Arc<Notify>,
}

/// The watches of one view, which end with the drop of this value.
struct Registration {
    client: Weak<Client>,
    numbers: Vec<u64>,
}

impl Client {
    /// Tells a view of changes of these names until a watch of it ends.
    pub(crate) async fn tell_changes(
        &self,
        watched: &Watched,
        notices: &NoticeSender,
    ) -> Result<(), EngineError> {
        self.link.conn().await?;
        let ended = Arc::new(Notify::new());
        let numbers = {
            let mut table = lock_mutex(&self.views.table);
            let add = |span| {
                table.last += 1;
                let (notices, ended) = (notices.clone(), Arc::clone(&ended));
                let number = table.last;
                table.watches.insert(number, ViewWatch { span, notices, ended });
                number
            };
            self.spans_of(watched).into_iter().map(add).collect()
        };
        let _registration = Registration { client: self.weak(), numbers };
        // Without a connection the watches begin with the next one.
        if let Some(conn) = self.link.live() {
            self.watch_for_views(&conn);
        }
        ended.notified().await;
        Err(EngineError::new(Fault::Retry, "the server ended the watch of a view"))
    }

    /// The spans in which a change of these names is seen.
    fn spans_of(&self, watched: &Watched) -> Vec<Span> {
        match (watched, self.layout()) {
            (Watched::Prefix(start), Layout::Directory | Layout::Election) => {
                vec![names_starting_with(self.prefix(), start)]
            }
            (Watched::Prefix(start), Layout::Key) => vec![queues_starting_with(self.prefix(), start)],
            (Watched::Name(name), _) => {
                let dir = self.dir(name);
                vec![dir.all_keys(), (dir.bare_key(), Vec::new())]
            }
        }
    }

    /// Watches for all views on this connection. A watch that is there already continues.
    pub(crate) fn watch_for_views(&self, conn: &Conn) {
        let watches: Vec<(u64, Span)> = {
            let table = lock_mutex(&self.views.table);
            table.watches.iter().map(|(number, watch)| (*number, watch.span.clone())).collect()
        };
        for (number, span) in watches {
            // When the watch has begun, it reports a missed change, so that the view looks.
            let start = WatchStart::Now { read_revision: 0 };
            self.watch_target(conn, WatchTarget::View(number), span, start);
        }
    }

    /// The watch with this number has begun.
    pub(crate) fn view_watch_began(&self, number: u64) {
        if let Some(watch) = lock_mutex(&self.views.table).watches.get(&number) {
            watch.notices.begin();
        }
    }

    /// The watch with this number reports a change.
    pub(crate) fn tell_view(&self, number: u64) {
        let Some(notices) = self.views.notices(number) else { return };
        notices.changed();
        if self.layout() == Layout::Key {
            runtime::spawn(async move {
                runtime::sleep(AGAIN_AFTER).await;
                notices.changed();
            });
        }
    }

    /// The server ended the watch with this number, or, without a number, some watch.
    pub(crate) fn view_watch_ended(&self, number: Option<u64>) {
        let table = lock_mutex(&self.views.table);
        let is_ended = |of: &u64| number.is_none_or(|number| number == *of);
        table.watches.iter().filter(|(of, _)| is_ended(of)).for_each(|(_, watch)| watch.ended.notify_one());
    }
}

impl Views {
    fn notices(&self, number: u64) -> Option<NoticeSender> {
        lock_mutex(&self.table).watches.get(&number).map(|watch| watch.notices.clone())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade() else { return };
        let conn = client.link.live();
        for number in &self.numbers {
            lock_mutex(&client.views.table).watches.remove(number);
            if let Some(conn) = &conn {
                conn.watches.unwatch(WatchTarget::View(*number), client.now());
            }
        }
    }
}
