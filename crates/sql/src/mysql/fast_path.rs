//! The fast path for many names in one round trip: takes, releases and extends, reading at most one row per name.

use std::collections::{BTreeMap, HashMap};

use leasehold_core::{Claim, ClaimId, Hold, Name, Release};

use super::{
    conn::{Conn, Set},
    database::Mysql,
    error::{Commits, Stopped},
    fast_path_one,
    rows::Columns,
    statements::{
        CLAIM_MANY, RELEASE_MANY, RELEASED, RENEW_CLAIMS, RENEW_LOCKS, RENEWED_CLAIMS, RENEWED_LOCKS,
    },
    text::{NOW, bytes, claims, list, triples, words},
};
use crate::{
    database::{Failed, Taken, Timed},
    row::{ClientId, micros_in, previous_number},
};

/// How many names one statement extends; MariaDB uses another plan for lists of a thousand or more.
const LOCKS_AT_ONCE: usize = 500;
/// How many claim rows one statement looks up: the server compares each row with all of them.
const CLAIMS_AT_ONCE: usize = 256;

fn literals<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    list(names.map(|name| bytes(name.as_str().as_bytes())))
}

pub(super) fn first(number: Option<u64>) -> i64 {
    number.map_or(0, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

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
    let sets = mysql.many(&text, Commits::At(1)).await?.unwrap_or_default();
    let taken = taken(&sets).map_err(Failed::in_doubt)?;
    let one = |claim: &Claim| {
        let (newest, previous, now) = *taken.get(&(claim.name.as_str().to_owned(), claim.id))?;
        let token = newest.saturating_sub(claim.tokens.max(1).into()).saturating_add(1);
        Some(Timed { now, value: Taken { token, previous } })
    };
    Ok(claims.iter().map(one).collect())
}

/// Newest token, how the previous hold ended, and the time, by name and claim.
type Grants = HashMap<(String, ClaimId), (i64, i16, i64)>;

/// Decodes the grants, by name and claim.
fn taken(sets: &[Set]) -> Result<Grants, Failed> {
    let mut taken = HashMap::new();
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = Columns::of(row);
        if let (name, Some(id)) = (columns.name()?, columns.id()?) {
            taken.insert((name, id), (columns.next()?, columns.next()?, columns.next()?));
        }
    }
    Ok(taken)
}

pub(super) async fn free(mysql: &Mysql, releases: &[Release]) -> Result<Vec<Option<Timed<()>>>, Failed> {
    if let [release] = releases {
        return Ok(vec![fast_path_one::free(mysql, release).await?]);
    }
    let stamp = mysql.stamp();
    let mut ends: BTreeMap<i16, Vec<&Release>> = BTreeMap::new();
    for release in releases {
        ends.entry(previous_number(release.ended)).or_default().push(release);
    }
    let update = |(ended, releases): (&i16, &Vec<&Release>)| {
        let hold = |release: &&'_ Release| first(release.token.map(|token| token.number));
        let holds = releases.iter().map(|release| (release.name.as_str(), release.id, hold(release)));
        RELEASE_MANY.with(&[
            ("names", &literals(releases.iter().map(|release| &release.name))),
            ("holds", &triples(holds)),
            ("ended", &ended.to_string()),
            ("stamp", &stamp),
        ])
    };
    let updates: Vec<String> = ends.iter().map(update).collect();
    // A claim that takes a name right after its release would hide the release: so the result is read before other
    // clients see it.
    let names = literals(releases.iter().map(|release| &release.name));
    let released = RELEASED.with(&[("names", &names), ("stamp", &stamp)]);
    let commits = Commits::At(updates.len() + 2);
    let text = format!("BEGIN; {}; {released}; COMMIT", updates.join("; "));
    let sets = mysql.many(&text, commits).await?.unwrap_or_default();
    let freed = freed(&sets).map_err(Failed::in_doubt)?;
    let one = |release: &Release| Some(Timed { now: *freed.get(release.name.as_str())?, value: () });
    Ok(releases.iter().map(one).collect())
}

fn freed(sets: &[Set]) -> Result<HashMap<String, i64>, Failed> {
    let rows = sets.iter().flat_map(|set| &set.rows);
    let pair = |row| {
        let mut columns = Columns::of(row);
        Ok((columns.name()?, columns.next()?))
    };
    rows.map(pair).collect()
}

/// The time of each extension by [`renew`], by name and claim.
type Extended = HashMap<(String, ClaimId), i64>;

pub(super) async fn renew(mysql: &Mysql, holds: &[Hold]) -> Result<Vec<Option<Timed<()>>>, Failed> {
    let mut lent = mysql.pool.conn().await?;
    // Grants of another server are lost, even if its rows were copied to this one.
    let lineage = lent.conn.lineage();
    let ours: Vec<&Hold> = holds.iter().filter(|hold| hold.token.lineage == lineage).collect();
    let mut extended = Extended::new();
    let key = |hold: &Hold| (hold.name.as_str().to_owned(), hold.id);
    let asked = async |conn: &mut Conn, extended: &mut Extended| {
        for holds in ours.chunks(LOCKS_AT_ONCE) {
            extend(conn, &renew_locks(holds, &mysql.stamp()), extended).await?;
        }
        let rest: Vec<&Hold> =
            ours.iter().copied().filter(|hold| !extended.contains_key(&key(hold))).collect();
        for holds in rest.chunks(CLAIMS_AT_ONCE) {
            extend(conn, &renew_claims(holds, &mysql.stamp()), extended).await?;
        }
        Ok(())
    };
    match asked(&mut lent.conn, &mut extended).await {
        Ok(()) => lent.back()?,
        // The other holds are renewed one by one.
        Err(Stopped::Busy | Stopped::Deadlock) => {}
        Err(stopped) => return Err(stopped.failed()),
    }
    Ok(holds.iter().map(|hold| Some(Timed { now: *extended.get(&key(hold))?, value: () })).collect())
}

fn by_ttl<'a>(holds: &[&'a Hold]) -> BTreeMap<i64, Vec<&'a Hold>> {
    let mut groups: BTreeMap<i64, Vec<&Hold>> = BTreeMap::new();
    for hold in holds {
        groups.entry(micros_in(hold.ttl)).or_default().push(hold);
    }
    groups
}

fn renew_locks(holds: &[&Hold], stamp: &str) -> String {
    let update = |(ttl, holds): (i64, Vec<&Hold>)| {
        let number = |hold: &Hold| first(Some(hold.token.number));
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

fn renew_claims(holds: &[&Hold], stamp: &str) -> String {
    let number = |hold: &Hold| Some(first(Some(hold.token.number)));
    let of = |holds: &[&Hold]| claims(holds.iter().map(|hold| (hold.name.as_str(), hold.id, number(hold))));
    let update = |(ttl, holds): (i64, Vec<&Hold>)| {
        RENEW_CLAIMS.with(&[("claims", &of(&holds)), ("ttl", &ttl.to_string()), ("stamp", stamp)])
    };
    let mut statements: Vec<String> = by_ttl(holds).into_iter().map(update).collect();
    statements.push(RENEWED_CLAIMS.with(&[("claims", &of(holds)), ("stamp", stamp)]));
    statements.join("; ")
}

async fn extend(conn: &mut Conn, text: &str, extended: &mut Extended) -> Result<(), Stopped> {
    let sets = conn.execute(text).await.map_err(|broke| Stopped::of(&broke, Commits::At(0)))?;
    for row in sets.iter().flat_map(|set| &set.rows) {
        let mut columns = Columns::of(row);
        if let (name, Some(id)) = (columns.name()?, columns.id()?) {
            extended.insert((name, id), columns.next()?);
        }
    }
    Ok(())
}
