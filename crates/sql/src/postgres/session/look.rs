//! The keys that are in use on the server, from `pg_locks`.

use tokio_postgres::{Client, Row};

use super::{exchange::number, pinned::query, statements::LOOK};
use crate::{
    database::Failed,
    postgres::{
        error::{Stage, classify},
        rows::column,
    },
    session::{
        lock_key::Key,
        server::{KeyHolder, KeyView, Share},
    },
};

/// The value of `objsubid` for a key of one number; keys of two numbers have another one.
const ONE_NUMBER: i32 = 1;

/// Those of these keys that are in use, or all keys that are in use.
pub(super) async fn look(client: &Client, keys: Option<&[Key]>) -> Result<Vec<KeyView>, Failed> {
    let numbers: Option<Vec<i64>> = keys.map(|keys| keys.iter().map(number).collect());
    let subs: Option<Vec<i32>> = keys.map(|keys| {
        let sub = |key: &Key| if matches!(key, Key::Ints(..)) { ONE_NUMBER + 1 } else { ONE_NUMBER };
        keys.iter().map(sub).collect()
    });
    let rows = query(client, &LOOK, &[&numbers, &subs]).await;
    let rows = rows.map_err(|error| classify(&error, Stage::BeforeCommit))?;
    let mut views: Vec<KeyView> = Vec::new();
    for row in &rows {
        let (key, holder) = (key(row)?, holder(row)?);
        if views.last().is_none_or(|last| last.key != key) {
            views.push(KeyView::unused(&key, shown(&key)));
        }
        let Some(view) = views.last_mut() else { continue };
        let is_granted: bool = column(row, 4)?;
        if is_granted { view.holders.push(holder) } else { view.waiters.push(holder) }
    }
    Ok(views)
}

/// The key of a row.
fn key(row: &Row) -> Result<Key, Failed> {
    let (class, object, sub): (i64, i64, i32) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
    let key = match sub {
        ONE_NUMBER => Key::Bigint(class << 32 | object),
        // The two numbers are unsigned in the view.
        _ => Key::Ints(class as u32 as i32, object as u32 as i32),
    };
    Ok(key)
}

/// A key as `pg_locks` shows it.
pub(super) fn shown(key: &Key) -> String {
    let (class, object, sub) = key.pg_locks().unwrap_or_default();
    format!("classid {class} objid {object} objsubid {sub}")
}

/// The statement that ends the session with this id.
pub(in crate::postgres) fn how_to_end(session: &str) -> String {
    format!("SELECT pg_terminate_backend({})", session.trim_start_matches("pid "))
}

/// The session of a row.
fn holder(row: &Row) -> Result<KeyHolder, Failed> {
    let is_alone: bool = column(row, 3)?;
    let pid: i32 = column(row, 5)?;
    let (program, address, user): (&str, &str, &str) = (column(row, 6)?, column(row, 7)?, column(row, 8)?);
    // The server hides the program and the address of other users.
    let parts = [program, user, address].into_iter().filter(|part| !part.is_empty());
    let owner: Vec<&str> = ["pid"].into_iter().chain(parts).collect();
    let owner = owner.join(" ").replacen("pid", &format!("pid {pid}"), 1);
    let share = if is_alone { Share::Alone } else { Share::Beside };
    Ok(KeyHolder { session: format!("pid {pid}"), share, owner, ours: column(row, 9)? })
}
