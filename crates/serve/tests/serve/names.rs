//! Names, owners and errors that others chose are text on every page, and secrets are on none.

use leasehold::{Connect, Locks, Owner};
use leasehold_ops::Reached;
use leasehold_serve::{EngineSource, ProxySettings};

use crate::{
    http::Events,
    site::{BREAK, Site, VIEW, bearer, file},
};

const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&</title><script>alert(1)</script>";

#[test]
fn hostile_names_and_owners_stay_text() {
    let site = Site::with_tokens();
    let breaker = bearer(BREAK);
    let known = [(breaker.0, &*breaker.1)];
    let request = site.locks.mutex(HOSTILE).owner(Owner::new(HOSTILE)).blocking();
    let guard = request.acquire().unwrap();
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("engine", "main"),
            ("name", HOSTILE),
            ("q", HOSTILE),
            ("sort", HOSTILE),
            ("kind", HOSTILE),
        ])
        .append_pair("token", &guard.token().number.to_string())
        .finish();
    site.until_shown("/", &known, "onerror=alert(1)");
    drop(guard);
    site.until_shown("/history", &known, "onerror=alert(1)");
    let guard = request.acquire().unwrap();
    let form =
        query.replace(&query[query.find("token=").unwrap()..], &format!("token={}", guard.token().number));
    site.until_shown(&format!("/break?{form}"), &known, "Break this hold");
    for path in ["/", "/name", "/history", "/engines", "/break", "/login"] {
        for text in [&query, &form, &query.replace("main", "none")] {
            let body = site.get(&format!("{path}?{text}"), &known).body;
            assert!(
                !body.contains("<img") && !body.contains("<script>") && !body.contains("\"'"),
                "{path}: {body}"
            );
        }
    }
    let event = Events::follow(site.address(), "/events", &known).next().unwrap();
    let row = &event["rows"][0];
    assert_eq!(
        (&row["name"], &row["holder"]),
        (&HOSTILE.into(), &HOSTILE.into()),
        "a script shows it as text"
    );
    assert!(row["link"].as_str().unwrap().starts_with("/name?engine=main&name=%3Cimg"), "{row}");
}

#[test]
fn an_answer_to_a_user_of_the_proxy_is_escaped() {
    let site = Site::start(|settings, dir| {
        settings.proxy = Some(ProxySettings {
            user_header: "X-Auth-User".to_owned(),
            peers: vec!["127.0.0.1".parse().unwrap()],
            secret: file(dir, "proxy", VIEW),
            breakers: Vec::new(),
        });
    });
    let body = site.get("/", &[("X-Auth-User", HOSTILE), ("X-Leasehold-Proxy-Secret", VIEW)]).body;
    assert!(body.contains("&lt;img") && !body.contains("<img"), "{body}");
}

#[test]
fn a_whole_claim_id_is_on_no_page() {
    let site = Site::open();
    let guard = site.hold("job");
    let id = guard.id().to_string();
    let page = site.until_shown("/name?engine=main&name=job", &[], &id[..8]);
    assert!(!page.contains(&id), "{page}");
    for path in ["/", "/history", "/engines"] {
        assert!(!site.get(path, &[]).body.contains(&id), "{path}");
    }
    let event = Events::follow(site.address(), "/events", &[]).next().unwrap();
    assert!(!event.to_string().contains(&id), "{event}");
}

#[test]
fn no_page_shows_a_secret() {
    // No server listens on port 1: the page shows an error of the connection.
    let url = "redis://user:url-canary@127.0.0.1:1/?connect_timeout=100ms";
    let away: Locks = Connect::default().connect(url).unwrap();
    let site = Site::start(|settings, dir| {
        settings.view_tokens = Some(file(dir, "view", VIEW));
        settings.break_tokens = Some(file(dir, "break", BREAK));
        (settings.allow_break, settings.audit) = (true, Some(dir.join("audit")));
        settings.engines.push(EngineSource {
            label: "away".to_owned(),
            locks: away,
            breaker: None,
            reached: Reached::AsHere,
        });
    });
    let hold = site.hold("job");
    let breaker = bearer(BREAK);
    let known = [(breaker.0, &*breaker.1)];
    site.until_shown("/", &known, "away: ");
    site.until_shown("/", &known, ">job<");
    let number = hold.token().number.to_string();
    let fields =
        [("engine", "main"), ("name", "job"), ("token", &*number), ("reason", "r"), ("force", "yes")];
    let mut shown = site.post("/break", &known, &fields).body;
    let missing = [("engine", "away"), ("name", "job"), ("token", "1"), ("reason", "r")];
    shown += &site.post("/break", &known, &missing).body;
    for path in
        ["/", "/name?engine=away&name=job", "/history", "/engines", "/login", "/readyz", "/metrics", "/none"]
    {
        shown += &site.get(path, &known).body;
    }
    shown += &Events::follow(site.address(), "/events", &known).next().unwrap().to_string();
    shown += &std::fs::read_to_string(site.dir.path().join("audit")).unwrap();
    assert!(shown.contains("\"outcome\""), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
}
