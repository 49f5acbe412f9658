//! Ending a hold by the page, and its record.

use std::fs;

use serde_json::Value;

use crate::{
    http::Answer,
    site::{BREAK, OWN, Site, VIEW, bearer},
};

const REASON: &str = "it hangs, see \"ticket\" 7\n";

/// The token of the form on a page.
fn form_token(page: &Answer) -> String {
    let (_, rest) = page.body.split_once("name=\"form\" value=\"").unwrap_or_else(|| panic!("{page:?}"));
    rest.split('"').next().unwrap().to_owned()
}

fn audit(site: &Site) -> Vec<Value> {
    let text = fs::read_to_string(site.dir.path().join("audit")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn form_path(name: &str, token: u64) -> String {
    format!("/break?engine=main&name={name}&token={token}")
}

#[test]
fn a_hold_is_ended_by_its_form_and_recorded() {
    let site = Site::with_tokens();
    let cookie = site.log_in(BREAK);
    let known = [("Cookie", &*cookie)];
    let hold = site.hold("job");
    let token = hold.token().number;
    let page = site.until_shown("/name?engine=main&name=job", &known, "Break…");
    assert!(page.contains(&form_path("job", token).replace('&', "&amp;")), "{page}");
    let form = form_token(&site.get(&form_path("job", token), &known));
    let number = token.to_string();
    let fields = [
        ("engine", "main"),
        ("name", "job"),
        ("token", &*number),
        ("form", &*form),
        ("reason", REASON),
        ("force", "yes"),
    ];
    let answer = site.post("/break", &[known[0], OWN], &fields);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("The hold has ended."), "{answer:?}");
    assert!(site.locks.show_blocking("job").unwrap().holders.is_empty());
    site.until_shown("/history?kind=broken", &known, ">job<");
    let lines = audit(&site);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (intent, outcome) = (&lines[0], &lines[1]);
    for line in &lines {
        for (key, value) in [
            ("who", "ada"),
            ("known_by", "session"),
            ("engine", "main"),
            ("name", "job"),
            ("reason", REASON.trim()),
        ] {
            assert_eq!(line[key], value, "{line}");
        }
        assert_eq!((&line["token"], &line["force"]), (&token.into(), &true.into()));
        assert!(line["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert_eq!(line["id"], intent["id"]);
    }
    assert_eq!((&intent["event"], &intent["holder"]["token"]), (&"intent".into(), &token.into()));
    assert_eq!((&outcome["event"], &outcome["outcome"]), (&"outcome".into(), &"broken".into()));
    assert_eq!(outcome["holders_after"], Value::Array(Vec::new()));
    let repeated = site.post("/break", &[known[0], OWN], &fields);
    assert_eq!(repeated.status, 409, "nothing is held under the token any more");
    assert_eq!(audit(&site).len(), 2, "and nothing is recorded");
}

/// Without force the name stays taken, and the pages say so.
#[test]
fn a_broken_hold_is_shown_as_broken_until_its_holder_stops() {
    let site = Site::with_tokens();
    let (name, value) = bearer(BREAK);
    let headers = [(name, &*value)];
    let hold = site.hold("job");
    let number = hold.token().number.to_string();
    let fields = [("engine", "main"), ("name", "job"), ("token", &*number), ("reason", REASON)];
    let answer = site.post("/break", &headers, &fields);
    let told = "The hold is broken: the name is free when the holder stops, in ";
    assert!(answer.status == 200 && answer.body.contains(told), "{answer:?}");
    assert_eq!(audit(&site)[1]["outcome"], "broken");
    site.until_shown("/", &headers, " (broken)</td>");
    let page = site.until_shown("/name?engine=main&name=job", &headers, "<dt>Broken</dt>");
    assert!(page.contains("<dd>the name is free when the holder stops, in "), "{page}");
    site.until_shown("/history?kind=broken", &headers, ">job<");
    drop(hold);
    site.until_shown("/history?kind=ended", &headers, ">job<");
}

#[test]
fn a_form_is_of_one_session_and_of_one_hold() {
    let site = Site::with_tokens();
    let (first, second) = (site.log_in(BREAK), site.log_in(BREAK));
    let (one, other) = (site.hold("one"), site.hold("other"));
    let known = [("Cookie", &*first)];
    site.until_shown("/", &known, ">other<");
    let form = form_token(&site.get(&form_path("one", one.token().number), &known));
    let (number, other_number) = (one.token().number.to_string(), other.token().number.to_string());
    let post = |cookie: &str, name: &str, number: &str, form: &str| {
        let fields = [
            ("engine", "main"),
            ("name", name),
            ("token", number),
            ("form", form),
            ("reason", "r"),
            ("force", "yes"),
        ];
        site.post("/break", &[("Cookie", cookie), OWN], &fields).status
    };
    assert_eq!(post(&first, "one", &number, ""), 403);
    assert_eq!(post(&first, "one", &number, "00"), 403);
    assert_eq!(post(&first, "other", &other_number, &form), 403, "the form of another hold");
    assert_eq!(post(&second, "one", &number, &form), 403, "the form of another session");
    assert!(one.check() && other.check() && audit(&site).is_empty());
    assert_eq!(post(&first, "one", &number, &form), 200);
    assert!(other.check());
}

#[test]
fn only_those_who_may_break_break() {
    let site = Site::with_tokens();
    let hold = site.hold("job");
    let number = hold.token().number.to_string();
    let fields =
        [("engine", "main"), ("name", "job"), ("token", &*number), ("reason", "r"), ("force", "yes")];
    let cookie = site.log_in(VIEW);
    let page = site.until_shown("/name?engine=main&name=job", &[("Cookie", &cookie)], "Token");
    assert!(!page.contains("/break?"), "no link for a reader");
    let viewer = bearer(VIEW);
    for header in [("Cookie", &*cookie), (viewer.0, &*viewer.1)] {
        assert_eq!(site.post("/break", &[header, OWN], &fields).status, 403);
        assert_eq!(site.get(&form_path("job", hold.token().number), &[header]).status, 403);
    }
    assert_eq!(site.post("/break", &[OWN], &fields).status, 401);
    assert!(hold.check() && audit(&site).is_empty());
    // A program with a token needs no form.
    let breaker = bearer(BREAK);
    assert_eq!(site.post("/break", &[(breaker.0, &breaker.1)], &fields).status, 200);
    assert_eq!(audit(&site)[0]["known_by"], "token");
}

#[test]
fn a_page_without_allow_break_breaks_nothing() {
    let site = Site::start(|settings, dir| {
        settings.break_tokens = Some(crate::site::file(dir, "break", BREAK));
        settings.audit = Some(dir.join("audit"));
    });
    let hold = site.hold("job");
    let (number, breaker) = (hold.token().number.to_string(), bearer(BREAK));
    let fields =
        [("engine", "main"), ("name", "job"), ("token", &*number), ("reason", "r"), ("force", "yes")];
    assert_eq!(site.post("/break", &[(breaker.0, &breaker.1)], &fields).status, 403);
    assert!(hold.check());
    let page = site.get("/", &[(breaker.0, &breaker.1)]).body;
    assert!(page.contains(", may read") && !page.contains("may break"), "{page}");
}

#[test]
fn a_break_that_cannot_be_recorded_does_not_happen() {
    let site = Site::with_tokens();
    let hold = site.hold("job");
    let path = site.dir.path().join("audit");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (number, breaker) = (hold.token().number.to_string(), bearer(BREAK));
    let fields =
        [("engine", "main"), ("name", "job"), ("token", &*number), ("reason", "r"), ("force", "yes")];
    let answer = site.post("/break", &[(breaker.0, &breaker.1)], &fields);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("cannot be recorded"), "{answer:?}");
    assert!(hold.check(), "the hold goes on");
}

#[test]
fn a_break_needs_a_reason_and_a_hold() {
    let site = Site::with_tokens();
    let hold = site.hold("job");
    let (number, breaker) = (hold.token().number.to_string(), bearer(BREAK));
    let (long, other) = ("r".repeat(501), (hold.token().number + 1).to_string());
    for (engine, token, reason, status) in [
        ("main", &*number, "", 422),
        ("main", &number, "  ", 422),
        ("main", &number, &long, 422),
        ("main", "x", "r", 422),
        ("none", &number, "r", 404),
        ("main", &other, "r", 409),
    ] {
        let fields = [("engine", engine), ("name", "job"), ("token", token), ("reason", reason)];
        assert_eq!(site.post("/break", &[(breaker.0, &breaker.1)], &fields).status, status, "{fields:?}");
    }
    assert!(hold.check() && audit(&site).is_empty());
}

#[test]
fn other_locks_that_break_must_see_the_same_hold() {
    let [elsewhere, ..] = crate::site::locks();
    let site = Site::start(|settings, dir| {
        settings.engines[0].breaker = Some(elsewhere.clone());
        settings.break_tokens = Some(crate::site::file(dir, "break", BREAK));
        (settings.allow_break, settings.audit) = (true, Some(dir.join("audit")));
    });
    let hold = site.hold("job");
    let (number, breaker) = (hold.token().number.to_string(), bearer(BREAK));
    let fields =
        [("engine", "main"), ("name", "job"), ("token", &*number), ("reason", "r"), ("force", "yes")];
    assert_eq!(site.post("/break", &[(breaker.0, &breaker.1)], &fields).status, 409);
    assert!(hold.check() && audit(&site).is_empty());
}
