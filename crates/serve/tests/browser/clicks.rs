//! What an engineer on call does: looks, filters, opens a name, ends a hold.

use leasehold::{Actor, Owner};

use crate::{
    chromium::Chromium,
    site::{BREAK, Site},
};

/// A name that would run a script if it were markup.
const HOSTILE: &str = "<img src=x onerror=window.hacked=1>";

fn start(site: &Site, browser: &Chromium) -> String {
    let url = format!("http://{}", site.address());
    browser.go(&url);
    browser.until_text("h1", "Log in");
    browser.write("input[name=token]", BREAK);
    browser.click("main button");
    browser.until_text("h1", "Locks");
    url
}

#[test]
fn an_operator_finds_and_ends_a_hold_by_clicks() {
    let (site, browser) = (Site::with_tokens(), Chromium::start());
    let request = |name: &str, owner: &str| site.locks.mutex(name).owner(Owner::new(owner)).blocking();
    let hung = request("deploy/production", "ci-runner-7@build:4711").acquire().unwrap();
    let _hostile = request(HOSTILE, HOSTILE).acquire().unwrap();
    let _more: Vec<_> =
        (1..9).map(|n| request(&format!("job/{n}"), "cron@db1:99").acquire().unwrap()).collect();
    let waits = [(&site.others[0], "ci-runner-8@build:4712"), (&site.others[1], "ci-runner-9@build:4713")];
    let waiting = waits.map(|(locks, owner)| {
        let request = locks.mutex("deploy/production").owner(Owner::new(owner)).blocking();
        std::thread::spawn(move || drop(request.acquire()))
    });
    let url = start(&site, &browser);
    // The list: hostile names are text, and new rows come without a load.
    browser.until_text("#locks tbody", HOSTILE);
    browser.run("window.sameLoad = 1");
    browser.until_text("#connection", "Live");
    let _late = request("late", "late").acquire().unwrap();
    browser.until_text("#locks tbody", "late");
    browser.until_text("#locks tbody tr:first-child", "deploy/production");
    assert_eq!(
        browser.run("return [window.sameLoad, window.hacked, document.images.length]"),
        serde_json::json!([1, null, 0])
    );
    browser.until_text("#waits", "No deadlock and no long wait");
    browser.picture("serve-locks");
    // Pause: the list stays as it is.
    browser.click("#pause");
    browser.until_text("#connection", "Paused");
    let _paused = request("while-paused", "x").acquire().unwrap();
    site.until_shown(
        "/metrics",
        &[("Authorization", &format!("Bearer {BREAK}"))],
        "leasehold_holders{engine=\"memory\",location=\"main\"} 12",
    );
    assert!(!browser.text("#locks tbody").contains("while-paused"));
    browser.click("#pause");
    browser.until_text("#locks tbody", "while-paused");
    // The filter.
    browser.write("input[name=q]", "deploy");
    browser.until("one row is left", || browser.count("#locks tbody tr") == 1);
    // The name, and the break.
    browser.click("#locks tbody a");
    browser.until_text("h1", "deploy/production");
    browser.until_text("main", "ci-runner-9@build:4713");
    browser.picture("serve-name");
    browser.go(&format!("{url}/waits"));
    browser.until_text("main", "a waiter ahead, waited ");
    assert_eq!(browser.count("svg.waits path[marker-end]"), 2, "one for each wait");
    browser.picture("serve-waits");
    browser.go(&format!("{url}/name?engine=main&name=deploy%2Fproduction"));
    browser.click("a.break");
    browser.until_text("main", "ci-runner-7@build:4711");
    browser.picture("serve-break");
    browser.click("button.break");
    assert!(hung.check() && browser.text("h1") == "Break a hold", "without a reason nothing is sent");
    browser.write("input[name=reason]", "hangs since the network change");
    browser.click("input[name=force]");
    browser.click("button.break");
    browser.until_text("main", "The hold has ended.");
    waiting.into_iter().for_each(|waiter| waiter.join().unwrap());
    let audit = std::fs::read_to_string(site.dir.path().join("audit")).unwrap();
    assert_eq!(audit.matches("hangs since the network change").count(), 2, "{audit}");
    browser.go(&format!("{url}/history"));
    browser.until("the break is told", || {
        browser.go(&format!("{url}/history"));
        browser.text("main table:last-of-type").contains("broken")
    });
    browser.picture("serve-history");
    browser.click("header form button");
    browser.until_text("h1", "Log in");
    browser.go(&url);
    browser.until_text("h1", "Log in");
}

#[test]
fn a_deadlock_is_told_on_the_first_page_and_drawn() {
    let (site, browser) = (Site::with_tokens(), Chromium::start());
    // Each task holds one name and waits for the other.
    let actors = [Actor::random(), Actor::random()];
    let request = |name: &str, task: usize| {
        let owner = Owner::of_task(&format!("transfer-{}@bank:{}", task + 1, 311 + task), actors[task]);
        [&site.locks, &site.others[0]][task].mutex(name).owner(owner).blocking()
    };
    let url = start(&site, &browser);
    browser.until_text("#connection", "Live");
    browser.until_text("#waits", "No deadlock and no long wait");
    let [first, second] =
        [request("account/17", 0).acquire().unwrap(), request("account/4", 1).acquire().unwrap()];
    let waits = [("account/4", 0), ("account/17", 1)].map(|(name, task)| {
        let waiting = request(name, task);
        std::thread::spawn(move || drop(waiting.acquire()))
    });
    let behind = site.others[1].mutex("account/4").owner(Owner::new("report@bank:9")).blocking();
    let behind = std::thread::spawn(move || drop(behind.acquire()));
    // The page was loaded before.
    browser.until_text("#waits.warning", "1 deadlock and no long wait");
    browser.click("#waits a");
    browser.until_text("main", "What is wrong");
    browser.until("the third task", || browser.count("svg.waits rect") == 3);
    assert_eq!(browser.count("svg.waits rect.locked"), 2);
    assert_eq!(browser.count("svg.waits path.locked"), 2);
    browser.picture("serve-deadlock");
    drop(first);
    drop(second);
    waits.into_iter().chain([behind]).for_each(|waiter| waiter.join().unwrap());
    browser.go(&url);
    browser.until_text("#waits", "No deadlock and no long wait");
}

#[test]
fn everything_works_without_a_script() {
    let (site, browser) = (Site::with_tokens(), Chromium::without_scripts());
    let hold = site.hold("job");
    let _other = site.hold("other");
    start(&site, &browser);
    browser.until_text("#locks tbody", "job");
    assert_eq!(browser.text("#connection"), "", "no script ran");
    // The page loads itself anew.
    let _late = site.hold("late");
    browser.until_text("#locks tbody", "late");
    browser.write("input[name=q]", "job");
    browser.click("#query button");
    browser.until("one row is left", || browser.count("#locks tbody tr") == 1);
    browser.click("#locks tbody a");
    browser.click("a.break");
    browser.write("input[name=reason]", "a test");
    browser.click("input[name=force]");
    browser.click("button.break");
    browser.until_text("main", "The hold has ended.");
    assert!(site.locks.show_blocking("job").unwrap().holders.is_empty());
    drop(hold);
}
