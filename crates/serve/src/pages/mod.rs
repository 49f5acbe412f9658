//! The pages. They work without a script; the script only keeps the list of locks up to date.

pub(crate) mod break_;
pub(crate) mod engines;
pub(crate) mod history;
pub(crate) mod locks;
pub(crate) mod login;
pub(crate) mod name;
pub(crate) mod waits;

use axum::{
    Extension,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{
    guard::{How, Identity, Role},
    html::Html,
    row::Since,
    time::{rfc3339, short},
};

/// The sender of a request, where it need not be known.
pub(crate) type MaybeIdentity = Option<Extension<Identity>>;

/// A page, with what all pages have. `refresh`: whether a browser without scripts is to load it anew.
pub(crate) fn page(title: &str, identity: Option<&Identity>, refresh: bool, content: &Html) -> Response {
    let mut html = Html::new();
    html.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    html.text(title).raw(" - leasehold</title>");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    if refresh {
        html.raw("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>");
    }
    html.raw(
        "<link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/page.js\" defer></script></head><body>",
    );
    html.raw("<header><nav aria-label=\"Pages\"><a href=\"/\">Locks</a> <a href=\"/waits\">Waits</a> ");
    html.raw("<a href=\"/history\">History</a> ");
    html.raw("<a href=\"/engines\">Engines</a></nav>");
    if let Some(identity) = identity {
        html.raw("<span class=\"who\">").text(&identity.who);
        html.text(if identity.role == Role::Break { ", may break" } else { ", may read" }).raw("</span>");
        if identity.how == How::Session {
            html.raw("<form method=\"post\" action=\"/logout\"><button>Log out</button></form>");
        }
    }
    html.raw(if refresh { "</header><main data-refresh><h1>" } else { "</header><main><h1>" })
        .text(title)
        .raw("</h1>")
        .add(content);
    html.raw(
        "</main><footer>This page only looks at the locks that the engines store. It stores nothing that ",
    );
    html.raw("locks need, and locks work without it.</footer></body></html>\n");
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html.into_string()).into_response()
}

/// A page that says why a request was not carried out.
pub(crate) fn refusal(status: StatusCode, why: &str) -> Response {
    let mut content = Html::new();
    content.raw("<p role=\"alert\">").text(why).raw("</p>");
    let title = status.canonical_reason().unwrap_or("Refused");
    (status, page(title, None, false, &content)).into_response()
}

/// A time that passed since a moment, which the script keeps up to date.
fn since(html: &mut Html, since: Option<Since>, now: u64) {
    match since {
        Some(Since { at, is_latest }) => {
            html.raw("<time data-since=\"").text(at);
            html.raw(if is_latest { "\" data-longer=\"yes" } else { "" });
            html.raw(if is_latest { "\" title=\"seen since " } else { "\" title=\"since " })
                .text(rfc3339(at));
            html.raw("\">").text(if is_latest { ">" } else { "" });
            html.text(short(now.saturating_sub(at))).raw("</time>");
        }
        None => drop(html.raw("-")),
    }
}

/// The time until a moment, which the script keeps up to date.
fn until(html: &mut Html, until: Option<u64>, none: &str, now: u64) {
    match until {
        Some(until) => {
            html.raw("<time data-until=\"").text(until).raw("\">");
            html.text(short(until.saturating_sub(now))).raw("</time>");
        }
        None => drop(html.text(none)),
    }
}

/// The value, or a dash.
fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The fields of a form or query.
fn fields(encoded: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(encoded.as_bytes()).into_owned().collect()
}

/// The value of a field; empty if it is missing.
fn field<'f>(fields: &'f [(String, String)], key: &str) -> &'f str {
    fields.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
}
