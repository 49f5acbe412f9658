//! The columns of the table, as the server describes them, and the checks that they can store locks. Pure.

use super::{
    options::{ForeignTable, Layout},
    owner_text,
};
use crate::database::{Failed, misconfigured};

/// A column of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    /// Its name, as the server writes it.
    pub(crate) name: String,
    /// Its type, as the server writes it, in small letters.
    pub(crate) kind: String,
    /// Whether an insert must give it a value.
    pub(crate) needs_value: bool,
    /// Whether the server gives it a number that no other row has.
    pub(crate) numbers_rows: bool,
    /// The most characters of a text.
    pub(crate) room: Option<usize>,
    /// Whether no two rows have the same value in it.
    pub(crate) unique: bool,
    /// The digits of the fraction of a second, if it stores times.
    pub(crate) digits: Option<u32>,
}

/// The columns of a table, by what they are for.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) key: Column,
    pub(crate) owner: Option<Column>,
    /// The columns of the layout beside these two, in the order of [`other_columns`].
    pub(crate) others: Vec<Column>,
    /// A column by which the server numbers rows.
    pub(crate) number: Option<Column>,
}

/// The column with the name of the lock.
fn key_column(table: &ForeignTable) -> &str {
    match table.layout {
        Layout::Shedlock => "name",
        Layout::Symfony => "key_id",
        Layout::Laravel => "key",
        Layout::Liquibase => "id",
        Layout::Insert => table.column.as_deref().unwrap_or_default(),
    }
}

/// The column with the owner text.
const fn owner_column(layout: Layout) -> Option<&'static str> {
    match layout {
        Layout::Shedlock => Some("locked_by"),
        Layout::Symfony => Some("key_token"),
        Layout::Laravel => Some("owner"),
        Layout::Liquibase => Some("lockedby"),
        Layout::Insert => None,
    }
}

/// All other columns of the layout.
const fn other_columns(layout: Layout) -> &'static [&'static str] {
    match layout {
        Layout::Shedlock => &["lock_until", "locked_at"],
        Layout::Symfony => &["key_expiration"],
        Layout::Laravel => &["expiration"],
        Layout::Liquibase => &["locked", "lockgranted"],
        Layout::Insert => &[],
    }
}

/// Types of texts, as the servers write them.
const TEXTS: [&str; 6] = ["text", "varchar", "character varying", "char", "tinytext", "varbinary"];

/// Whether a type, as the servers write it, is one of dates with times.
fn is_timestamp(kind: &str) -> bool {
    kind == "datetime" || kind.starts_with("timestamp")
}

/// Finds the columns of the layout among those of the table, and checks that they can store locks.
pub(crate) fn find(table: &ForeignTable, name: &str, all: &[Column]) -> Result<Columns, Failed> {
    let find = |wanted: &str| {
        all.iter().find(|column| column.name.eq_ignore_ascii_case(wanted)).cloned().ok_or_else(|| {
            let layout = table.layout.word();
            misconfigured(&format!("its table {name} has no column {wanted}, which layout={layout} needs"))
        })
    };
    let key = find(key_column(table))?;
    let owner = owner_column(table.layout).map(find).transpose()?;
    let others =
        other_columns(table.layout).iter().map(|&wanted| find(wanted)).collect::<Result<Vec<_>, _>>()?;
    if !key.unique {
        let key = &key.name;
        return Err(misconfigured(&format!(
            "its table {name} may have two rows with one value of {key}, so nothing excludes: give {key} a primary key \
             or a unique index of its own"
        )));
    }
    if table.layout != Layout::Liquibase && !TEXTS.contains(&key.kind.as_str()) {
        let Column { name: key, kind, .. } = &key;
        return Err(misconfigured(&format!(
            "its column {key} of {name} is a {kind}: names of locks need a text"
        )));
    }
    if table.layout == Layout::Shedlock
        && let Some(Column { name: until, kind, .. }) =
            others.first().filter(|until| !is_timestamp(&until.kind))
    {
        return Err(misconfigured(&format!(
            "its column {until} of {name} is a {kind}: ends of locks need a timestamp or datetime"
        )));
    }
    if let Some(Column { name: owner, room: Some(room), .. }) = &owner
        && *room < owner_text::LENGTH
    {
        let least = owner_text::LENGTH;
        return Err(misconfigured(&format!(
            "its column {owner} of {name} has room for {room} characters: owners of leasehold need {least}"
        )));
    }
    let is_set = |column: &Column| {
        let of_layout = [Some(&key), owner.as_ref()].into_iter().flatten().chain(&others);
        of_layout.into_iter().any(|known| known.name == column.name)
    };
    if let Some(Column { name: extra, .. }) = all.iter().find(|column| column.needs_value && !is_set(column))
    {
        return Err(misconfigured(&format!(
            "its column {extra} of {name} must have a value, and a claim has none for it: give it a default"
        )));
    }
    let number = all.iter().find(|column| column.numbers_rows && column.name != key.name).cloned();
    Ok(Columns { key, owner, others, number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str) -> Column {
        Column { name: name.to_owned(), kind: "varchar".to_owned(), room: Some(255), ..Column::default() }
    }

    fn shedlock() -> Vec<Column> {
        let key = Column { unique: true, ..column("NAME") };
        let until = Column { kind: "timestamp".to_owned(), digits: Some(3), ..column("lock_until") };
        vec![key, until, column("locked_at"), column("locked_by")]
    }

    fn problem(columns: &[Column]) -> String {
        find(&ForeignTable::new(Layout::Shedlock), "t", columns).unwrap_err().message
    }

    #[test]
    fn columns_are_found_in_any_case_of_letters() {
        let found = find(&ForeignTable::new(Layout::Shedlock), "t", &shedlock()).unwrap();
        assert_eq!((found.key.name.as_str(), found.others.len()), ("NAME", 2));
        assert!(found.number.is_none());
    }

    #[test]
    fn a_table_that_cannot_store_locks_is_refused_with_the_reason() {
        let mut columns = shedlock();
        columns.remove(1);
        assert!(problem(&columns).contains("has no column lock_until"), "{}", problem(&columns));
        let mut columns = shedlock();
        columns[0].unique = false;
        assert!(problem(&columns).contains("nothing excludes"), "{}", problem(&columns));
        let mut columns = shedlock();
        columns[0].kind = "integer".to_owned();
        assert!(problem(&columns).contains("need a text"), "{}", problem(&columns));
        let mut columns = shedlock();
        columns[1].kind = "date".to_owned();
        assert!(problem(&columns).contains("need a timestamp or datetime"), "{}", problem(&columns));
        let mut columns = shedlock();
        columns[3].room = Some(20);
        assert!(problem(&columns).contains("room for 20 characters"), "{}", problem(&columns));
        let mut columns = shedlock();
        columns.push(Column { needs_value: true, ..column("region") });
        assert!(problem(&columns).contains("region of t must have a value"), "{}", problem(&columns));
        columns[4].needs_value = false;
        assert!(find(&ForeignTable::new(Layout::Shedlock), "t", &columns).is_ok());
    }
}
