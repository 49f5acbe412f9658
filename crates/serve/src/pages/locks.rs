//! The first page: the names in use.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    response::Response,
};
use serde_json::{Value, json};

use super::{or_dash, page as whole_page, since, until, waits};
use crate::{
    guard::Identity,
    html::{Html, visible},
    row::{Row, Since},
    state::Shared,
    table::{Query, Selection, Sort},
    time::now_ms,
};

/// What a row shows. The server and the script of the page show the same.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Cells {
    /// The address of the name's page. It identifies the row, too.
    pub(crate) link: String,
    name: String,
    engine: String,
    mode: String,
    holder: String,
    token: String,
    held_since: Option<Since>,
    until: Option<u64>,
    /// What is shown if the end is not a time.
    end: &'static str,
    waiting: usize,
    oldest_wait: Option<Since>,
}

impl Cells {
    pub(crate) fn new(engine: &str, row: &Row) -> Self {
        let first = row.holders.first();
        Self {
            link: row.link(engine),
            name: row.name.clone(),
            engine: engine.to_owned(),
            mode: row.mode.clone(),
            holder: row.holder_text(),
            token: or_dash(first.and_then(|holder| holder.token)),
            held_since: row.held_since(),
            until: first.and_then(|holder| holder.until),
            end: first.map_or("-", |holder| holder.end_text()),
            waiting: row.waiters.len(),
            oldest_wait: row.oldest_wait(),
        }
    }

    /// For the script, which shows each text as text.
    pub(crate) fn json(&self) -> Value {
        json!({
            "link": self.link,
            "name": visible(&self.name),
            "engine": visible(&self.engine),
            "mode": self.mode,
            "holder": visible(&self.holder),
            "token": self.token,
            "held": self.held_since.map(|since| since.at),
            "held_longer": self.held_since.is_some_and(|since| since.is_latest),
            "until": self.until,
            "end": self.end,
            "waiting": self.waiting,
            "oldest": self.oldest_wait.map(|since| since.at),
            "oldest_longer": self.oldest_wait.is_some_and(|since| since.is_latest),
        })
    }

    fn write(&self, html: &mut Html, now: u64) {
        html.raw("<tr data-row=\"").text(&self.link).raw("\"><th scope=\"row\"><a href=\"").text(&self.link);
        html.raw("\">").text(&self.name).raw("</a></th><td>").text(&self.engine);
        html.raw("</td><td>").text(&self.mode).raw("</td><td>").text(&self.holder);
        html.raw("</td><td>").text(&self.token).raw("</td><td>");
        since(html, self.held_since, now);
        html.raw("</td><td>");
        until(html, self.until, self.end, now);
        html.raw("</td><td>").text(self.waiting).raw("</td><td>");
        since(html, self.oldest_wait, now);
        html.raw("</td></tr>\n");
    }
}

/// How much there is, in one line.
pub(crate) fn status(selection: &Selection) -> String {
    let Selection { names, matching, waiting, .. } = selection;
    format!("Names in use: {names}, matching: {matching}, requests that wait for these: {waiting}.")
}

pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    Extension(identity): Extension<Identity>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = Query::parse(query.as_deref().unwrap_or_default());
    let (selection, now) = (shared.select(&query), now_ms());
    let mut html = Html::new();
    html.add(&engines(&shared, now)).add(&waits::line(&waits::summary(&shared)));
    html.add(&form(&shared, &query));
    html.raw("<p role=\"status\" id=\"status\">").text(status(&selection)).raw("</p>");
    html.raw("<p id=\"live\"><button id=\"pause\" type=\"button\" hidden>Pause</button> ");
    html.raw("<span id=\"connection\"></span></p>");
    html.raw("<table id=\"locks\"><caption>Names that are held or waited for</caption><thead><tr>");
    for title in
        ["Name", "Engine", "Mode", "Holder", "Token", "Held", "Lease ends in", "Waiting", "Longest wait"]
    {
        html.raw("<th scope=\"col\">").text(title).raw("</th>");
    }
    html.raw("</tr></thead><tbody>\n");
    for (engine, row) in selection.rows() {
        Cells::new(&shared.engines[engine].label, row).write(&mut html, now);
    }
    html.raw("</tbody></table>").add(&pager(&query, &selection));
    whole_page("Locks", Some(&identity), true, &html)
}

/// A line for each engine.
fn engines(shared: &Shared, now: u64) -> Html {
    let mut html = Html::new();
    html.raw("<ul id=\"engines\">");
    for engine in &shared.engines {
        let look = engine.look();
        let is_away = look.error.is_some() || look.is_stale(now);
        html.raw(if is_away { "<li class=\"away\">" } else { "<li>" });
        html.raw("<a href=\"/engines\">").text(&engine.label).raw("</a> <span>");
        html.text(engine.health().level())
            .raw("</span> <span>")
            .text(look.state_text(now))
            .raw("</span></li>");
    }
    html.raw("</ul>");
    html
}

/// The filter and the order.
fn form(shared: &Shared, query: &Query) -> Html {
    let mut html = Html::new();
    html.raw("<form id=\"query\" method=\"get\" action=\"/\" role=\"search\"><label>Name or owner ");
    html.raw("<input name=\"q\" type=\"search\" maxlength=\"512\" value=\"")
        .text(&query.filter)
        .raw("\"></label> ");
    html.raw("<label>Engine <select name=\"engine\"><option value=\"\">all</option>");
    for engine in &shared.engines {
        html.raw("<option value=\"").text(&engine.label);
        html.raw(if engine.label == query.engine { "\" selected>" } else { "\">" });
        html.text(&engine.label).raw("</option>");
    }
    html.raw("</select></label> <label>Order <select name=\"sort\">");
    for sort in Sort::ALL {
        html.raw("<option value=\"").text(sort.word());
        html.raw(if sort == query.sort { "\" selected>" } else { "\">" }).text(sort.label()).raw("</option>");
    }
    html.raw("</select></label> <button>Show</button></form>");
    html
}

/// Links to the pages before and after.
fn pager(query: &Query, selection: &Selection) -> Html {
    let mut html = Html::new();
    let pages = selection.pages();
    if pages > 1 {
        html.raw("<nav aria-label=\"Parts of the list\"><p>Page ").text(query.page.saturating_add(1));
        html.raw(" of ").text(pages);
        if query.page > 0 {
            html.raw(" <a href=\"").text(query.link((query.page - 1).min(pages - 1))).raw("\">before</a>");
        }
        if query.page + 1 < pages {
            html.raw(" <a href=\"").text(query.link(query.page + 1)).raw("\">after</a>");
        }
        html.raw("</p></nav>");
    }
    html
}
