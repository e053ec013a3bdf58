// Updates a page: replaces the parts that have changed, as the server reports them. Pages work without this script.
"use strict";

(() => {
  const url = document.body.dataset.live;
  const bar = document.getElementById("live");
  const said = document.getElementById("live-said");
  const pause = document.getElementById("pause");
  if (!url || !window.EventSource) return;
  bar.hidden = false;

  // The server sends an event at least every five seconds. If it hangs or its host fails, the connection stays open, so
  // silence for this long counts as a failure.
  const PATIENCE_MS = 15000;
  const lost = document.getElementById("lost");
  let source = null;
  let paused = false;
  let failures = 0;
  let heard = new Date();
  let watchdog = null;

  const say = (text) => {
    if (said.textContent !== text) said.textContent = text;
    bar.classList.toggle("stale", text !== "Live");
  };

  // Marks the page as outdated: shows a notice, and removes the colours.
  const lose = () => {
    say("Not live: the server does not answer. Retrying.");
    const since = heard.toISOString().slice(11, 19);
    lost.textContent = `This server cannot be reached. The page shows its state at ${since} UTC.`;
    lost.hidden = false;
    document.body.classList.add("lost");
  };

  const watch = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => {
      lose();
      close();
      open();
    }, PATIENCE_MS);
  };

  const hear = () => {
    heard = new Date();
    failures = 0;
    lost.hidden = true;
    document.body.classList.remove("lost");
    say("Live");
    watch();
  };

  // Updates keep the reader's selection and keyboard focus. The selection is read once for all parts, because each read
  // makes the browser lay out the page.
  const markedRange = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed ? selection.getRangeAt(0) : null;
  };

  const swap = (element, html, marked) => {
    if (marked && marked.intersectsNode(element)) return;
    const links = [...element.querySelectorAll("a, button, summary, [tabindex]")];
    const place = links.indexOf(document.activeElement);
    const scrolled = [...element.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    const unfolded = [...element.querySelectorAll("details")].map((details) => details.open);
    element.innerHTML = html;
    [...element.querySelectorAll("details")].forEach((details, number) => (details.open = unfolded[number] || false));
    [...element.querySelectorAll(".scroll")].forEach((box, number) => (box.scrollLeft = scrolled[number] || 0));
    if (place >= 0) {
      const next = element.querySelectorAll("a, button, summary, [tabindex]")[place];
      if (next) next.focus({ preventScroll: true });
    }
  };

  const swapRows = (body, { count, rows }, marked) => {
    while (body.rows.length > count) body.deleteRow(-1);
    while (body.rows.length < count) body.insertRow(-1);
    for (const [place, html] of Object.entries(rows)) swap(body.rows[place], html, marked);
  };

  const take = (event) => {
    hear();
    const { frame, ...parts } = JSON.parse(event.data);
    // The structure of the page has changed, for example because this peer has become master: reload it.
    if (frame && frame !== document.body.dataset.frame) {
      close();
      location.reload();
      return;
    }
    const marked = markedRange();
    for (const [id, part] of Object.entries(parts)) {
      const element = document.getElementById(id);
      if (!element) continue;
      if (typeof part === "string") swap(element, part, marked);
      else swapRows(element, part, marked);
    }
  };

  const close = () => {
    clearTimeout(watchdog);
    if (source) source.close();
    source = null;
  };

  const open = () => {
    if (source || paused || document.hidden) return;
    source = new EventSource(url);
    watch();
    source.onmessage = take;
    source.addEventListener("alive", hear);
    source.onerror = () => {
      failures += 1;
      if (source && source.readyState === EventSource.CLOSED) {
        say("Not live: the server has too many live pages, or you may no longer read this page. Reload to update.");
        close();
      } else if (failures > 1 || Date.now() - heard > PATIENCE_MS) lose();
      else say("Not live: the server does not answer. Retrying.");
    };
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) close();
    say(paused ? "Paused" : "Not live yet");
    open();
  });
  // A hidden page closes its connection, because browsers limit connections per server.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
})();
