//! The fast path for many names in one round trip: takes, releases and extends, reading at most one row per name.

use std::collections::{BTreeMap, HashMap};

use leasehold_core::{Claim, ClaimId, Hold, Name, Release};

use super::{
    conn::{Conn, ResultSet},
    database::Mysql,
    error::{Commits, RequestError},
    fast_path_one,
    rows::Columns,
    statements::{
        CLAIM_MANY, RELEASE_MANY, RELEASED, RENEW_CLAIMS, RENEW_LOCKS, RENEWED_CLAIMS, RENEWED_LOCKS,
    },
    text::{NOW, bytes, claims, list, triples, words},
};
use crate::{
    database::{Failed, Taken, Timed},
    row::{ClientId, micros_in, previous_code},
};

/// The maximum number of names that one statement extends; MariaDB uses another plan for lists of a thousand or more.
const MAX_LOCKS: usize = 500;
/// The maximum number of claim rows that one statement looks up: the server compares each row with all of them.
const MAX_CLAIMS: usize = 256;

/// The names as a list of literals.
fn literals<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    list(names.map(|name| bytes(name.as_str().as_bytes())))
}

/// The number of a token, for a statement; 0 for no token, which no hold has.
pub(super) fn token_number(number: Option<u64>) -> i64 {
    number.map_or(0, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// See [`Database::take`](crate::database::Database::take).
pub(super) async fn take(
    mysql: &Mysql,
    claims: &[Claim],
    client: ClientId,
) -> Result<Vec<Option<Timed<Taken>>>, Failed> {
    if let [claim] = claims {
        return Ok(vec![fast_path_one::take(mysql, claim, client).await?]);
    }
    let (stamp, client) = (mysql.stamp(), client.0.cast_signed());
    let row = |claim: &Claim| {
        let tokens = claim.tokens.max(1);
        format!(
            "({}, {NOW}, GREATEST(since, @floor + 1) + {}, {}, {tokens}, {}, since + {}, {client}, {stamp})",
            bytes(claim.name.as_str().as_bytes()),
            tokens - 1,
            bytes(&claim.id.0),
            words(&claim.owner),
            micros_in(claim.ttl),
        )
    };
    let rows = list(claims.iter().map(row));
    let names = literals(claims.iter().map(|claim| &claim.name));
    let text = CLAIM_MANY.with(&[("rows", &rows), ("names", &names), ("stamp", &stamp)]);
    let sets = mysql.execute_unless_locked(&text, Commits::At(1)).await?.unwrap_or_default();
    let taken = taken(&sets).map_err(Failed::in_doubt)?;
    let taken_of = |claim: &Claim| {
        let (newest, previous, now) = *taken.get(&(claim.name.as_str().to_owned(), claim.id))?;
        let token = newest.saturating_sub(claim.tokens.max(1).into()).saturating_add(1);
        Some(Timed { now, value: Taken { token, previous } })
    };
    Ok(claims.iter().map(taken_of).collect())
}

/// The grants of a statement, by name and claim: newest token, how the previous hold ended, and the time.
type Grants = HashMap<(String, ClaimId), (i64, i16, i64)>;

/// Decodes the grants, by name and claim.
fn taken(sets: &[ResultSet]) -> Result<Grants, Failed> {
    let mut taken = HashMap::new();
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = Columns::of(row);
        if let (name, Some(id)) = (columns.name()?, columns.id()?) {
            taken.insert((name, id), (columns.next()?, columns.next()?, columns.next()?));
        }
    }
    Ok(taken)
}

/// See [`Database::free`](crate::database::Database::free).
pub(super) async fn free(mysql: &Mysql, releases: &[Release]) -> Result<Vec<Option<Timed<()>>>, Failed> {
    if let [release] = releases {
        return Ok(vec![fast_path_one::free(mysql, release).await?]);
    }
    let stamp = mysql.stamp();
    let mut by_ending: BTreeMap<i16, Vec<&Release>> = BTreeMap::new();
    for release in releases {
        by_ending.entry(previous_code(release.ended)).or_default().push(release);
    }
    let update = |(ended, releases): (&i16, &Vec<&Release>)| {
        let hold = |release: &&'_ Release| token_number(release.token.map(|token| token.number));
        let holds = releases.iter().map(|release| (release.name.as_str(), release.id, hold(release)));
        RELEASE_MANY.with(&[
            ("names", &literals(releases.iter().map(|release| &release.name))),
            ("holds", &triples(holds)),
            ("ended", &ended.to_string()),
            ("stamp", &stamp),
        ])
    };
    let updates: Vec<String> = by_ending.iter().map(update).collect();
    // A claim that takes a name right after its release would hide the release: so the result is read before other
    // clients see it.
    let names = literals(releases.iter().map(|release| &release.name));
    let released = RELEASED.with(&[("names", &names), ("stamp", &stamp)]);
    let commits = Commits::At(updates.len() + 2);
    let text = format!("BEGIN; {}; {released}; COMMIT", updates.join("; "));
    let sets = mysql.execute_unless_locked(&text, commits).await?.unwrap_or_default();
    let freed = freed(&sets).map_err(Failed::in_doubt)?;
    let freed_of = |release: &Release| Some(Timed { now: *freed.get(release.name.as_str())?, value: () });
    Ok(releases.iter().map(freed_of).collect())
}

/// Decodes the released names, with the time of each release.
fn freed(sets: &[ResultSet]) -> Result<HashMap<String, i64>, Failed> {
    let rows = sets.iter().flat_map(|set| &set.rows);
    let pair = |row| {
        let mut columns = Columns::of(row);
        Ok((columns.name()?, columns.next()?))
    };
    rows.map(pair).collect()
}

/// The time of each extension by [`renew`], by name and claim.
type Extended = HashMap<(String, ClaimId), i64>;

/// See [`Database::renew`](crate::database::Database::renew).
pub(super) async fn renew(mysql: &Mysql, holds: &[Hold]) -> Result<Vec<Option<Timed<()>>>, Failed> {
    let mut borrowed = mysql.pool.conn().await?;
    // Holds of another server are lost, even if its rows were copied to this server.
    let lineage = borrowed.conn.lineage();
    let current: Vec<&Hold> = holds.iter().filter(|hold| hold.token.lineage == lineage).collect();
    let mut extended = Extended::new();
    let key = |hold: &Hold| (hold.name.as_str().to_owned(), hold.id);
    // An exclusive hold is usually in the row of its lock; every other hold is in a row of its claim.
    let renew_all = async |conn: &mut Conn, extended: &mut Extended| {
        for holds in current.chunks(MAX_LOCKS) {
            extend(conn, &renew_in_lock_rows(holds, &mysql.stamp()), extended).await?;
        }
        let remaining: Vec<&Hold> =
            current.iter().copied().filter(|hold| !extended.contains_key(&key(hold))).collect();
        for holds in remaining.chunks(MAX_CLAIMS) {
            extend(conn, &renew_in_claim_rows(holds, &mysql.stamp()), extended).await?;
        }
        Ok(())
    };
    match renew_all(&mut borrowed.conn, &mut extended).await {
        Ok(()) => borrowed.give_back()?,
        // The other holds are renewed one by one.
        Err(RequestError::Busy | RequestError::Deadlock) => {}
        Err(request_error) => return Err(request_error.failed()),
    }
    Ok(holds.iter().map(|hold| Some(Timed { now: *extended.get(&key(hold))?, value: () })).collect())
}

/// Groups holds by their ttl in microseconds.
fn by_ttl<'a>(holds: &[&'a Hold]) -> BTreeMap<i64, Vec<&'a Hold>> {
    let mut groups: BTreeMap<i64, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        groups.entry(micros_in(hold.ttl)).or_default().push(hold);
    }
    groups
}

/// The statements that extend fast-path holds, and read which of them were extended.
fn renew_in_lock_rows(holds: &[&Hold], stamp: &str) -> String {
    let update = |(ttl, holds): (i64, Vec<&Hold>)| {
        let number = |hold: &Hold| token_number(Some(hold.token.number));
        RENEW_LOCKS.with(&[
            ("names", &literals(holds.iter().map(|hold| &hold.name))),
            ("holds", &triples(holds.iter().map(|hold| (hold.name.as_str(), hold.id, number(hold))))),
            ("ttl", &ttl.to_string()),
            ("stamp", stamp),
        ])
    };
    let mut statements: Vec<String> = by_ttl(holds).into_iter().map(update).collect();
    let names = literals(holds.iter().map(|hold| &hold.name));
    statements.push(RENEWED_LOCKS.with(&[("names", &names), ("stamp", stamp)]));
    statements.join("; ")
}

/// The statements that extend holds in claim rows, and read which of them were extended.
fn renew_in_claim_rows(holds: &[&Hold], stamp: &str) -> String {
    let number = |hold: &Hold| Some(token_number(Some(hold.token.number)));
    let of = |holds: &[&Hold]| claims(holds.iter().map(|hold| (hold.name.as_str(), hold.id, number(hold))));
    let update = |(ttl, holds): (i64, Vec<&Hold>)| {
        RENEW_CLAIMS.with(&[("claims", &of(&holds)), ("ttl", &ttl.to_string()), ("stamp", stamp)])
    };
    let mut statements: Vec<String> = by_ttl(holds).into_iter().map(update).collect();
    statements.push(RENEWED_CLAIMS.with(&[("claims", &of(holds)), ("stamp", stamp)]));
    statements.join("; ")
}

/// Executes statements that extend holds, and adds the extended ones.
async fn extend(conn: &mut Conn, text: &str, extended: &mut Extended) -> Result<(), RequestError> {
    let sets =
        conn.execute(text).await.map_err(|execute_error| RequestError::of(&execute_error, Commits::At(0)))?;
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = Columns::of(row);
        if let (name, Some(id)) = (columns.name()?, columns.id()?) {
            extended.insert((name, id), columns.next()?);
        }
    }
    Ok(())
}
