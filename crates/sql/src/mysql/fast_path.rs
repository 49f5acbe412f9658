//! The fast path for many names in one round trip: acquires, releases and extends holds, and reads at most one row per
//! name.

use std::collections::{BTreeMap, HashMap};

use leasehold_core::{Claim, ClaimId, Hold, Name, Release};

use super::{
    conn::{Conn, ResultSet},
    database::Mysql,
    error::{Commits, RequestError},
    fast_path_one,
    rows::ColumnReader,
    statements::{
        CLAIM_MANY, READ_RELEASED, READ_RENEWED_CLAIMS, READ_RENEWED_LOCKS, RELEASE_MANY, RENEW_CLAIMS,
        RENEW_LOCKS,
    },
    text::{NOW, bytes_literal, claims_condition, comma_list, hold_tuples, text_literal},
};
use crate::{
    database::{Failed, FastGrant, Timed},
    row::{ClientId, duration_micros, previous_code},
};

/// The maximum number of names that one statement extends; MariaDB uses another plan for lists of a thousand or more.
const MAX_LOCKS: usize = 500;
/// The maximum number of claim rows that one statement looks up: the server compares each row with all of them.
const MAX_CLAIMS: usize = 256;

/// The names as a list of literals.
fn literals<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    comma_list(names.map(|name| bytes_literal(name.as_str().as_bytes())))
}

/// The number of a token, for a statement; 0 if there is no token, because no hold has the token 0.
pub(super) fn token_number(number: Option<u64>) -> i64 {
    number.map_or(0, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// Grants claims by the fast path, see [`Database::fast_claim`](crate::database::Database::fast_claim).
pub(super) async fn claim(
    mysql: &Mysql,
    claims: &[Claim],
    client: ClientId,
) -> Result<Vec<Option<Timed<FastGrant>>>, Failed> {
    if let [claim] = claims {
        return Ok(vec![fast_path_one::claim(mysql, claim, client).await?]);
    }
    let (stamp, client) = (mysql.stamp(), client.0.cast_signed());
    // One row of `:rows` in claim_many.sql: name, since, token, holder, tokens, owner, expires, client, stamp.
    let row = |claim: &Claim| {
        let tokens = claim.tokens.max(1);
        format!(
            "({}, {NOW}, GREATEST(since, @floor + 1) + {}, {}, {tokens}, {}, since + {}, {client}, {stamp})",
            bytes_literal(claim.name.as_str().as_bytes()),
            tokens - 1,
            bytes_literal(&claim.id.0),
            text_literal(&claim.owner),
            duration_micros(claim.ttl),
        )
    };
    let rows = comma_list(claims.iter().map(row));
    let names = literals(claims.iter().map(|claim| &claim.name));
    let text = CLAIM_MANY.with_values(&[("rows", &rows), ("names", &names), ("stamp", &stamp)]);
    // The second statement, the INSERT, commits by itself; the one before it sets the floor.
    let sets = mysql.execute_unless_locked(&text, Commits::At(1)).await?.unwrap_or_default();
    let grants = decode_grants(&sets).map_err(Failed::in_doubt)?;
    let grant_of = |claim: &Claim| {
        let (newest, previous, now) = *grants.get(&(claim.name.as_str().to_owned(), claim.id))?;
        let token = newest.saturating_sub(claim.tokens.max(1).into()).saturating_add(1);
        Some(Timed { now, value: FastGrant { token, previous } })
    };
    Ok(claims.iter().map(grant_of).collect())
}

/// The grants of a statement, by name and claim: newest token, how the previous hold ended, and the time.
type Grants = HashMap<(String, ClaimId), (i64, i16, i64)>;

/// Decodes the grants, by name and claim.
fn decode_grants(sets: &[ResultSet]) -> Result<Grants, Failed> {
    let mut grants = HashMap::new();
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = ColumnReader::new(row);
        if let (name, Some(id)) = (columns.text()?, columns.id()?) {
            grants.insert((name, id), (columns.next()?, columns.next()?, columns.next()?));
        }
    }
    Ok(grants)
}

/// Releases fast-path holds, see [`Database::fast_release`](crate::database::Database::fast_release).
pub(super) async fn release(mysql: &Mysql, releases: &[Release]) -> Result<Vec<Option<Timed<()>>>, Failed> {
    if let [release] = releases {
        return Ok(vec![fast_path_one::release(mysql, release).await?]);
    }
    let stamp = mysql.stamp();
    let mut by_ending: BTreeMap<i16, Vec<&Release>> = BTreeMap::new();
    for release in releases {
        by_ending.entry(previous_code(release.ended)).or_default().push(release);
    }
    let update_statement = |(ended, releases): (&i16, &Vec<&Release>)| {
        let first_token = |release: &&'_ Release| token_number(release.token.map(|token| token.number));
        let holds = releases.iter().map(|release| (release.name.as_str(), release.id, first_token(release)));
        RELEASE_MANY.with_values(&[
            ("names", &literals(releases.iter().map(|release| &release.name))),
            ("holds", &hold_tuples(holds)),
            ("ended", &ended.to_string()),
            ("stamp", &stamp),
        ])
    };
    let updates: Vec<String> = by_ending.iter().map(update_statement).collect();
    // A claim that is granted a name right after its release overwrites the row that shows the release. So the result
    // is read before the commit shows the release to other clients.
    let names = literals(releases.iter().map(|release| &release.name));
    let released = READ_RELEASED.with_values(&[("names", &names), ("stamp", &stamp)]);
    // The COMMIT is the last statement, after BEGIN, the updates and the SELECT.
    let commits = Commits::At(updates.len() + 2);
    let text = format!("BEGIN; {}; {released}; COMMIT", updates.join("; "));
    let sets = mysql.execute_unless_locked(&text, commits).await?.unwrap_or_default();
    let release_times = decode_releases(&sets).map_err(Failed::in_doubt)?;
    let release_of =
        |release: &Release| Some(Timed { now: *release_times.get(release.name.as_str())?, value: () });
    Ok(releases.iter().map(release_of).collect())
}

/// Decodes the released names, with the time of each release.
fn decode_releases(sets: &[ResultSet]) -> Result<HashMap<String, i64>, Failed> {
    let rows = sets.iter().flat_map(|set| &set.rows);
    let pair = |row| {
        let mut columns = ColumnReader::new(row);
        Ok((columns.text()?, columns.next()?))
    };
    rows.map(pair).collect()
}

/// The time of each extension by [`renew`], by name and claim.
type Extended = HashMap<(String, ClaimId), i64>;

/// Extends holds, see [`Database::renew`](crate::database::Database::renew).
pub(super) async fn renew(mysql: &Mysql, holds: &[Hold]) -> Result<Vec<Option<Timed<()>>>, Failed> {
    let mut borrowed = mysql.pool.borrow().await?;
    // Holds of another server are lost, even if its rows were copied to this server.
    let lineage = borrowed.conn.lineage();
    let holds_here: Vec<&Hold> = holds.iter().filter(|hold| hold.token.lineage == lineage).collect();
    let mut extended = Extended::new();
    let key = |hold: &Hold| (hold.name.as_str().to_owned(), hold.id);
    // An exclusive hold is usually in the row of its name; every other hold is in a claim row.
    let renew_all = async |conn: &mut Conn, extended: &mut Extended| {
        for holds in holds_here.chunks(MAX_LOCKS) {
            extend(conn, &renew_in_lock_rows(holds, &mysql.stamp()), extended).await?;
        }
        let remaining: Vec<&Hold> =
            holds_here.iter().copied().filter(|hold| !extended.contains_key(&key(hold))).collect();
        for holds in remaining.chunks(MAX_CLAIMS) {
            extend(conn, &renew_in_claim_rows(holds, &mysql.stamp()), extended).await?;
        }
        Ok(())
    };
    match renew_all(&mut borrowed.conn, &mut extended).await {
        Ok(()) => borrowed.give_back()?,
        // `Client::renew` renews each hold without a result by a transaction of its own.
        Err(RequestError::Busy | RequestError::Deadlock) => {}
        Err(request_error) => return Err(request_error.failed()),
    }
    Ok(holds.iter().map(|hold| Some(Timed { now: *extended.get(&key(hold))?, value: () })).collect())
}

/// Groups holds by their ttl in microseconds.
fn by_ttl<'a>(holds: &[&'a Hold]) -> BTreeMap<i64, Vec<&'a Hold>> {
    let mut groups: BTreeMap<i64, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        groups.entry(duration_micros(hold.ttl)).or_default().push(hold);
    }
    groups
}

/// The statements that extend fast-path holds, and read which of them were extended.
fn renew_in_lock_rows(holds: &[&Hold], stamp: &str) -> String {
    let update_statement = |(ttl, holds): (i64, Vec<&Hold>)| {
        let first_token = |hold: &Hold| token_number(Some(hold.token.number));
        RENEW_LOCKS.with_values(&[
            ("names", &literals(holds.iter().map(|hold| &hold.name))),
            (
                "holds",
                &hold_tuples(holds.iter().map(|hold| (hold.name.as_str(), hold.id, first_token(hold)))),
            ),
            ("ttl", &ttl.to_string()),
            ("stamp", stamp),
        ])
    };
    let mut statements: Vec<String> = by_ttl(holds).into_iter().map(update_statement).collect();
    let names = literals(holds.iter().map(|hold| &hold.name));
    statements.push(READ_RENEWED_LOCKS.with_values(&[("names", &names), ("stamp", stamp)]));
    statements.join("; ")
}

/// The statements that extend holds in claim rows, and read which of them were extended.
fn renew_in_claim_rows(holds: &[&Hold], stamp: &str) -> String {
    let first_token = |hold: &Hold| Some(token_number(Some(hold.token.number)));
    let condition = |holds: &[&Hold]| {
        claims_condition(holds.iter().map(|hold| (hold.name.as_str(), hold.id, first_token(hold))))
    };
    let update_statement = |(ttl, holds): (i64, Vec<&Hold>)| {
        RENEW_CLAIMS.with_values(&[
            ("claims", &condition(&holds)),
            ("ttl", &ttl.to_string()),
            ("stamp", stamp),
        ])
    };
    let mut statements: Vec<String> = by_ttl(holds).into_iter().map(update_statement).collect();
    statements.push(READ_RENEWED_CLAIMS.with_values(&[("claims", &condition(holds)), ("stamp", stamp)]));
    statements.join("; ")
}

/// Executes statements that extend holds, and adds the holds that were extended to `extended`.
async fn extend(conn: &mut Conn, text: &str, extended: &mut Extended) -> Result<(), RequestError> {
    let sets =
        conn.execute(text).await.map_err(|execute_error| RequestError::of(&execute_error, Commits::At(0)))?;
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = ColumnReader::new(row);
        if let (name, Some(id)) = (columns.text()?, columns.id()?) {
            extended.insert((name, id), columns.next()?);
        }
    }
    Ok(())
}
