//! Pages of other sites in a browser that is logged in.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
};

use crate::{
    chromium::Chromium,
    site::{BREAK, Site},
};

/// Serves one page to everybody, on another port of loopback. Its thread ends with the test program.
fn attacker(page: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut buffer) = (stream.unwrap(), [0; 4096]);
            let _ = stream.read(&mut buffer);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            let _ =
                stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{page}", page.len()).as_bytes());
        }
    });
    address
}

#[test]
fn a_foreign_page_can_neither_break_nor_frame() {
    let (site, browser) = (Site::with_tokens(), Chromium::start());
    let hold = site.hold("job");
    let url = format!("http://{}", site.address());
    browser.go(&url);
    browser.write("input[name=token]", BREAK);
    browser.click("main button");
    browser.until_text("#locks tbody", "job");
    let fields = [
        ("engine", "main"),
        ("name", "job"),
        ("token", &*hold.token().number.to_string()),
        ("reason", "attack"),
        ("force", "yes"),
    ];
    let inputs: String =
        fields.iter().map(|(name, value)| format!("<input name={name} value='{value}'>")).collect();
    let form = format!("<form method=post action='{url}/break'>{inputs}<button>win</button></form>");
    let frame = format!("<iframe src='{url}/'></iframe><p id=done>framed</p>");
    // Another port of the same host is the same site: the browser sends the cookie.
    let attack = attacker(form);
    for host in ["127.0.0.1", "localhost"] {
        browser.go(&format!("http://{host}:{}/", attack.port()));
        browser.click("button");
        browser.until_text("main", "does not come from a page of this server");
        assert!(hold.check(), "{host}");
    }
    let framing = attacker(frame);
    browser.go(&format!("http://127.0.0.1:{}/", framing.port()));
    browser.until_text("#done", "framed");
    let inside = browser.run(
        "try { return document.querySelector('iframe').contentDocument?.title ?? 'blocked' } catch { return 'blocked' }",
    );
    assert_ne!(inside, "Locks - leasehold");
    let audit = std::fs::read_to_string(site.dir.path().join("audit")).unwrap();
    assert_eq!(audit, "");
    // The session itself still works.
    browser.go(&url);
    browser.until_text("#locks tbody", "job");
}
