//! The page of one name: holders, waiters, what happened, and a link to end a hold.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};

use leasehold_ops::{Remark, remarks};

use super::{field, fields, history, or_dash, page as whole_page, refusal, since, until};
use crate::{
    guard::{Identity, Role},
    html::{Html, link},
    row::{Row, short_id},
    state::{EngineState, Shared},
    time::now_ms,
};

/// How many changes of the name are shown.
const SHOWN_CHANGES: usize = 50;

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = fields(query.as_deref().unwrap_or_default());
    let Some((number, engine)) = shared.engine(field(&query, "engine")) else {
        return refusal(StatusCode::NOT_FOUND, "There is no such engine.");
    };
    let (name, now, look) = (field(&query, "name"), now_ms(), engine.look());
    let row = look.rows.iter().find(|row| row.name == name);
    let may_break = shared.audit.is_some() && identity.role == Role::Break;
    let mut html = Html::new();
    html.raw("<p>Engine ").text(&engine.label).raw(": ").text(look.state_text(now)).raw("</p>");
    match row {
        Some(row) => {
            let view = look.views.iter().find(|view| view.name.as_str() == name);
            let remarks = view.map(remarks).unwrap_or_default();
            html.add(&state(engine, row, &remarks, now, may_break));
        }
        None => drop(html.raw("<p>Nobody holds this name or waits for it.</p>")),
    }
    let guard = shared.history();
    let changes = guard.newest().filter(|entry| entry.engine == number && entry.name == name);
    history::table(&mut html, &shared, "What happened", changes.take(SHOWN_CHANGES));
    drop(guard);
    whole_page(name, Some(&identity), true, &html)
}

/// Holders and waiters.
fn state(engine: &EngineState, row: &Row, remarks: &[Remark], now: u64, may_break: bool) -> Html {
    let mut html = Html::new();
    html.raw("<dl><dt>Mode</dt><dd>")
        .text(&row.mode)
        .raw("</dd><dt>Key</dt><dd>")
        .text(&row.key)
        .raw("</dd>");
    for (what, text) in [("Problem", &row.problem), ("Note", &row.note)] {
        if let Some(text) = text {
            html.raw("<dt>").text(what).raw("</dt><dd>").text(text).raw("</dd>");
        }
    }
    for Remark { what, text } in remarks {
        html.raw("<dt>").text(capitalised(what)).raw("</dt><dd>").text(text).raw("</dd>");
    }
    html.raw("</dl><table><caption>Holders</caption><thead><tr>");
    for title in ["Owner", "Token", "Held", "Lease ends in", "Claim", ""] {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for holder in &row.holders {
        html.raw("<tr><th scope=\"row\">").text(holder.owner_text()).raw("</th><td>");
        html.text(or_dash(holder.token)).raw("</td><td>");
        since(&mut html, holder.since, now);
        html.raw("</td><td>");
        until(&mut html, holder.until, holder.end_text(), now);
        html.raw("</td><td>").text(short_id(&holder.id)).raw("</td><td>");
        if let Some(token) = holder.token.filter(|_| may_break && !holder.foreign) {
            let token = token.to_string();
            let query = [("engine", &*engine.label), ("name", &row.name), ("token", &token)];
            html.raw("<a class=\"break\" href=\"").text(link("/break", &query)).raw("\">Break…</a>");
        }
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table><table><caption>Waiters, the first is granted next</caption><thead><tr>");
    for title in ["Place", "Owner", "Waited", "Claim"] {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for (place, waiter) in (1..).zip(&row.waiters) {
        html.raw("<tr><td>").text(place).raw("</td><th scope=\"row\">").text(&waiter.owner);
        html.raw("</th><td>");
        since(&mut html, waiter.since, now);
        html.raw("</td><td>").text(short_id(&waiter.id)).raw("</td></tr>");
    }
    html.raw("</tbody></table>");
    html
}

/// The word with a capital letter.
fn capitalised(word: &str) -> String {
    word.chars().enumerate().map(|(place, c)| if place == 0 { c.to_ascii_uppercase() } else { c }).collect()
}
