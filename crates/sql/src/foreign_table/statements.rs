//! The statements of each verb, built from the fragments of a format. Pure.

use std::time::Duration;

use super::{
    format::{Format, Key},
    store::{Dialect, Statement},
};

/// How a statement reads a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Without locks, as far as it is committed.
    Plain,
    /// The same, and the column [`Format::server`], which a replica does not have.
    WithServer,
    /// Locks the row; waits until no other transaction changes it.
    Locking,
}

impl Format {
    /// Inserts the row of a claim, if there is no row with this key. Waits for a transaction that is inserting one. If
    /// that one commits, the row is left as it is, or, on MySQL in a table without owners, the statement fails: there a
    /// proxy may count a row that is left as it is as one that was inserted.
    pub(crate) fn insert(&self, key: &Key, owner: &str, ttl: Duration) -> Statement {
        let mut insert = self.insert_anyway(key, owner, ttl);
        if self.owner.is_some() || self.dialect == Dialect::Postgres {
            insert.sql += &self.on_conflict();
        }
        insert
    }

    /// Waits for a transaction that is inserting a row with this key, and possibly inserts one. Its caller rolls back.
    pub(crate) fn wait_for_insert(&self, key: &Key, owner: &str) -> Statement {
        let mut insert = self.insert_anyway(key, owner, Duration::ZERO);
        insert.sql += &self.on_conflict();
        insert
    }

    /// What follows an insert that leaves a row as it is which was committed meanwhile.
    fn on_conflict(&self) -> String {
        let (table, key_column) = (&self.table, &self.key);
        match self.dialect {
            Dialect::Postgres => " ON CONFLICT DO NOTHING".to_owned(),
            Dialect::Mysql => format!(" ON DUPLICATE KEY UPDATE {table}.{key_column} = {table}.{key_column}"),
        }
    }

    fn insert_anyway(&self, key: &Key, owner: &str, ttl: Duration) -> Statement {
        let (mut columns, mut values, mut bound) =
            (vec![self.key.as_str()], vec![key.sql.clone()], key_values(key));
        if let Some((column, _)) = &self.owner {
            columns.push(column);
            values.push("?".to_owned());
            bound.push(owner.to_owned());
        }
        for (column, value) in self.values_of_hold(ttl) {
            columns.push(column);
            values.push(value);
        }
        bound.extend(key_values(key));
        // A taken name changes nothing and takes no lock: neither an attempt to insert nor a number of the table.
        let (table, key_column) = (&self.table, &self.key);
        let from = if self.dialect == Dialect::Mysql { "FROM DUAL " } else { "" };
        let sql = format!(
            "INSERT INTO {table} ({}) SELECT {} {from}WHERE NOT EXISTS \
             (SELECT 1 FROM {table} AS held WHERE held.{key_column} = {})",
            columns.join(", "),
            values.join(", "),
            key.sql
        );
        Statement::new(sql, bound)
    }

    /// Takes over the row if it is free; `None` where no row becomes free but by its deletion.
    pub(crate) fn take(&self, key: &Key, owner: &str, ttl: Duration) -> Option<Statement> {
        let (owner_column, _) = self.owner.as_ref()?;
        let mut assignments = vec![format!("{owner_column} = ?")];
        assignments.extend(
            self.values_of_hold(ttl).into_iter().map(|(column, value)| format!("{column} = {value}")),
        );
        let condition = self.free();
        let values = [vec![owner.to_owned()], key_values(key)].concat();
        Some(self.update(&assignments, key, &condition, values))
    }

    /// Reads the row after [`insert`](Self::insert) and [`take`](Self::take): its state, whether this transaction has
    /// written it, a token, and the server.
    pub(crate) fn read_claimed(&self, key: &Key, owner: &str) -> Statement {
        let own = |text: &str| format!("CASE WHEN {text} THEN '1' ELSE '0' END");
        let more = [own(&self.is_mine()), self.as_text(self.token()), self.as_text(self.server())];
        let owners = self.owner.iter().map(|_| owner.to_owned());
        let values = owners.chain(key_values(key));
        Statement::new(self.select(&more, &format!("{} = {}", self.key, key.sql)), values)
    }

    /// Replaces one owner text by another.
    pub(crate) fn change_owner(&self, key: &Key, from: &str, to: &str) -> Option<Statement> {
        let (owner, _) = self.owner.as_ref()?;
        let values = [vec![to.to_owned()], key_values(key), vec![from.to_owned()]].concat();
        Some(self.update(&[format!("{owner} = ?")], key, &format!("{owner} = ?"), values))
    }

    /// Reads the row.
    pub(crate) fn read(&self, key: &Key, reading: Reading) -> Statement {
        let lock = if reading == Reading::Locking { " FOR UPDATE" } else { "" };
        let more = match reading {
            Reading::WithServer => vec![self.as_text(self.server())],
            Reading::Plain | Reading::Locking => Vec::new(),
        };
        let select = self.select(&more, &format!("{} = {}", self.key, key.sql));
        Statement::new(select + lock, key_values(key))
    }

    /// Reads all rows that are held and whose key begins with `prefix`.
    pub(crate) fn read_held(&self, prefix: &str) -> Statement {
        let length = prefix.chars().count();
        let key = self.as_text(&self.key);
        let condition = format!("NOT ({}) AND LEFT({key}, {length}) = ?", self.free());
        Statement::new(self.select(&[], &condition), [prefix.to_owned()])
    }

    /// Extends the hold with this owner text, unless its time has passed; `None` if holds have no time.
    pub(crate) fn extend(&self, key: &Key, owner: &str, ttl: Duration) -> Option<Statement> {
        let (owner_column, _) = self.owner.as_ref()?;
        let condition = format!("{owner_column} = ? AND NOT ({})", self.free());
        let values = [key_values(key), vec![owner.to_owned()]].concat();
        Some(self.update(&[self.extension(ttl)?], key, &condition, values))
    }

    /// Frees the row. Its caller has locked it in the same transaction, and knows whose it is. `released` is the owner
    /// text of a row that stays.
    pub(crate) fn free_row(&self, key: &Key, released: &str, min_hold: Duration) -> Statement {
        let (table, key_column) = (&self.table, &self.key);
        match self.assignments_of_release(min_hold) {
            None => Statement::new(
                format!("DELETE FROM {table} WHERE {key_column} = {}", key.sql),
                key_values(key),
            ),
            Some(mut assignments) => {
                let mut values = Vec::new();
                if let Some((owner, _)) = &self.owner {
                    // A row of Liquibase has no owner while it is free.
                    let has_owner = self.layout.has_time();
                    assignments.push(format!("{owner} = {}", if has_owner { "?" } else { "NULL" }));
                    values.extend(has_owner.then(|| released.to_owned()));
                }
                values.extend(key_values(key));
                self.update(&assignments, key, "1 = 1", values)
            }
        }
    }

    /// Frees the row if it is that of this hold, whose owner texts or identity are given.
    pub(crate) fn free_own(
        &self,
        key: &Key,
        own: [&str; 2],
        identity: &str,
        released: &str,
        min_hold: Duration,
    ) -> Statement {
        let mut freed = self.free_row(key, released, min_hold);
        let (condition, values) = match &self.owner {
            Some((owner, _)) => (format!("{owner} IN (?, ?)"), own.map(str::to_owned).to_vec()),
            None => (format!("{} = ?", self.as_text(&self.identity())), vec![identity.to_owned()]),
        };
        freed.sql = format!("{} AND {condition}", freed.sql);
        freed.values.extend(values);
        freed
    }

    /// An update of the row of a key. The values must be in the order of the text.
    fn update(&self, assignments: &[String], key: &Key, condition: &str, values: Vec<String>) -> Statement {
        let (table, key_column) = (&self.table, &self.key);
        let sql = format!(
            "UPDATE {table} SET {} WHERE {key_column} = {} AND {condition}",
            assignments.join(", "),
            key.sql
        );
        Statement::new(sql, values)
    }

    /// Selects the columns that [`StoredRow::read`](super::row::StoredRow::read) reads, and `more`.
    fn select(&self, more: &[String], condition: &str) -> String {
        let owner = self.owner.as_ref().map_or("NULL", |(owner, _)| owner);
        let mut columns: Vec<String> = [&self.key, owner, &self.remaining(), &self.held(), &self.identity()]
            .map(|column| self.as_text(column))
            .into();
        columns.insert(2, format!("CASE WHEN {} THEN '1' ELSE '0' END", self.free()));
        columns.extend_from_slice(more);
        format!("SELECT {} FROM {} WHERE {condition}", columns.join(", "), self.table)
    }

    fn as_text(&self, sql: &str) -> String {
        match self.dialect {
            Dialect::Postgres => format!("({sql})::text"),
            Dialect::Mysql => format!("CAST({sql} AS CHAR)"),
        }
    }
}

fn key_values(key: &Key) -> Vec<String> {
    key.value.iter().cloned().collect()
}
