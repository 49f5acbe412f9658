//! What happened in the last day.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    response::Response,
};

use super::{field, fields, or_dash, page as whole_page};
use crate::{
    guard::Identity,
    history::{Entry, Kind},
    html::{Html, link},
    state::Shared,
    time::{rfc3339, short},
};

/// How many changes a page shows.
const SHOWN: usize = 200;
/// How many of the longest waits are shown.
const LONGEST: usize = 10;

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = fields(query.as_deref().unwrap_or_default());
    let (filter, kind) = (field(&query, "q").to_lowercase(), field(&query, "kind"));
    let mut html = Html::new();
    html.raw("<form method=\"get\" action=\"/history\" role=\"search\"><label>Name or owner ");
    html.raw("<input name=\"q\" type=\"search\" maxlength=\"512\" value=\"").text(field(&query, "q"));
    html.raw("\"></label> <label>Change <select name=\"kind\"><option value=\"\">all</option>");
    for known in [Kind::Granted, Kind::Ended, Kind::Lapsed, Kind::Broken, Kind::Left] {
        html.raw("<option value=\"").text(known.word());
        html.raw(if known.word() == kind { "\" selected>" } else { "\">" })
            .text(known.word())
            .raw("</option>");
    }
    html.raw("</select></label> <button>Show</button></form>");
    let history = shared.history();
    let counts = history.counts();
    html.raw("<p>In this history: ").text(counts.granted).raw(" grants, ").text(counts.lapsed);
    html.raw(" leases that ran out, ")
        .text(counts.broken)
        .raw(" breaks by this page or seen by it, ")
        .text(counts.left);
    html.raw(" waits that ended without a grant that a look saw. It is in memory, begins with this process, and reaches back one day");
    if let Some(at) = history.cut_at() {
        html.raw("; older changes than ").text(rfc3339(at)).raw(" were dropped, because there are so many");
    }
    html.raw(". A hold that began and ended between two looks is not in it.</p>");
    let longest = history.longest_waits(LONGEST);
    if !longest.is_empty() {
        table(&mut html, &shared, "Longest waits", longest.into_iter());
    }
    let matches = |entry: &&Entry| {
        (kind.is_empty() || entry.kind.word() == kind)
            && (filter.is_empty()
                || entry.name.to_lowercase().contains(&filter)
                || entry.owner.to_lowercase().contains(&filter))
    };
    table(&mut html, &shared, "Newest changes", history.newest().filter(matches).take(SHOWN));
    drop(history);
    whole_page("History", Some(&identity), true, &html)
}

/// Changes as a table.
pub(super) fn table<'e>(
    html: &mut Html,
    shared: &Shared,
    title: &str,
    entries: impl Iterator<Item = &'e Entry>,
) {
    html.raw("<table><caption>").text(title).raw("</caption><thead><tr>");
    for title in ["Time", "Change", "Name", "Engine", "Owner", "Token", "Waited", "Held"] {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>");
    for entry in entries {
        let label = &shared.engines[entry.engine].label;
        html.raw("<tr><td>").text(rfc3339(entry.at)).raw("</td><td>").text(entry.kind.word());
        html.raw("</td><th scope=\"row\"><a href=\"");
        html.text(link("/name", &[("engine", label), ("name", &entry.name)])).raw("\">").text(&entry.name);
        html.raw("</a></th><td>").text(label).raw("</td><td>").text(&entry.owner).raw("</td><td>");
        html.text(or_dash(entry.token)).raw("</td><td>");
        let lasted = or_dash(entry.lasted.map(short));
        let (waited, held) = if entry.kind.is_wait() { (&*lasted, "-") } else { ("-", &*lasted) };
        html.text(waited).raw("</td><td>").text(held).raw("</td></tr>");
    }
    html.raw("</tbody></table>");
}
