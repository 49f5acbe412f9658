//! How the columns of a layout store a hold: fragments of SQL for one dialect, and the keys of names. Pure.
//!
//! All times are those of the database, read when the fragment is evaluated, after the row was locked: with
//! `clock_timestamp()` on PostgreSQL, and on MySQL with `SYSDATE(6)` or, in UTC, at the beginning of the statement. A
//! time that is read earlier only makes a row count as taken for longer, and a lease of ours end sooner.

use std::time::Duration;

use leasehold_core::{EngineError, Fault, Name};
use sha2::{Digest, Sha256};

use super::{
    columns::Columns,
    options::{ForeignTable, Layout},
    owner_text,
    store::Dialect,
};

/// In the layouts that count whole seconds: how much later than the end of our lease the time in the row is at least.
/// Another program may round the time to the next second, and so be half a second ahead.
const ROUNDED_BY: &str = "0.5";
/// In these layouts the end in a row of another program was rounded down, by up to a second. The row counts as taken
/// for that second.
const CUT_BY: &str = "1";
/// How much earlier than its row a lease of ours ends at most, in microseconds, in the layouts of whole seconds: a
/// second by which the end is rounded up.
const SECONDS_SLACK: i64 = 1_000_000;
/// The least time by which a timestamp counts as cut or rounded, in microseconds: a millisecond, to which programs in
/// Java cut.
const LEAST_UNIT: i64 = 1_000;
/// The digits of a timestamp of full precision: microseconds.
const FULL_DIGITS: u32 = 6;

/// How a table stores locks.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    pub(crate) dialect: Dialect,
    pub(crate) layout: Layout,
    /// The qualified, quoted name of the table.
    pub(crate) table: String,
    /// The name of the table for people.
    pub(crate) table_name: String,
    /// The quoted column with the key.
    pub(crate) key: String,
    key_room: Option<usize>,
    /// The quoted column with the owner, and its room in characters.
    pub(crate) owner: Option<(String, usize)>,
    /// The other quoted columns of the layout.
    pub(crate) others: Vec<String>,
    /// A quoted column by which the server numbers rows.
    number: Option<String>,
    /// The unit of the timestamp with the end of a hold, in microseconds, to which the server cuts or rounds it.
    unit: i64,
    pub(crate) prefix: String,
}

/// The key of a name: SQL in which a `?` stands for the value, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) sql: String,
    pub(crate) value: Option<String>,
}

impl Key {
    /// As people see it.
    pub(crate) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or(&self.sql)
    }
}

/// The longest owner text in a column without a limit.
const OWNER_ROOM: usize = 255;

impl Format {
    /// The format of a table. `qualified`: its quoted name.
    pub(crate) fn new(dialect: Dialect, table: &ForeignTable, qualified: String, columns: &Columns) -> Self {
        let quote = |column: &super::columns::Column| quoted(dialect, &column.name);
        let digits = columns.others.first().and_then(|end| end.digits).unwrap_or(FULL_DIGITS);
        Self {
            dialect,
            layout: table.layout,
            table: qualified,
            table_name: table.table_name(dialect).to_owned(),
            key: quote(&columns.key),
            key_room: columns.key.room,
            owner: columns.owner.as_ref().map(|column| (quote(column), column.room.unwrap_or(OWNER_ROOM))),
            others: columns.others.iter().map(quote).collect(),
            number: columns.number.as_ref().map(quote),
            unit: LEAST_UNIT.max(10_i64.pow(FULL_DIGITS.saturating_sub(digits))),
            prefix: table.prefix.clone(),
        }
    }

    /// The key under which the program stores this name.
    pub(crate) fn key_of(&self, name: &Name) -> Result<Key, EngineError> {
        let misconfigured = |why: String| Err(EngineError::new(Fault::Misconfigured, why));
        let value = match self.layout {
            Layout::Liquibase => {
                let is_number = name.as_str().parse::<i32>().is_ok_and(|id| id.to_string() == name.as_str());
                if !is_number {
                    return misconfigured(format!(
                        "a name in layout=liquibase is the ID of a row of {}: use 1, the only one that Liquibase uses",
                        self.table_name
                    ));
                }
                return Ok(Key { sql: name.as_str().to_owned(), value: None });
            }
            Layout::Symfony => {
                Sha256::digest(name.as_str()).iter().map(|byte| format!("{byte:02x}")).collect()
            }
            Layout::Laravel => format!("{}{}", self.prefix, name.as_str()),
            Layout::Shedlock | Layout::Insert => name.as_str().to_owned(),
        };
        match self.key_room {
            Some(room) if value.chars().count() > room => misconfigured(format!(
                "the name is too long for {} of {}, which has room for {room} characters",
                self.key, self.table_name
            )),
            _ => Ok(Key { sql: "?".to_owned(), value: Some(value) }),
        }
    }

    /// The name that has this key; for Symfony, whose keys are hashes, the key itself.
    pub(crate) fn name_of(&self, key: &str) -> Option<Name> {
        Name::new(key.strip_prefix(&self.prefix)?).ok()
    }

    /// The room for owner texts.
    pub(crate) fn owner_room(&self) -> usize {
        self.owner.as_ref().map_or(OWNER_ROOM, |(_, room)| *room)
    }

    /// Whether a claim can take the row over.
    pub(crate) fn free(&self) -> String {
        match (self.layout, self.dialect) {
            (Layout::Shedlock, _) => format!("{} <= {}", self.timestamp_end(), self.now()),
            (Layout::Symfony | Layout::Laravel, _) => format!("{} <= {}", self.free_at(), self.now()),
            (Layout::Liquibase, Dialect::Postgres) => format!("NOT {}", self.others[0]),
            (Layout::Liquibase, Dialect::Mysql) => format!("{} = 0", self.others[0]),
            (Layout::Insert, _) => "1 = 0".to_owned(),
        }
    }

    /// In how many microseconds the row becomes free; NULL if no time frees it.
    pub(crate) fn remaining(&self) -> String {
        let now = self.now();
        match (self.layout, self.dialect) {
            (Layout::Shedlock, dialect) => difference(dialect, &self.timestamp_end(), &now),
            (Layout::Symfony | Layout::Laravel, Dialect::Postgres) => {
                format!("(1000000 * ({} - {now}))::bigint", self.free_at())
            }
            (Layout::Symfony | Layout::Laravel, Dialect::Mysql) => {
                format!("CAST(1000000 * ({} - {now}) AS SIGNED)", self.free_at())
            }
            (Layout::Liquibase | Layout::Insert, _) => "NULL".to_owned(),
        }
    }

    /// By how many microseconds a lease of ours ends before its row becomes free, at most.
    pub(crate) const fn slack(&self) -> i64 {
        match self.layout {
            Layout::Symfony | Layout::Laravel => SECONDS_SLACK,
            // A server that rounds adds half a unit.
            _ => self.unit + self.unit / 2,
        }
    }

    /// For how many microseconds the row has been held; NULL if no column tells.
    pub(crate) fn held(&self) -> String {
        match self.layout {
            Layout::Shedlock | Layout::Liquibase => difference(self.dialect, &self.now(), &self.others[1]),
            _ => "NULL".to_owned(),
        }
    }

    /// A text that tells this hold from other holds of the same key and owner, as far as the columns can.
    pub(crate) fn identity(&self) -> String {
        match (self.layout, self.dialect) {
            (Layout::Shedlock | Layout::Liquibase, _) => self.others[1].clone(),
            // The transaction that inserted the row.
            (Layout::Insert, Dialect::Postgres) => "xmin".to_owned(),
            (Layout::Insert, Dialect::Mysql) => self.number.clone().unwrap_or_else(|| "''".to_owned()),
            _ => "''".to_owned(),
        }
    }

    /// Whether [`identity`](Self::identity) tells a row that this client inserted from any other.
    pub(crate) fn tells_rows_apart(&self) -> bool {
        self.owner.is_some() || self.dialect == Dialect::Postgres || self.number.is_some()
    }

    /// The columns of a hold beside key and owner, each with its value for a hold of `ttl` from now.
    pub(crate) fn values_of_hold(&self, ttl: Duration) -> Vec<(&str, String)> {
        let others = self.others.iter().map(String::as_str);
        let values = match self.layout {
            Layout::Shedlock => vec![self.end(ttl), self.now()],
            Layout::Symfony | Layout::Laravel => vec![self.end(ttl)],
            Layout::Liquibase if self.dialect == Dialect::Mysql => vec!["1".to_owned(), self.now()],
            Layout::Liquibase => vec!["TRUE".to_owned(), self.now()],
            Layout::Insert => Vec::new(),
        };
        others.zip(values).collect()
    }

    /// The assignment that extends a hold to `ttl` from now, and never shortens it; `None` if holds have no time.
    pub(crate) fn extension(&self, ttl: Duration) -> Option<String> {
        let end = self.others.first().filter(|_| self.layout.has_time())?;
        Some(format!("{end} = GREATEST({end}, {})", self.end(ttl)))
    }

    /// The assignments of a release that keeps the row, beside that of the owner; `None` if a release deletes the row.
    pub(crate) fn assignments_of_release(&self, min_hold: Duration) -> Option<Vec<String>> {
        match self.layout {
            // A moment ago, because the column may round.
            Layout::Shedlock if min_hold.is_zero() => {
                Some(vec![format!("{} = {}", self.others[0], self.moment_ago())])
            }
            Layout::Shedlock => Some(vec![format!("{} = {}", self.others[0], self.end(min_hold))]),
            Layout::Liquibase => {
                let no = if self.dialect == Dialect::Mysql { "0" } else { "FALSE" };
                Some(vec![format!("{} = {no}", self.others[0]), format!("{} = NULL", self.others[1])])
            }
            _ => None,
        }
    }

    /// The lineage of the server, as far as one answer tells it.
    pub(crate) const fn server(&self) -> &'static str {
        match self.dialect {
            // The name of a log segment begins with the timeline, which is new after each promotion.
            Dialect::Postgres => "pg_walfile_name(pg_current_wal_lsn())",
            Dialect::Mysql => "''",
        }
    }

    /// A number that grows from grant to grant of a name, if it is read after the row was written.
    pub(crate) const fn token(&self) -> &'static str {
        match self.dialect {
            // Each write of a row has a place in the log of its own.
            Dialect::Postgres => "pg_current_wal_insert_lsn() - '0/0'::pg_lsn",
            Dialect::Mysql => "UUID_SHORT()",
        }
    }

    /// Whether the transaction has inserted or taken the row, directly after these statements. `?` is the owner.
    pub(crate) fn is_mine(&self) -> String {
        match (&self.owner, self.dialect) {
            (Some((owner, _)), _) => format!("{owner} = ?"),
            (None, Dialect::Postgres) => {
                "xmin::text = (txid_current_if_assigned() % 4294967296)::text".to_owned()
            }
            (None, Dialect::Mysql) => "ROW_COUNT() = 1".to_owned(),
        }
    }

    /// When a row becomes free, in seconds since 1970, in the layouts that count whole seconds.
    fn free_at(&self) -> String {
        let end = &self.others[0];
        let end = match self.dialect {
            Dialect::Postgres => format!("COALESCE({end}, 0)::float8"),
            Dialect::Mysql => format!("CAST(COALESCE({end}, 0) AS SIGNED)"),
        };
        format!("({end} + CASE WHEN {} THEN -{ROUNDED_BY} ELSE {CUT_BY} END)", self.is_ours())
    }

    /// When a row becomes free, in the layouts with timestamps. In a column of coarse units the end in a row of another
    /// program was cut, by up to a unit. The row counts as taken for that unit.
    fn timestamp_end(&self) -> String {
        let (end, unit) = (&self.others[0], self.unit);
        if unit == LEAST_UNIT {
            return end.clone();
        }
        let cut_by = format!("CASE WHEN {} THEN 0 ELSE {unit} END", self.is_ours());
        match self.dialect {
            Dialect::Postgres => format!("({end} + {cut_by} * interval '1 microsecond')"),
            Dialect::Mysql => format!("TIMESTAMPADD(MICROSECOND, {cut_by}, {end})"),
        }
    }

    /// Whether the owner text begins as ours do. Most collations of MySQL compare without regard to case.
    fn is_ours(&self) -> String {
        let owner = self.owner.as_ref().map_or("''", |(owner, _)| owner);
        let beginnings = owner_text::beginnings().map(|text| format!("'{text}'")).join(", ");
        let beginning = format!("LEFT({owner}, {})", owner_text::OURS.len() + 1);
        match self.dialect {
            Dialect::Postgres => format!("{beginning} IN ({beginnings})"),
            Dialect::Mysql => {
                format!("CONVERT({beginning} USING utf8mb4) COLLATE utf8mb4_bin IN ({beginnings})")
            }
        }
    }

    /// The value of the column with the end of a hold of `ttl` from now.
    fn end(&self, ttl: Duration) -> String {
        let now = self.now();
        let micros = ttl.as_micros() + u128::from(self.unit.unsigned_abs());
        match (self.layout, self.dialect) {
            (Layout::Shedlock, Dialect::Postgres) => format!("{now} + {micros} * interval '1 microsecond'"),
            (Layout::Shedlock, Dialect::Mysql) => format!("TIMESTAMPADD(MICROSECOND, {micros}, {now})"),
            (_, Dialect::Postgres) => {
                format!("ceil({now} + {:.6} + {ROUNDED_BY})::bigint", ttl.as_secs_f64())
            }
            (_, Dialect::Mysql) => format!("CEIL({now} + {:.6} + {ROUNDED_BY})", ttl.as_secs_f64()),
        }
    }

    /// The time now, in the form that the layout compares: a timestamp in UTC, a timestamp in the zone of the server,
    /// or seconds since 1970.
    fn now(&self) -> String {
        let now = match (self.layout, self.dialect) {
            (Layout::Shedlock, Dialect::Postgres) => "(clock_timestamp() AT TIME ZONE 'UTC')",
            (Layout::Shedlock, Dialect::Mysql) => "UTC_TIMESTAMP(6)",
            (Layout::Liquibase, Dialect::Postgres) => "clock_timestamp()::timestamp",
            (Layout::Liquibase, Dialect::Mysql) => "SYSDATE(6)",
            (_, Dialect::Postgres) => "extract(epoch FROM clock_timestamp())::float8",
            (_, Dialect::Mysql) => "UNIX_TIMESTAMP(SYSDATE(6))",
        };
        now.to_owned()
    }

    fn moment_ago(&self) -> String {
        let (now, unit) = (self.now(), self.unit);
        match self.dialect {
            Dialect::Postgres => format!("{now} - interval '{unit} microseconds'"),
            Dialect::Mysql => format!("TIMESTAMPADD(MICROSECOND, -{unit}, {now})"),
        }
    }
}

/// The microseconds from `earlier` to `later`, both timestamps.
fn difference(dialect: Dialect, later: &str, earlier: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("(extract(epoch FROM {later} - {earlier}) * 1000000)::bigint"),
        Dialect::Mysql => format!("TIMESTAMPDIFF(MICROSECOND, {earlier}, {later})"),
    }
}

/// A name as SQL.
pub(crate) fn quoted(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
    }
}
