//! The statements by which the programs themselves create their tables, and the error for a missing table.

use super::{
    options::{ForeignTable, Layout},
    store::Dialect,
};
use crate::database::{Failed, misconfigured};

/// The statement that creates the table in the form of its program. `name`: its quoted name.
pub(crate) fn create_table(table: &ForeignTable, dialect: Dialect, name: &str) -> String {
    let is_mysql = dialect == Dialect::Mysql;
    match table.layout {
        Layout::Shedlock => {
            let time = if is_mysql { "TIMESTAMP(3)" } else { "TIMESTAMP" };
            let default = if is_mysql { " DEFAULT CURRENT_TIMESTAMP(3)" } else { "" };
            format!(
                "CREATE TABLE {name} (name VARCHAR(64) NOT NULL, lock_until {time} NOT NULL, \
                 locked_at {time} NOT NULL{default}, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"
            )
        }
        Layout::Symfony => {
            let (expiration, end) = if is_mysql {
                ("INTEGER UNSIGNED NOT NULL", " COLLATE utf8mb4_bin, ENGINE = InnoDB")
            } else {
                ("INTEGER", "")
            };
            format!(
                "CREATE TABLE {name} (key_id VARCHAR(64) NOT NULL PRIMARY KEY, key_token VARCHAR(44) NOT NULL, \
                 key_expiration {expiration}){end}"
            )
        }
        Layout::Laravel => {
            let key = super::format::quoted(dialect, "key");
            format!(
                "CREATE TABLE {name} ({key} VARCHAR(255) NOT NULL PRIMARY KEY, owner VARCHAR(255) NOT NULL, \
                 expiration INTEGER NOT NULL)"
            )
        }
        Layout::Liquibase => {
            let (flag, time) = if is_mysql { ("TINYINT", "DATETIME") } else { ("BOOLEAN", "TIMESTAMP") };
            let locked = super::format::quoted(dialect, if is_mysql { "LOCKED" } else { "locked" });
            format!(
                "CREATE TABLE {name} (ID INTEGER NOT NULL, {locked} {flag} NOT NULL, LOCKGRANTED {time}, \
                 LOCKEDBY VARCHAR(255), PRIMARY KEY (ID))"
            )
        }
        Layout::Insert => {
            let column = super::format::quoted(dialect, table.column.as_deref().unwrap_or_default());
            format!("CREATE TABLE {name} ({column} VARCHAR(255) NOT NULL PRIMARY KEY)")
        }
    }
}

/// The error for a missing table, with the statement that creates it.
pub(crate) fn missing_table(table: &ForeignTable, dialect: Dialect) -> Failed {
    let name = table.table_name(dialect);
    let statement = create_table(table, dialect, &super::format::quoted(dialect, name));
    let option = if table.layout == Layout::Insert { "" } else { ", or add create=yes to the URL" };
    misconfigured(&format!(
        "its table {name} does not exist, or this user has no right to it: create it by {statement}{option}"
    ))
}
