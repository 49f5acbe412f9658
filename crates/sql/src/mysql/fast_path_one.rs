//! The fast path for a single name: one statement without result rows. The last insert id carries the answer.
//!
//! It is a prepared statement where the server prepares it: the server needs more time to parse the text than to do the
//! rest. A server that does not, such as one with too many prepared statements, gets the text each time.

use leasehold_core::{Claim, ClaimId, Release};
use mysql_async::{Params, Value, params};

use super::{
    conn::ResultSet,
    database::Mysql,
    error::Commits,
    fast_path::token_number,
    statements::{CLAIM_ONE, RELEASE_ONE, TAKE_ONE},
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
    // The newest token is that much larger than the first.
    let (more, ttl, client) = (tokens - 1, duration_micros(claim.ttl), client.0.cast_signed());
    let grant = |newest: i64| {
        // The statement takes the time of the database as the first token.
        let now = newest - i64::from(tokens) + 1;
        Timed { now, value: FastGrant { token: now, previous: 0 } }
    };
    let values = params! {
        "name" => name_value(claim.name.as_str()), "id" => digits(claim.id), "tokens" => tokens, "more" => more,
        "owner" => &*claim.owner, "ttl" => ttl, "client" => client,
    };
    let taken = mysql.execute_prepared_unless_locked(TAKE_ONE.statements(), values).await?;
    let Some(taken) = taken else { return Ok(None) };
    if let Some(newest) = taken.as_ref().and_then(last_insert_id) {
        return Ok(Some(grant(newest)));
    }
    let text = CLAIM_ONE.with_values(&[
        ("name", &bytes_literal(claim.name.as_str().as_bytes())),
        ("id", &bytes_literal(&claim.id.0)),
        ("tokens", &tokens.to_string()),
        ("more", &more.to_string()),
        ("owner", &text_literal(&claim.owner)),
        ("ttl", &ttl.to_string()),
        ("client", &client.to_string()),
    ]);
    Ok(last_insert_id_of(mysql, &text, CLAIM_STATEMENT).await?.map(grant))
}

/// Releases one hold, see [`Database::fast_release`](crate::database::Database::fast_release).
pub(super) async fn release(mysql: &Mysql, release: &Release) -> Result<Option<Timed<()>>, Failed> {
    let first = token_number(release.token.map(|token| token.number));
    let ended = previous_code(release.ended);
    let values: Params = params! {
        "name" => name_value(release.name.as_str()), "id" => digits(release.id), "first" => first, "ended" => ended,
    };
    let released = mysql.execute_prepared_unless_locked(RELEASE_ONE.statements(), values).await?;
    let Some(released) = released else { return Ok(None) };
    let now = match released {
        Some(released) => last_insert_id(&released),
        None => {
            let text = RELEASE_ONE.with_values(&[
                ("name", &bytes_literal(release.name.as_str().as_bytes())),
                ("id", &format!("'{}'", digits(release.id))),
                ("first", &first.to_string()),
                ("ended", &ended.to_string()),
            ]);
            last_insert_id_of(mysql, &text, RELEASE_STATEMENT).await?
        }
    };
    Ok(now.map(|now| Timed { now, value: () }))
}

fn name_value(name: &str) -> Value {
    Value::Bytes(name.as_bytes().to_vec())
}

/// The id as hexadecimal digits.
fn digits(id: ClaimId) -> String {
    let literal = bytes_literal(&id.0);
    literal.trim_start_matches('x').trim_matches('\'').to_owned()
}

/// Executes statements; returns the last insert id of the statement at this index, if that statement changed a row.
async fn last_insert_id_of(mysql: &Mysql, text: &str, index: usize) -> Result<Option<i64>, Failed> {
    let sets = mysql.execute_unless_locked(text, Commits::At(index)).await?.unwrap_or_default();
    Ok(sets.get(index).and_then(last_insert_id))
}

/// The last insert id of a statement that changed a row.
fn last_insert_id(set: &ResultSet) -> Option<i64> {
    set.last_insert_id.filter(|_| set.changed_rows > 0).and_then(|id| i64::try_from(id).ok())
}
