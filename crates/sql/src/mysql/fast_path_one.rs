//! The fast path for a single name: one statement without result rows. The last insert id carries the answer.

use leasehold_core::{Claim, Release};

use super::{
    conn::Set,
    database::Mysql,
    error::Commits,
    fast_path::first,
    statements::{CLAIM_ONE, RELEASE_ONE},
    text::{bytes, words},
};
use crate::{
    database::{Failed, Taken, Timed},
    row::{ClientId, micros_in, previous_number},
};

pub(super) async fn take(
    mysql: &Mysql,
    claim: &Claim,
    client: ClientId,
) -> Result<Option<Timed<Taken>>, Failed> {
    let tokens = claim.tokens.max(1);
    let text = CLAIM_ONE.with(&[
        ("name", &bytes(claim.name.as_str().as_bytes())),
        ("id", &bytes(&claim.id.0)),
        ("tokens", &tokens.to_string()),
        ("more", &(tokens - 1).to_string()),
        ("owner", &words(&claim.owner)),
        ("ttl", &micros_in(claim.ttl).to_string()),
        ("client", &client.0.cast_signed().to_string()),
    ]);
    let newest = changed(mysql, &text, 1).await?;
    Ok(newest.map(|newest| {
        let now = newest - i64::from(tokens) + 1;
        Timed { now, value: Taken { token: now, previous: 0 } }
    }))
}

pub(super) async fn free(mysql: &Mysql, release: &Release) -> Result<Option<Timed<()>>, Failed> {
    let text = RELEASE_ONE.with(&[
        ("name", &bytes(release.name.as_str().as_bytes())),
        ("id", &bytes(&release.id.0)),
        ("first", &first(release.token.map(|token| token.number)).to_string()),
        ("ended", &previous_number(release.ended).to_string()),
    ]);
    Ok(changed(mysql, &text, 0).await?.map(|now| Timed { now, value: () }))
}

/// The last insert id of the statement at this index, if it changed a row.
async fn changed(mysql: &Mysql, text: &str, at: usize) -> Result<Option<i64>, Failed> {
    let sets = mysql.many(text, Commits::At(at)).await?.unwrap_or_default();
    let number = |set: &Set| set.last.filter(|_| set.changed > 0).and_then(|last| i64::try_from(last).ok());
    Ok(sets.get(at).and_then(number))
}
