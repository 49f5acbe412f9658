//! Diagnostics that PostgreSQL and MySQL share: facts of a server, judged for operators. Pure.

use std::time::Duration;

use leasehold_core::{Diagnostic, Fault, Severity};

use crate::{connection_slots::ConnectionSlots, database::Failed};

/// A difference of clocks below this one is not told: schedules and people notice larger ones only.
const MAX_CLOCK_OFFSET: Duration = Duration::from_secs(1);
/// From this age on a transaction of another program counts as long: our own end within a tenth of this.
pub(crate) const LONG_TRANSACTION: Duration = Duration::from_secs(600);
/// From this age on a transaction that uses our tables delays locks: a third of the default ttl, which is the time
/// between two renewals of a hold.
#[cfg(feature = "postgres")]
pub(crate) const LONG_ROW_LOCK: Duration = Duration::from_secs(10);
/// Fewer free connections than this share (1/n) of all are told. Waiting clients then close theirs.
const FREE_SHARE: u32 = 8;

/// The time of a server, and the time of this machine before and after it was read: microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub(crate) sent: i64,
    pub(crate) server: i64,
    pub(crate) received: i64,
}

impl ClockReading {
    /// Tells an offset of the clocks that is larger than a second and than the uncertainty of this reading.
    pub(crate) fn judge(self, id: &'static str) -> Diagnostic {
        // The server read its clock at some time between the two readings here.
        let uncertainty = micros(self.received.saturating_sub(self.sent)) / 2;
        let middle = self.sent.saturating_add(self.received.saturating_sub(self.sent) / 2);
        let (offset, way, risk) = match self.server.saturating_sub(middle) {
            behind @ ..0 => (micros(behind.saturating_neg()), "behind", "forward, it ends leases early"),
            ahead => (micros(ahead), "ahead of", "back, it prolongs leases"),
        };
        if offset <= MAX_CLOCK_OFFSET.max(uncertainty) {
            return Diagnostic::good(
                id,
                format!("the clock of the server differs from the clock of this machine by {offset:.1?}"),
            );
        }
        let found = format!("the clock of the server is {offset:.1?} {way} the clock of this machine");
        let advice = format!(
            "set both clocks by NTP, slowly: schedules and the times of logs differ, and when the clock of the \
             server is set {risk}"
        );
        Diagnostic::new(id, Severity::Warning, found, advice)
    }
}

/// A number of microseconds; zero for a negative one.
pub(crate) fn micros(number: i64) -> Duration {
    Duration::from_micros(u64::try_from(number).unwrap_or(0))
}

/// An age in words, for a person.
pub(crate) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}min", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

/// Tells whether connections of the server are free.
pub(crate) fn connections(id: &'static str, slots: Option<ConnectionSlots>) -> Diagnostic {
    let Some(slots) = slots else {
        let advice = "let the user see which sessions exist";
        return Diagnostic::new(
            id,
            Severity::Unknown,
            "the user may not see how many connections are free",
            advice,
        );
    };
    let Some((free, allowed)) = slots.scarcest() else {
        return Diagnostic::good(id, "the server has no limit on connections");
    };
    let found = format!("{free} of {allowed} connections are free");
    if free >= allowed.div_ceil(FREE_SHARE) {
        return Diagnostic::good(id, found);
    }
    let severity = if free == 0 { Severity::Broken } else { Severity::Warning };
    let advice = "allow more connections, or let programs use fewer: a new client cannot connect when none is free, \
                  and waiting clients poll instead of being notified while few are free";
    Diagnostic::new(id, severity, found, advice)
}

/// The oldest transaction that a look found.
#[derive(Clone, Debug)]
pub(crate) struct OldTransaction {
    /// The session, and its program as far as it is known.
    pub(crate) who: String,
    pub(crate) age: Duration,
}

/// Tells a transaction that keeps the server from removing old versions of rows. `grant` says how the user gets the
/// right to see the transactions of others; `None` if it has that right.
pub(crate) fn oldest_transaction(
    id: &'static str,
    oldest: Option<&OldTransaction>,
    grant: Option<String>,
) -> Diagnostic {
    match (oldest, grant) {
        (Some(oldest), _) if oldest.age >= LONG_TRANSACTION => Diagnostic::new(
            id,
            Severity::Warning,
            format!("{} has been in a transaction for {}", oldest.who, age(oldest.age)),
            "end that transaction: while it lasts, the server keeps every old version of the rows of locks, and each \
             renewal adds one, so requests become slow",
        ),
        (_, Some(grant)) => Diagnostic::new(
            id,
            Severity::Unknown,
            "the user may not see the transactions of other users",
            grant,
        ),
        (oldest, None) => {
            let found = oldest.map_or_else(
                || "no other transaction is open".to_owned(),
                |oldest| format!("the oldest transaction has lasted for {}", age(oldest.age)),
            );
            Diagnostic::good(id, found)
        }
    }
}

/// The rights of the user on one table.
#[derive(Clone, Debug)]
pub(crate) struct TableRights {
    /// The table, as a `GRANT` names it.
    pub(crate) table: String,
    /// The rights that locks need and the user lacks.
    pub(crate) missing: Vec<&'static str>,
}

/// Tells which rights the user lacks to lock.
pub(crate) fn rights(id: &'static str, user: &str, tables: &[TableRights]) -> Diagnostic {
    let lacking: Vec<_> = tables.iter().filter(|table| !table.missing.is_empty()).collect();
    if lacking.is_empty() {
        return Diagnostic::good(id, "the user has the rights on the tables that locks need");
    }
    let list = |text: fn(&TableRights, &str) -> String, separator: &str| {
        lacking.iter().map(|table| text(table, user)).collect::<Vec<_>>().join(separator)
    };
    let found = list(|table, _| format!("{} on {}", table.missing.join(", "), table.table), "; ");
    let grants =
        list(|table, user| format!("GRANT {} ON {} TO {user}", table.missing.join(", "), table.table), "; ");
    Diagnostic::new(
        id,
        Severity::Broken,
        format!("the user cannot lock: it lacks the right {found}"),
        format!("let the owner of the tables run: {grants}"),
    )
}

/// Tells whether the tables of leasehold exist, and are as it makes them.
pub(crate) fn tables(id: &'static str, exist: Result<&bool, &Failed>) -> Diagnostic {
    match exist {
        Ok(true) => Diagnostic::good(id, "the tables are as this version of leasehold makes them"),
        Ok(false) => Diagnostic::new(
            id,
            Severity::Good,
            "the tables do not exist: the first claim creates them",
            "if the user of the locks may not create tables, let another user run the output of `leasehold schema`",
        ),
        Err(failed) => {
            let broken = matches!(failed.fault, Fault::Misconfigured | Fault::Denied);
            let severity = if broken { Severity::Broken } else { Severity::Unknown };
            Diagnostic::new(id, severity, format!("the tables cannot be used: {failed}"), "")
        }
    }
}

/// Tells whether the table of another program exists, and can store locks.
pub(crate) fn table_of_program(id: &'static str, found: Result<(), Failed>) -> Diagnostic {
    match found {
        Ok(()) => Diagnostic::good(id, "the table of the other program can store locks"),
        Err(failed) => tables(id, Err(&failed)),
    }
}

/// Tells that nothing encrypts the connection.
pub(crate) fn clear_text(id: &'static str, advice: &'static str) -> Diagnostic {
    Diagnostic::new(
        id,
        Severity::Warning,
        "the connection to another machine is not encrypted: others on the way can read and change requests",
        advice,
    )
}

/// The lock of another program on one of our tables.
#[cfg(feature = "postgres")]
#[derive(Clone, Debug)]
pub(crate) struct TableLock {
    pub(crate) table: String,
    /// The session, and its program as far as it is known.
    pub(crate) who: String,
    /// Whether the lock excludes every writer of the table. Otherwise it is the lock of some of its rows.
    pub(crate) is_whole: bool,
    /// Since when its transaction is open, as far as the user may see it.
    pub(crate) age: Option<Duration>,
}

/// Tells a lock of another program on our tables. `end` says how an operator ends the session.
#[cfg(feature = "postgres")]
pub(crate) fn table_lock(id: &'static str, locks: &[TableLock], end: &str) -> Diagnostic {
    let worst = locks.iter().max_by_key(|lock| (lock.is_whole, lock.age));
    let Some(lock) = worst.filter(|lock| lock.is_whole || lock.age >= Some(LONG_ROW_LOCK)) else {
        return Diagnostic::good(id, "no other program keeps the tables of locks locked");
    };
    let since = lock.age.map_or_else(String::new, |since| format!(" in a transaction of {}", age(since)));
    let what = if lock.is_whole { "keeps the table" } else { "may keep rows of the table" };
    Diagnostic::new(
        id,
        Severity::Warning,
        format!("{} {what} {} locked{since}", lock.who, lock.table),
        format!("{end}: renewals fail while it lasts, so holds are lost when it lasts longer than their ttl"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn an_offset_is_told_above_a_second_and_above_the_uncertainty() {
        for (server, received, severity, word) in [
            (1000 * SECOND, 1000 * SECOND, Severity::Good, "by 0"),
            (1001 * SECOND, 1000 * SECOND, Severity::Good, "by 1.0s"),
            (1002 * SECOND, 1000 * SECOND, Severity::Warning, "2.0s ahead of"),
            (998 * SECOND, 1000 * SECOND, Severity::Warning, "2.0s behind"),
            // The answer took 10 s: the server may have read its clock at any moment of them.
            (1010 * SECOND, 1010 * SECOND, Severity::Good, "by 5.0s"),
            (1011 * SECOND, 1010 * SECOND, Severity::Warning, "6.0s ahead of"),
        ] {
            let reading = ClockReading { sent: 1000 * SECOND, server, received };
            let told = reading.judge("c");
            assert_eq!(told.severity, severity, "{told:?}");
            assert!(told.found.contains(word), "{told:?}");
        }
        let absurd = ClockReading { sent: i64::MIN, server: i64::MAX, received: i64::MIN };
        assert_eq!(absurd.judge("c").severity, Severity::Warning);
    }

    #[test]
    fn few_free_connections_are_told_by_the_scarcest_limit() {
        for (used, severity) in [(80, Severity::Good), (90, Severity::Warning), (100, Severity::Broken)] {
            let slots = ConnectionSlots::new([(1, 1000), (used, 100), (5, -1)]);
            let told = connections("c", Some(slots));
            assert_eq!(told.severity, severity, "{told:?}");
            assert!(told.found.contains(&format!("{} of 100", 100 - used)), "{told:?}");
        }
        assert_eq!(connections("c", None).severity, Severity::Unknown);
        let unlimited = ConnectionSlots::new([(1, -1), (1, -1), (1, -1)]);
        assert_eq!(connections("c", Some(unlimited)).severity, Severity::Good);
    }

    #[test]
    fn a_long_transaction_is_told_even_to_a_user_who_sees_only_its_own() {
        let old = |seconds| OldTransaction { who: "pid 7".into(), age: Duration::from_secs(seconds) };
        let grant = || Some("GRANT".to_owned());
        for (age, grant, severity) in [
            (Some(599), None, Severity::Good),
            (Some(600), None, Severity::Warning),
            (Some(600), grant(), Severity::Warning),
            (Some(1), grant(), Severity::Unknown),
            (None, grant(), Severity::Unknown),
            (None, None, Severity::Good),
        ] {
            let told = oldest_transaction("t", age.map(old).as_ref(), grant);
            assert_eq!(told.severity, severity, "{told:?}");
        }
    }

    #[test]
    fn missing_rights_are_told_with_their_grants() {
        let table = |table: &str, missing: &[&'static str]| TableRights {
            table: table.to_owned(),
            missing: missing.to_vec(),
        };
        assert_eq!(rights("r", "u", &[table("a", &[])]).severity, Severity::Good);
        let told =
            rights("r", "u", &[table("a", &["INSERT", "DELETE"]), table("b", &[]), table("c", &["SELECT"])]);
        assert_eq!(told.severity, Severity::Broken);
        assert!(told.advice.contains("GRANT INSERT, DELETE ON a TO u; GRANT SELECT ON c TO u"), "{told:?}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_lock_of_rows_is_told_only_when_it_lasts() {
        let lock = |is_whole, age: Option<u64>| TableLock {
            table: "t".into(),
            who: "pid 7".into(),
            is_whole,
            age: age.map(Duration::from_secs),
        };
        for (locks, severity, word) in [
            (vec![], Severity::Good, "no other program"),
            (vec![lock(false, Some(9))], Severity::Good, "no other program"),
            (vec![lock(false, None)], Severity::Good, "no other program"),
            (
                vec![lock(false, Some(10))],
                Severity::Warning,
                "may keep rows of the table t locked in a transaction of 10s",
            ),
            (vec![lock(true, None), lock(false, Some(99))], Severity::Warning, "keeps the table t locked"),
        ] {
            let told = table_lock("l", &locks, "end it");
            assert_eq!(told.severity, severity, "{told:?}");
            assert!(told.found.contains(word), "{told:?}");
        }
    }

    #[test]
    fn ages_are_words_for_people() {
        let words = [5, 119, 120, 7199, 7200].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(words, ["5s", "119s", "2min", "119min", "2h"]);
    }
}
