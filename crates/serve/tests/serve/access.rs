//! Who is let in: names of the server, origins, tokens, sessions, proxies.

use leasehold_serve::{ProxySettings, Server, Settings};

use crate::{
    http::Events,
    site::{BREAK, OWN, Site, VIEW, bearer, file},
};

/// Paths of all kinds.
const PATHS: [&str; 11] = [
    "/",
    "/name?engine=main&name=x",
    "/history",
    "/engines",
    "/waits",
    "/metrics",
    "/break",
    "/events",
    "/login",
    "/page.js",
    "/none",
];

#[test]
fn a_foreign_host_is_answered_nothing() {
    let site = Site::open();
    let _hold = site.hold("secret-name");
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
        for path in PATHS {
            let answer = site.get(path, &[("Host", host)]);
            assert_eq!(answer.status, 421, "{host} {path}");
            assert!(!answer.body.contains("secret-name"), "{answer:?}");
        }
        assert_eq!(site.post("/login", &[("Host", host), OWN], &[("token", "x")]).status, 421);
    }
    let twice = site.get("/", &[("Host", "localhost"), ("Host", "evil.example")]);
    assert!([400, 421].contains(&twice.status), "{twice:?}");
    assert_eq!(site.get("http://evil.example/", &[]).status, 421, "the address names another server");
    for path in ["/livez", "/readyz"] {
        assert_ne!(site.get(path, &[("Host", "10.0.0.7:80")]).status, 421, "{path} is for probes");
    }
}

#[test]
fn added_names_are_answered() {
    let site = Site::start(|settings, _| settings.hosts.push("locks.example".to_owned()));
    assert_eq!(site.get("/", &[("Host", "locks.example")]).status, 200);
    assert_eq!(site.get("/", &[("Host", "other.example")]).status, 421);
}

#[test]
fn every_answer_has_the_headers_that_protect_it() {
    let site = Site::with_tokens();
    let token = bearer(VIEW);
    let known = [(token.0, &*token.1)];
    let answers = PATHS.iter().filter(|path| **path != "/events").flat_map(|path| {
        [site.get(path, &[]), site.get(path, &known), site.get(path, &[("Host", "evil.example")])]
    });
    for answer in answers.chain([site.post("/login", &[], &[]), site.get("/livez", &[])]) {
        let policy = answer.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
        }
        for (header, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(header), Some(value), "{answer:?}");
        }
    }
    let events = Events::follow(site.address(), "/events", &known);
    let policy = events.headers.iter().find(|(key, _)| key == "content-security-policy");
    assert!(policy.is_some(), "{:?}", events.headers);
}

#[test]
fn nobody_reads_without_a_token() {
    let site = Site::with_tokens();
    let _hold = site.hold("secret-name");
    for path in ["/", "/name?engine=main&name=secret-name", "/history", "/engines", "/events", "/none"] {
        let answer = site.get(path, &[]);
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
        let page = site.get(path, &[("Accept", "text/html")]);
        assert_eq!(
            (page.status, page.header("location")),
            (303, Some("/login")),
            "a browser is sent to the login"
        );
        for header in [bearer("wrong-0123456789abcdef0123"), ("Authorization", "Basic x".to_owned())] {
            let answer = site.get(path, &[(header.0, &header.1)]);
            assert_eq!(answer.status, 403, "{path}");
        }
    }
    for token in [VIEW, BREAK] {
        let header = bearer(token);
        site.until_shown("/", &[(header.0, &header.1)], "secret-name");
    }
    assert_eq!(site.get("/?token=view-canary-0123456789abcdef", &[]).status, 401, "no token in an address");
}

#[test]
fn a_session_begins_by_a_token_and_ends_by_a_logout() {
    let site = Site::with_tokens();
    let answer = site.post("/login", &[OWN], &[("token", VIEW)]);
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(VIEW), "the cookie is not the token");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let known = [("Cookie", &*cookie)];
    assert!(site.get("/", &known).body.contains("vera, may read"));
    assert_eq!(site.get("/", &[("Cookie", &format!("{cookie}x"))]).status, 401);
    let mut events = Events::follow(site.address(), "/events", &known);
    assert!(events.next().is_some());
    assert_eq!(site.post("/logout", &[known[0]], &[]).status, 403, "another site cannot log out");
    assert_eq!(site.post("/logout", &[known[0], OWN], &[]).status, 303);
    assert_eq!(site.get("/", &known).status, 401);
    assert!((0..5).any(|_| events.next().is_none()), "the events end with the session");
    let wrong = site.post("/login", &[OWN], &[("token", "nonsense")]);
    assert_eq!((wrong.status, wrong.header("set-cookie")), (403, None));
}

#[test]
fn other_sites_cannot_make_a_browser_change_something() {
    let site = Site::with_tokens();
    let cookie = site.log_in(BREAK);
    let hold = site.hold("job");
    let token = hold.token().number.to_string();
    site.until_shown("/", &[("Cookie", &cookie)], "job");
    let fields = [("engine", "main"), ("name", "job"), ("token", &*token), ("reason", "r"), ("force", "yes")];
    for origin in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "none"),
        ("Origin", "http://evil.example"),
        ("Origin", "http://localhost:1"),
        ("Origin", "null"),
        ("X-Nothing", "x"),
    ] {
        for path in ["/break", "/login", "/logout"] {
            assert_eq!(
                site.post(path, &[("Cookie", &cookie), origin], &fields).status,
                403,
                "{origin:?} {path}"
            );
        }
    }
    assert_eq!(
        site.get(&format!("/break?engine=main&name=job&token={token}"), &[("Cookie", &cookie)]).status,
        200
    );
    assert!(hold.check(), "a form alone changes nothing");
    assert_eq!(site.get("/", &[("Cookie", &cookie)]).status, 200, "and the session goes on");
}

#[test]
fn a_proxy_names_the_user() {
    let site = Site::start(|settings, dir| {
        settings.proxy = Some(ProxySettings {
            user_header: "X-Auth-User".to_owned(),
            peers: vec!["127.0.0.1".parse().unwrap()],
            secret: file(dir, "proxy", VIEW),
            breakers: vec!["ada".to_owned()],
        });
        settings.allow_break = true;
        settings.audit = Some(dir.join("audit"));
    });
    let secret = ("X-Leasehold-Proxy-Secret", VIEW);
    assert_eq!(site.get("/", &[]).status, 401, "not even on loopback");
    assert!(site.get("/", &[("X-Auth-User", "eve"), secret]).body.contains("eve, may read"));
    assert!(site.get("/", &[("X-Auth-User", "ada"), secret]).body.contains("ada, may break"));
    for forged in [
        &[("X-Auth-User", "ada")][..],
        &[("X-Auth-User", "ada"), ("X-Leasehold-Proxy-Secret", BREAK)],
        &[("X-Auth-User", "eve"), ("X_Auth_User", "ada"), secret],
        &[("X-Auth-User", "eve"), ("X-Auth-User", "ada"), secret],
    ] {
        assert_eq!(site.get("/", forged).status, 403, "{forged:?}");
    }
    let elsewhere = Site::start(|settings, dir| {
        settings.proxy = Some(ProxySettings {
            user_header: "X-Auth-User".to_owned(),
            peers: vec!["192.0.2.1".parse().unwrap()],
            secret: file(dir, "proxy", VIEW),
            breakers: Vec::new(),
        });
    });
    assert_eq!(elsewhere.get("/", &[("X-Auth-User", "ada"), secret]).status, 403, "not from the proxy");
}

#[test]
fn without_a_proxy_its_header_means_nothing() {
    let site = Site::with_tokens();
    assert_eq!(site.get("/", &[("X-Forwarded-User", "ada"), ("X-Auth-User", "ada")]).status, 401);
}

#[test]
fn unusable_files_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let settings = || Settings::new("127.0.0.1:0".parse().unwrap(), Vec::new());
    let short = file(dir.path(), "short", "hunter2");
    let good = file(dir.path(), "good", BREAK);
    let audit = dir.path().join("missing/audit");
    let mut wrong = settings();
    wrong.view_tokens = Some(short);
    let refused = |settings| Server::start(settings).err().expect("it is refused").to_string();
    let message = refused(wrong);
    assert!(message.contains("24 characters") && !message.contains("hunter2"), "{message}");
    let mut wrong = settings();
    (wrong.allow_break, wrong.break_tokens, wrong.audit) = (true, Some(good), Some(audit));
    assert!(refused(wrong).contains("missing/audit"));
}
