//! The fast path for a single name: one statement without result rows. The last insert id carries the answer.

use leasehold_core::{Claim, Release};

use super::{
    conn::ResultSet,
    database::Mysql,
    error::Commits,
    fast_path::token_number,
    statements::{CLAIM_ONE, RELEASE_ONE},
    text::{bytes_literal, text_literal},
};
use crate::{
    database::{Failed, FastGrant, Timed},
    row::{ClientId, duration_micros, previous_code},
};

/// The index of the claiming statement in `claim_one.sql`; the statement before it sets the floor.
const CLAIM_STATEMENT: usize = 1;
/// The index of the only statement in `release_one.sql`.
const RELEASE_STATEMENT: usize = 0;

/// Grants one claim, see [`Database::fast_claim`](crate::database::Database::fast_claim).
pub(super) async fn claim(
    mysql: &Mysql,
    claim: &Claim,
    client: ClientId,
) -> Result<Option<Timed<FastGrant>>, Failed> {
    let tokens = claim.tokens.max(1);
    let text = CLAIM_ONE.with_values(&[
        ("name", &bytes_literal(claim.name.as_str().as_bytes())),
        ("id", &bytes_literal(&claim.id.0)),
        ("tokens", &tokens.to_string()),
        // The newest token is that much larger than the first.
        ("more", &(tokens - 1).to_string()),
        ("owner", &text_literal(&claim.owner)),
        ("ttl", &duration_micros(claim.ttl).to_string()),
        ("client", &client.0.cast_signed().to_string()),
    ]);
    let newest = last_insert_id_of(mysql, &text, CLAIM_STATEMENT).await?;
    Ok(newest.map(|newest| {
        // The statement takes the time of the database as the first token.
        let now = newest - i64::from(tokens) + 1;
        Timed { now, value: FastGrant { token: now, previous: 0 } }
    }))
}

/// Releases one hold, see [`Database::fast_release`](crate::database::Database::fast_release).
pub(super) async fn release(mysql: &Mysql, release: &Release) -> Result<Option<Timed<()>>, Failed> {
    let text = RELEASE_ONE.with_values(&[
        ("name", &bytes_literal(release.name.as_str().as_bytes())),
        ("id", &bytes_literal(&release.id.0)),
        ("first", &token_number(release.token.map(|token| token.number)).to_string()),
        ("ended", &previous_code(release.ended).to_string()),
    ]);
    Ok(last_insert_id_of(mysql, &text, RELEASE_STATEMENT).await?.map(|now| Timed { now, value: () }))
}

/// Executes statements; returns the last insert id of the statement at this index, if that statement changed a row.
async fn last_insert_id_of(mysql: &Mysql, text: &str, index: usize) -> Result<Option<i64>, Failed> {
    let sets = mysql.execute_unless_locked(text, Commits::At(index)).await?.unwrap_or_default();
    let last_insert_id = |set: &ResultSet| {
        set.last_insert_id.filter(|_| set.changed_rows > 0).and_then(|id| i64::try_from(id).ok())
    };
    Ok(sets.get(index).and_then(last_insert_id))
}
