//! Ten thousand names, and a hundred changes a second.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use leasehold_testkit::SetOnDrop;
use serde_json::Value;

use crate::{chromium::Chromium, site::Site};

const NAMES: usize = 10_000;
/// The rows of a page.
const PAGE: usize = 200;

/// Measures the frames of ten seconds: their number, the longest time between two, and the longest task of the script.
const FRAMES: &str = "
    window.frames_ = { count: 0, longest: 0, task: 0, done: false };
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) frames_.task = Math.max(frames_.task, entry.duration);
    }).observe({ entryTypes: ['longtask'] });
    const begin = performance.now();
    let last = begin;
    function frame(now) {
        frames_.count += 1;
        frames_.longest = Math.max(frames_.longest, now - last);
        last = now;
        if (now - begin < 10000) requestAnimationFrame(frame); else frames_.done = true;
    }
    requestAnimationFrame(frame);";

/// What the frames of ten seconds were.
fn frames(browser: &Chromium) -> Value {
    browser.run(FRAMES);
    browser.until("ten seconds of frames", || browser.run("return frames_.done") == true);
    browser.run("return frames_")
}

#[test]
fn ten_thousand_names_with_changes_are_followed() {
    let (site, browser) = (Site::open(), Chromium::start());
    let hold = |number| site.hold(&format!("held/{number:05}"));
    let mut held: Vec<_> = (0..PAGE).map(hold).collect();
    browser.go(&format!("http://{}/?sort=held", site.address()));
    browser.until("a page of rows", || browser.count("#locks tbody tr") == PAGE);
    println!("{PAGE} names at rest: frames {}", frames(&browser));
    held.extend((PAGE..NAMES).map(hold));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| {
            // A hundred changes a second: fifty grants and fifty ends.
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let guard = site.hold(&format!("changing/{}", number % 100));
                std::thread::sleep(Duration::from_millis(20));
                drop(guard);
                number += 1;
            }
        });
        browser.until("all names", || {
            let shown: usize =
                browser.text("#status").split([' ', ',']).find_map(|word| word.parse().ok()).unwrap();
            shown >= NAMES
        });
        assert_eq!(browser.count("#locks tbody tr"), PAGE);
        let events = || {
            let number = browser.run("return document.getElementById('locks').dataset.events");
            number.as_str().map_or(0, |number| number.parse::<u64>().unwrap())
        };
        browser.until("events come", || events() > 0);
        let first = events();
        let frames = frames(&browser);
        browser.until("events go on", || events() > first);
        // A figure for the documentation, judged by nobody: the machine may be busy.
        println!("{NAMES} names with changes: {} events, frames {frames}", events() - first);
        let page = site.get("/?sort=held", &[]).body;
        println!("a page of 200 rows: {} bytes", page.len());
        let mut changes = crate::http::Events::follow(site.address(), "/events?q=changing", &[]);
        changes.until(|event| event["rows"].as_array().unwrap().iter().any(|row| row["name"] != ""));
    });
    drop(held);
}
