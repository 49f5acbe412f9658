// Keeps the list of locks up to date. Every text is set as text, so no name or owner can become markup.
"use strict";
(() => {
  const table = document.getElementById("locks");
  // The time of the server minus the time of this machine, in milliseconds.
  let skew = 0;

  function short(ms) {
    const secs = Math.floor(Math.max(0, ms) / 1000);
    const two = (n) => String(n).padStart(2, "0");
    if (secs < 1) return Math.floor(Math.max(0, ms)) + "ms";
    if (secs < 10) return secs + "." + Math.floor((ms % 1000) / 100) + "s";
    if (secs < 60) return secs + "s";
    if (secs < 3600) return Math.floor(secs / 60) + "m" + two(secs % 60) + "s";
    if (secs < 86400) return Math.floor(secs / 3600) + "h" + two(Math.floor(secs / 60) % 60) + "m";
    return Math.floor(secs / 86400) + "d" + two(Math.floor(secs / 3600) % 24) + "h";
  }
  function set(node, text) {
    if (node.textContent !== text) node.textContent = text;
  }
  function tick() {
    const now = Date.now() + skew;
    for (const time of document.querySelectorAll("time[data-since]")) {
      set(time, (time.dataset.longer ? ">" : "") + short(now - time.dataset.since));
    }
    for (const time of document.querySelectorAll("time[data-until]")) set(time, short(time.dataset.until - now));
  }
  setInterval(tick, 1000);

  // A page without the list is loaded anew in the background, unless a person is typing in it.
  function renew() {
    const main = document.querySelector("main[data-refresh]");
    if (!main) return;
    setTimeout(async () => {
      try {
        const answer = await fetch(location.href);
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        const is_used = main.contains(document.activeElement) || !document.getSelection().isCollapsed;
        if (answer.ok && fresh && !is_used && fresh.innerHTML !== main.innerHTML) {
          main.replaceChildren(...fresh.childNodes);
        }
        document.body.classList.toggle("out-of-date", !answer.ok);
      } catch {
        document.body.classList.add("out-of-date");
      }
      renew();
    }, 2000);
  }
  if (!table) {
    renew();
    return;
  }

  const body = table.tBodies[0];
  const rows = new Map();
  for (const row of body.rows) rows.set(row.dataset.row, row);
  const form = document.getElementById("query");
  const pause = document.getElementById("pause");
  const connection = document.getElementById("connection");
  let source = null;

  function moment(cell, kind, at, none, longer) {
    const time = cell.firstElementChild;
    if (at === null) return set(cell, none);
    if (!time || time.tagName !== "TIME" || !(kind in time.dataset)) {
      const made = document.createElement("time");
      made.dataset[kind] = at;
      cell.replaceChildren(made);
    } else if (time.dataset[kind] !== String(at)) {
      time.dataset[kind] = at;
    }
    // The engine does not tell when it began, so it may last longer.
    if (longer) cell.firstElementChild.dataset.longer = "yes";
    else delete cell.firstElementChild.dataset.longer;
  }
  function fill(data) {
    let row = rows.get(data.link);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.row = data.link;
      const name = document.createElement("th");
      name.scope = "row";
      const link = document.createElement("a");
      link.href = data.link;
      name.append(link);
      row.append(name);
      for (let cell = 0; cell < 8; cell++) row.append(document.createElement("td"));
      rows.set(data.link, row);
    }
    const cell = row.cells;
    set(cell[0].firstElementChild, data.name);
    set(cell[1], data.engine);
    set(cell[2], data.mode);
    set(cell[3], data.holder);
    set(cell[4], data.token);
    moment(cell[5], "since", data.held, "-", data.held_longer);
    moment(cell[6], "until", data.until, data.end);
    set(cell[7], String(data.waiting));
    moment(cell[8], "since", data.oldest, "-", data.oldest_longer);
  }
  function arrange(order) {
    const wanted = new Set(order);
    for (const [link, row] of rows) {
      if (!wanted.has(link)) {
        row.remove();
        rows.delete(link);
      }
    }
    let next = body.firstElementChild;
    for (const link of order) {
      const row = rows.get(link);
      if (row === next) next = next.nextElementSibling;
      else body.insertBefore(row, next);
    }
  }
  function engines(list) {
    const items = document.querySelectorAll("#engines li");
    let away = false;
    list.forEach((engine, index) => {
      const item = items[index];
      if (!item) return;
      item.className = engine.is_away ? "away" : "";
      set(item.children[1], engine.level);
      set(item.children[2], engine.state);
      away = away || engine.is_away;
    });
    table.classList.toggle("out-of-date", away);
  }
  function waits(found) {
    const line = document.getElementById("waits");
    line.className = found.is_wrong ? "warning" : "";
    set(line.firstElementChild, found.text);
  }
  function follow() {
    if (source) source.close();
    source = new EventSource("/events" + location.search);
    source.onmessage = (message) => {
      const data = JSON.parse(message.data);
      skew = data.now - Date.now();
      data.rows.forEach(fill);
      if (data.order) arrange(data.order);
      engines(data.engines);
      waits(data.waits);
      set(document.getElementById("status"), data.status);
      set(connection, "Live");
      table.dataset.events = message.lastEventId;
      tick();
    };
    source.onerror = () => {
      table.classList.add("out-of-date");
      const closed = source.readyState === EventSource.CLOSED;
      set(connection, closed ? "Not live: load this page anew" : "Not live: the server does not answer");
    };
  }
  function search() {
    const query = new URLSearchParams(new FormData(form));
    history.replaceState(null, "", "/?" + query);
    if (!pause.dataset.paused) follow();
  }
  let typed = 0;
  form.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(search, 250);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typed);
    search();
  });
  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (pause.dataset.paused) {
      delete pause.dataset.paused;
      set(pause, "Pause");
      follow();
    } else {
      pause.dataset.paused = "yes";
      set(pause, "Go on");
      source.close();
      set(connection, "Paused");
    }
  });
  follow();
})();
