//! What the pages show, and the changes that are pushed to them.

use std::time::Duration;

use leasehold_ops::Reached;
use leasehold_serve::EngineSource;
use serde_json::Value;

use crate::{
    http::Events,
    site::{Site, locks},
};

/// The names of the rows of an event.
fn names(event: &Value) -> Vec<&str> {
    event["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

#[test]
fn changes_are_pushed_and_nothing_else() {
    let site = Site::open();
    let first = site.hold("first");
    site.until_shown("/", &[], ">first<");
    let mut events = Events::follow(site.address(), "/events?sort=name", &[]);
    assert_eq!(events.status, 200);
    let header = |name: &str| events.headers.iter().find(|(key, _)| key == name).map(|(_, value)| &**value);
    assert_eq!(header("content-type"), Some("text/event-stream"));
    assert_eq!((header("x-accel-buffering"), header("cache-control")), (Some("no"), Some("no-store")));
    let event = events.next().unwrap();
    assert_eq!(names(&event), ["first"]);
    assert_eq!(event["order"].as_array().unwrap().len(), 1);
    events.until(|event| event["engines"][0]["state"] == "up to date, changes are pushed");
    let second = site.hold("second");
    let event = events.until(|event| !names(event).is_empty());
    assert_eq!(names(&event), ["second"], "the row of the other hold is not sent again");
    assert_eq!(event["order"].as_array().unwrap().len(), 2);
    let quiet = events.until(|event| names(event).is_empty());
    assert_eq!(quiet["order"], Value::Null, "the order is not sent again");
    drop(first);
    let event = events.until(|event| event["order"].is_array());
    assert_eq!((names(&event).len(), event["order"].as_array().unwrap().len()), (0, 1));
    drop(second);
}

/// The engine stores only the end of a lease. That it does not move is seen from look to look.
#[test]
fn a_hold_that_is_not_renewed_is_marked() {
    let site = Site::open();
    let request = site.locks.mutex("job").ttl(Duration::from_secs(20)).renew(false);
    let _hold = request.blocking().acquire().unwrap();
    let page = site.until_shown("/name?engine=main&name=job", &[], "<dt>Overdue</dt>");
    assert!(page.contains("<dd>renewal overdue by ") && page.contains(" (not renewed)</th>"), "{page}");
    site.until_shown("/", &[], " (not renewed)</td>");
}

#[test]
fn waits_grants_and_ends_are_in_the_history() {
    let site = Site::open();
    let holder = site.hold("job");
    let locks = site.others[0].clone();
    let waiter = std::thread::spawn(move || locks.mutex("job").blocking().acquire().unwrap());
    site.until_shown("/name?engine=main&name=job", &[], "<td>1</td><th scope=\"row\">");
    site.until_shown("/", &[], "requests that wait for these: 1");
    // The wait that the history tells is one of a second or more.
    let mut events = Events::follow(site.address(), "/events", &[]);
    let begin = events.next().unwrap()["now"].as_u64().unwrap();
    events.until(|event| event["now"].as_u64().unwrap() >= begin + 2000);
    drop(holder);
    let granted = waiter.join().unwrap();
    site.until_shown("/history?kind=granted", &[], ">job<");
    site.until_shown("/history?kind=ended", &[], ">job<");
    let history = site.until_shown("/history", &[], "Longest waits");
    assert!(history.contains("<th scope=\"col\">Waited</th><th scope=\"col\">Held</th>"), "{history}");
    // A grant ends a wait, so no time of a hold is told; an end of a hold tells no wait.
    let last_cell = |kind: &str| {
        let page = site.get(&format!("/history?kind={kind}"), &[]).body;
        let rows = page.split("Newest changes").nth(1).unwrap().split("</tr>").nth(1).unwrap();
        rows.rsplit("<td>").take(2).map(|cell| cell.replace("</td>", "") != "-").collect::<Vec<_>>()
    };
    assert_eq!((last_cell("granted"), last_cell("ended")), (vec![false, true], vec![true, false]));
    drop(granted);
    site.until_shown("/name?engine=main&name=job", &[], "Nobody holds this name");
    assert!(!site.get("/history?q=other", &[]).body.split("Newest").nth(1).unwrap().contains(">job<"));
}

#[test]
fn an_engine_that_is_away_shows_what_was_seen_last() {
    let [other, ..] = locks();
    let locks = other.clone();
    let site = Site::start(|settings, _| {
        settings.engines.push(EngineSource {
            label: "other".to_owned(),
            locks,
            breaker: None,
            reached: Reached::AsHere,
        });
    });
    let _kept = other.mutex("kept").blocking().acquire().unwrap();
    site.until_shown("/", &[], ">kept<");
    assert_eq!(site.get("/readyz", &[]).status, 200);
    site.until_shown("/metrics", &[], "\nleasehold_deadlocks 0\n");
    assert!(site.get("/", &[]).body.contains(">No deadlock and no long wait</a>"));
    let mut events = Events::follow(site.address(), "/events", &[]);
    other.close_blocking(Duration::ZERO);
    let event = events.until(|event| event["engines"][1]["is_away"] == true);
    assert!(event["engines"][1]["state"].as_str().unwrap().starts_with("away, seen "), "{event}");
    assert_eq!(event["engines"][0]["is_away"], false);
    let page = site.until_shown("/", &[], "away, seen ");
    assert!(page.contains(">kept<"), "{page}");
    let unknown = "No deadlock and no long wait; not known of other, which is away";
    assert!(page.contains(unknown) && site.get("/waits", &[]).body.contains(unknown), "{page}");
    let metrics = site.get("/metrics", &[]).body;
    let long_waits = |location| {
        let series =
            format!("leasehold_long_waits{{engine=\"memory\",location=\"{location}\",cause=\"hold\"}} 0");
        metrics.contains(&series)
    };
    assert!(metrics.contains("\nleasehold_deadlocks 0\n") && long_waits("main"), "{metrics}");
    assert!(!metrics.contains("leasehold_long_waits{engine=\"memory\",location=\"other\""), "{metrics}");
    site.locks.close_blocking(Duration::ZERO);
    site.until_shown("/", &[], "; not known since then, because no engine answers");
    assert!(!site.get("/metrics", &[]).body.contains("\nleasehold_deadlocks "), "nothing is known");
    let ready = site.get("/readyz", &[]);
    assert_eq!((ready.status, &*ready.body), (503, "an engine is away\n"));
    assert_eq!(site.get("/livez", &[]).status, 200, "a new start of this process would help nothing");
}

#[test]
fn followers_are_bounded_and_end_with_the_server() {
    let site = Site::open();
    let mut followers: Vec<_> = (0..64)
        .map(|_| {
            let mut events = Events::follow(site.address(), "/events", &[]);
            assert!(events.next().is_some());
            events
        })
        .collect();
    assert_eq!(Events::follow(site.address(), "/events", &[]).status, 503);
    assert_eq!(site.get("/", &[]).status, 200, "pages are still served");
    followers.pop();
    site.server.stop(Duration::from_secs(60));
    for mut events in followers {
        while events.next().is_some() {}
    }
}

#[test]
fn the_page_says_that_locks_do_not_need_it() {
    let site = Site::open();
    assert!(site.get("/", &[]).body.contains("It stores nothing that locks need"));
    let page = site.get("/", &[]).body;
    assert!(page.contains("<noscript><meta http-equiv=\"refresh\""), "it is live without a script");
    for outside in ["http://", "https://", "//"] {
        let body = page.replace("<!DOCTYPE", "");
        assert!(!body.contains(&format!("=\"{outside}")), "nothing comes from elsewhere: {body}");
    }
}

#[test]
fn who_waits_for_whom_is_drawn_and_a_deadlock_is_told() {
    // A reader of the page has another environment than the server.
    let url = "redis://:url-canary@locks.example";
    let site = Site::start(|settings, _| settings.engines[0].reached = Reached::of_url(url, "main"));
    // Each task holds one name and waits for the other.
    let actors = [leasehold::Actor::random(), leasehold::Actor::random()];
    let request = |name: &str, task: usize| {
        let owner = leasehold::Owner::of_task(&format!("task {task}"), actors[task]);
        [&site.locks, &site.others[0]][task].mutex(name).owner(owner).blocking()
    };
    let holds = [request("one", 0).acquire().unwrap(), request("two", 1).acquire().unwrap()];
    let waits = [("two", 0), ("one", 1)].map(|(name, task)| {
        let waiting = request(name, task);
        std::thread::spawn(move || waiting.acquire())
    });
    let page = site.until_shown("/waits", &[], "deadlock: ");
    assert!(page.contains("<svg") && page.matches("<rect class=\"locked\"").count() == 2, "{page}");
    let line = "with the password in the URL: leasehold --url redis://locks.example break --token ";
    assert!(page.contains(line) && !page.contains("url-canary"), "{page}");
    // The first page and its events tell it, and Prometheus.
    let first = site.get("/", &[]).body;
    let line = "<p id=\"waits\" class=\"warning\"><a href=\"/waits\">1 deadlock and no long wait</a></p>";
    assert!(first.contains(line), "{first}");
    let event = Events::follow(site.address(), "/events", &[]).next().unwrap();
    assert_eq!(
        event["waits"],
        serde_json::json!({ "text": "1 deadlock and no long wait", "is_wrong": true })
    );
    let metrics = site.get("/metrics", &[]).body;
    assert!(metrics.contains("\nleasehold_deadlocks 1\n"), "{metrics}");
    let long_waits = "leasehold_long_waits{engine=\"memory\",location=\"main\",cause=\"hold\"} 0";
    assert!(metrics.contains(long_waits), "{metrics}");
    let [first, second] = holds;
    let [waits_for_two, waits_for_one] = waits;
    drop(first);
    drop(waits_for_one.join().unwrap());
    drop(second);
    drop(waits_for_two.join().unwrap());
    site.until_shown("/waits", &[], "Nobody waits.");
    site.until_shown("/", &[], ">No deadlock and no long wait</a>");
}

#[test]
fn prometheus_is_told_the_same() {
    let site = Site::start(|settings, _| settings.metrics_names.push("jo*".to_owned()));
    let _hold = site.hold("job");
    let _other = site.hold("other");
    let text = site.until_shown("/metrics", &[], "leasehold_holders{engine=\"memory\",location=\"main\"} 2");
    assert!(text.contains("name=\"job\"") && !text.contains("name=\"other\""), "{text}");
    let answer = site.get("/metrics", &[]);
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
}
