//! Who has which session lock, as far as the server tells.

use leasehold_core::Fault;

use super::{
    super::{conn::ResultSet, rows::ColumnReader},
    batch::literal,
};
use crate::{
    database::{Failed, bad_value},
    session::{
        lock_key::Key,
        server::{KeyHolder, KeyView, Share},
    },
};

/// All locks of sessions. Only `performance_schema` lists them, if it is on and records metadata locks.
pub(super) const ALL: &str = "SELECT COUNT(*) FROM performance_schema.setup_instruments \
    WHERE name = 'wait/lock/metadata/sql/mdl' AND enabled = 'YES'; \
    SELECT object_name, processlist_id, processlist_user, processlist_host, lock_status = 'GRANTED' \
    FROM performance_schema.metadata_locks JOIN performance_schema.threads ON thread_id = owner_thread_id \
    WHERE object_type = 'USER LEVEL LOCK'";

/// The begin of the id of a session.
const ID_PREFIX: &str = "connection ";
/// The owner of a session of another user, for a user who does not see it.
const WITHOUT_LOGIN: &str = "another user (only a user with the right PROCESS sees the user and the host)";

/// The statements that look at keys: for each of them the connection that has it, and its login.
pub(super) fn statements(keys: &[Key]) -> String {
    let statements = keys.iter().map(|key| {
        let key = literal(key);
        format!(
            "SELECT IS_USED_LOCK({key}); \
             SELECT user, host FROM information_schema.processlist WHERE id = IS_USED_LOCK({key})"
        )
    });
    statements.collect::<Vec<_>>().join("; ")
}

/// Reads the answers to [`statements`]: the keys that are in use.
pub(super) fn read(keys: &[Key], sets: &[ResultSet]) -> Result<Vec<KeyView>, Failed> {
    let mut views = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let first_row = |set: usize| sets.get(set).and_then(|set| set.rows.first());
        let row = first_row(2 * index).ok_or_else(|| bad_value("IS_USED_LOCK()", "it has no row"))?;
        let Some(connection) = ColumnReader::new(row).next::<Option<u64>>()? else { continue };
        let login = first_row(2 * index + 1).map(|row| {
            let mut columns = ColumnReader::new(row);
            Ok::<_, Failed>(login(&columns.text()?, &columns.text()?))
        });
        let owner = login.transpose()?.unwrap_or_else(|| WITHOUT_LOGIN.to_owned());
        views.push(KeyView { holders: vec![holder(key, connection, owner)], ..unused(key) });
    }
    Ok(views)
}

/// Reads the answers to [`ALL`].
pub(super) fn read_all(sets: &[ResultSet]) -> Result<Vec<KeyView>, Failed> {
    let recording = sets.first().and_then(|set| set.rows.first());
    if recording.map_or(Ok(0), |row| ColumnReader::new(row).next::<i64>())? == 0 {
        return Err(Failed::new(
            Fault::Refused,
            "the server does not list the locks of sessions: start it with performance_schema=ON and \
             performance-schema-instrument='wait/lock/metadata/sql/mdl=ON', or show one name",
        ));
    }
    let mut views: Vec<KeyView> = Vec::new();
    for row in sets.get(1).map_or(&[][..], |set| &set.rows) {
        let mut columns = ColumnReader::new(row);
        let (key, connection) = (Key::Name(columns.text()?), columns.next()?);
        let (user, host): (Option<String>, Option<String>) = (columns.next()?, columns.next()?);
        let session = holder(&key, connection, login(&user.unwrap_or_default(), &host.unwrap_or_default()));
        let index = views.iter().position(|view| view.key == key).unwrap_or_else(|| {
            views.push(unused(&key));
            views.len() - 1
        });
        let view = &mut views[index];
        if columns.next()? { &mut view.holders } else { &mut view.waiters }.push(session);
    }
    Ok(views)
}

/// A key as an operator finds it: `IS_USED_LOCK` takes it so.
pub(super) fn shown(key: &Key) -> String {
    format!("GET_LOCK({key})")
}

fn unused(key: &Key) -> KeyView {
    KeyView::unused(key, shown(key))
}

/// The id of a session, as operators see it.
pub(super) fn session_id(connection: u64) -> String {
    format!("{ID_PREFIX}{connection}")
}

/// The statement that ends the session with this id.
pub(super) fn how_to_end(session: &str) -> String {
    format!("KILL CONNECTION {}", session.strip_prefix(ID_PREFIX).unwrap_or(session))
}

fn login(user: &str, host: &str) -> String {
    format!("{user}@{host}")
}

fn holder(key: &Key, connection: u64, owner: String) -> KeyHolder {
    KeyHolder {
        session: session_id(connection),
        share: Share::Alone,
        owner,
        // Only leasehold makes such keys. Of any other key the server does not tell which program has it.
        ours: key.is_own_name(),
    }
}
