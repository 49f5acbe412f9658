//! The variables and status values of a server, and its identity.

use std::{collections::HashMap, time::Duration};

use leasehold_core::Fault;

use super::conn::ResultSet;
use crate::database::Failed;

/// Variables and status values of a server; those that it does not have are missing.
pub(crate) struct Server(HashMap<String, String>);

impl Server {
    /// Decodes the results of `server.sql` and `replicas.sql`.
    pub(crate) fn read(sets: Vec<ResultSet>) -> Self {
        let rows = sets.into_iter().flat_map(|set| set.rows);
        let pair = |row| mysql_async::from_row_opt::<(String, String)>(row).ok();
        Self(rows.filter_map(pair).map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
    }

    #[cfg(test)]
    pub(super) fn of(values: &[(&str, &str)]) -> Self {
        Self(values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The value with this name, if the server has it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// For how long the server has run: the difference between two times in whole seconds. Zero if the clock was set
    /// back behind the start of the server: the difference is then negative, and some servers show it as a very large
    /// number without a sign.
    ///
    /// # Errors
    /// If the server does not report it.
    pub(super) fn uptime(&self) -> Result<Duration, Failed> {
        let seconds = self.get("uptime").and_then(|seconds| seconds.parse::<i128>().ok());
        let seconds = seconds.ok_or_else(|| Failed::new(Fault::Misconfigured, "it reports no Uptime"))?;
        Ok(u32::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds.into())))
    }

    /// Whether this variable is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("ON") || value == "1")
    }

    /// Whether the server is a node of a Galera cluster, whose nodes certify each other's commits and so count as one
    /// server.
    pub(crate) fn is_galera(&self) -> bool {
        self.is_on("wsrep_on")
    }

    /// Whether the server is a member of a group (Group Replication) of which several members accept writes: a lock of
    /// a row excludes on one of them only.
    pub(super) fn is_group_with_several_primaries(&self) -> bool {
        let is_member = self.get("group_replication_group_name").is_some_and(|group| !group.is_empty());
        is_member && !self.is_on("group_replication_single_primary_mode")
    }

    /// Distinguishes the server from other servers that have, or had, a copy of its tables: a promoted replica does not
    /// know all grants of its primary. MySQL generates an identity for itself; MariaDB servers that replicate have
    /// numbers (`server_id`), which their operator has to set to different values. The nodes of a Galera cluster count
    /// as one server.
    pub(crate) fn identity(&self) -> u128 {
        let uuid =
            |name| self.get(name).and_then(|uuid| u128::from_str_radix(&uuid.replace('-', ""), 16).ok());
        if self.is_galera() {
            return uuid("wsrep_cluster_state_uuid").unwrap_or(0);
        }
        let number = self.get("server_id").and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
        uuid("server_uuid").unwrap_or(0) ^ (u128::from(number) << 64)
    }

    /// Whether the server ends abandoned transactions.
    pub(super) fn ends_idle_transactions(&self) -> bool {
        self.get("idle_transaction_timeout").is_some()
    }

    /// Fails on a read-only server, such as a replica. Some users have the right to write there nevertheless, but a row
    /// that is written there locks nothing on the primary.
    pub(crate) fn check_writable(&self) -> Result<(), Failed> {
        if self.is_on("read_only") || self.is_on("innodb_read_only") {
            return Err(replica_error());
        }
        Ok(())
    }
}

/// The error for a replica where a primary was expected.
pub(super) fn replica_error() -> Failed {
    Failed::new(Fault::Refused, "it is read-only, as a replica is: name the primary")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(values: &[(&str, &str)]) -> Server {
        Server::of(values)
    }

    #[test]
    fn a_promoted_copy_is_another_server_but_a_cluster_member_is_not() {
        let one = server(&[("server_id", "1")]);
        assert_ne!(one.identity(), server(&[("server_id", "2")]).identity());
        let uuid = |last: &str| format!("3e11fa47-71ca-11e1-9e33-c80aa94295{last}");
        let mysql = |last| server(&[("server_id", "1"), ("server_uuid", &uuid(last))]).identity();
        assert_ne!(mysql("62"), mysql("63"));
        let uuid = uuid("62");
        let member = |number, on| {
            let values =
                [("server_id", number), ("wsrep_on", on), ("wsrep_cluster_state_uuid", uuid.as_str())];
            server(&values).identity()
        };
        assert_eq!(member("1", "ON"), member("2", "ON"));
        assert_ne!(member("1", "OFF"), member("2", "OFF"));
    }

    #[test]
    fn a_clock_behind_the_start_is_no_uptime() {
        let uptime = |seconds| server(&[("uptime", seconds)]).uptime();
        assert_eq!(uptime("60").unwrap(), Duration::from_secs(60));
        for behind in ["-60", "18446744073709551556"] {
            assert_eq!(uptime(behind).unwrap(), Duration::ZERO, "{behind}");
        }
        assert_eq!(uptime("soon").unwrap_err().fault, Fault::Misconfigured);
    }

    #[test]
    fn a_group_has_one_primary_only_in_that_mode() {
        let (group, mode) = ("group_replication_group_name", "group_replication_single_primary_mode");
        for (values, several) in [
            (&[(group, "3e11fa47"), (mode, "OFF")][..], true),
            (&[(group, "3e11fa47")], true),
            (&[(group, "3e11fa47"), (mode, "ON")], false),
            (&[(group, ""), (mode, "OFF")], false),
            (&[], false),
        ] {
            assert_eq!(server(values).is_group_with_several_primaries(), several, "{values:?}");
        }
    }

    #[test]
    fn a_read_only_server_is_refused() {
        assert!(server(&[("read_only", "OFF")]).check_writable().is_ok());
        for value in [("read_only", "ON"), ("innodb_read_only", "ON"), ("read_only", "1")] {
            assert_eq!(server(&[value]).check_writable().unwrap_err().fault, Fault::Refused);
        }
    }
}
