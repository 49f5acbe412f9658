//! Ends a hold: a form with the hold that is to end, and its submission.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};

use leasehold_ops::audit::{Audit, BreakRecord};

use super::{field, fields, page as whole_page, refusal, since, until};
use crate::{
    breaking::{self, Outcome, Wish},
    guard::{How, Identity, Peer, Role},
    html::{Html, link},
    row::Row,
    state::Shared,
    time::now_ms,
};

/// The form. Asking for it changes nothing.
pub(crate) async fn form(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    RawQuery(query): RawQuery,
) -> Response {
    if let Err(refused) = may_break(&shared, &identity) {
        return refused;
    }
    let query = fields(query.as_deref().unwrap_or_default());
    let (label, name, token) = (field(&query, "engine"), field(&query, "name"), field(&query, "token"));
    let Some((_, engine)) = shared.engine(label) else {
        return refusal(StatusCode::NOT_FOUND, "There is no such engine.");
    };
    let look = engine.look();
    let row = look.rows.iter().find(|row| row.name == name);
    let Some(row) = row.filter(|row| row.holders.iter().any(|holder| is_token(holder.token, token))) else {
        return refusal(StatusCode::NOT_FOUND, "Nothing is held under this token.");
    };
    let mut html = card(row, label, token);
    html.raw("<form method=\"post\" action=\"/break\">");
    let form_token = sign(&shared, &identity, label, name, token);
    for (key, value) in [("engine", label), ("name", name), ("token", token), ("form", &form_token)] {
        html.raw("<input type=\"hidden\" name=\"").text(key).raw("\" value=\"").text(value).raw("\">");
    }
    html.raw(
        "<p><label>Reason, for the audit<br><input name=\"reason\" required maxlength=\"500\" size=\"60\" ",
    );
    html.raw(
        "autocomplete=\"off\"></label></p><p><label><input type=\"checkbox\" name=\"force\" value=\"yes\"> ",
    );
    html.raw("Do not wait until the holder releases or its lease ends: then only a fence protects the resource from ");
    html.raw("it</label></p><p><a href=\"").text(row.link(label)).raw("\">Cancel</a> ");
    html.raw("<button class=\"break\">Break this hold</button></p></form>");
    whole_page("Break a hold", Some(&identity), false, &html)
}

/// Ends the hold.
pub(crate) async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    Extension(Peer(address)): Extension<Peer>,
    body: String,
) -> Response {
    let audit = match may_break(&shared, &identity) {
        Ok(audit) => audit,
        Err(refused) => return refused,
    };
    let body = fields(&body);
    let (label, name, token) = (field(&body, "engine"), field(&body, "name"), field(&body, "token"));
    // A program with a token in a header has no form, and no other site can make it send a request.
    if identity.how != How::Token && !is_signed(&shared, &identity, label, name, token, field(&body, "form"))
    {
        let why = "This form is not of your session, or is of another hold. Load its page anew.";
        return refusal(StatusCode::FORBIDDEN, why);
    }
    let Some((engine, _)) = shared.engine(label) else {
        return refusal(StatusCode::NOT_FOUND, "There is no such engine.");
    };
    let Some(reason) = BreakRecord::reason(field(&body, "reason")) else {
        return refusal(
            StatusCode::UNPROCESSABLE_ENTITY,
            "A break needs a reason of at most 500 characters.",
        );
    };
    let Ok(number) = token.parse() else {
        return refusal(StatusCode::UNPROCESSABLE_ENTITY, "The token is no number.");
    };
    let wish = Wish {
        identity: identity.clone(),
        address,
        engine,
        name: name.to_owned(),
        token: number,
        force: field(&body, "force") == "yes",
        reason: reason.to_owned(),
    };
    let outcome = breaking::break_hold(Arc::clone(&shared), audit, wish).await;
    let mut html = Html::new();
    html.raw("<p role=\"alert\">").text(outcome.text()).raw("</p><p><a href=\"");
    html.text(link("/name", &[("engine", label), ("name", name)])).raw("\">").text(name).raw("</a></p>");
    (status(&outcome), whole_page("Break a hold", Some(&identity), false, &html)).into_response()
}

const fn status(outcome: &Outcome) -> StatusCode {
    match outcome {
        Outcome::Broken | Outcome::Asked(_) | Outcome::DoneUnrecorded(..) => StatusCode::OK,
        Outcome::NotHeld => StatusCode::CONFLICT,
        Outcome::Failed(_) => StatusCode::BAD_GATEWAY,
        Outcome::NotRecorded(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Where breaks are recorded, if this sender may break.
#[expect(clippy::result_large_err, reason = "the error is the answer, and made one time for a request")]
fn may_break(shared: &Shared, identity: &Identity) -> Result<Audit, Response> {
    let Some(audit) = &shared.audit else {
        let why = "This page cannot break holds: it was started without --allow-break.";
        return Err(refusal(StatusCode::FORBIDDEN, why));
    };
    if identity.role < Role::Break {
        return Err(refusal(StatusCode::FORBIDDEN, "You may read, but not break holds."));
    }
    Ok(audit.clone())
}

/// The hold that is to end.
fn card(row: &Row, label: &str, token: &str) -> Html {
    let (mut html, now) = (Html::new(), now_ms());
    html.raw("<dl><dt>Name</dt><dd>")
        .text(&row.name)
        .raw("</dd><dt>Engine</dt><dd>")
        .text(label)
        .raw("</dd>");
    for holder in row.holders.iter().filter(|holder| is_token(holder.token, token)) {
        html.raw("<dt>Holder</dt><dd>").text(holder.owner_text()).raw("</dd><dt>Token</dt><dd>").text(token);
        html.raw("</dd><dt>Held</dt><dd>");
        since(&mut html, holder.since, now);
        html.raw("</dd><dt>Lease ends in</dt><dd>");
        until(&mut html, holder.until, holder.end_text(), now);
        html.raw("</dd>");
    }
    html.raw("<dt>Waiting</dt><dd>").text(row.waiters.len()).raw("</dd></dl>");
    html
}

fn is_token(token: Option<u64>, text: &str) -> bool {
    token.is_some_and(|token| token.to_string() == text)
}

/// The token of a form. It is of one person and of one hold.
fn sign(shared: &Shared, identity: &Identity, label: &str, name: &str, token: &str) -> String {
    shared.access.key.sign(&["break", &identity.form_key, label, name, token])
}

fn is_signed(shared: &Shared, identity: &Identity, label: &str, name: &str, token: &str, form: &str) -> bool {
    shared.access.key.is_signature(&["break", &identity.form_key, label, name, token], form)
}
