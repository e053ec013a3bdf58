// Keeps a page up to date: swaps the parts that the server says have changed. Everything works without it.
"use strict";

(() => {
  const url = document.body.dataset.live;
  const bar = document.getElementById("live");
  const said = document.getElementById("live-said");
  const pause = document.getElementById("pause");
  if (!url || !window.EventSource) return;
  bar.hidden = false;

  // The server sends an event at least every five seconds. If it hangs or its host is gone, the connection stays open.
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

  // Shows that the figures on the page are old: a notice, and no colours.
  const lose = () => {
    say("Not live: the server does not answer. Trying again.");
    const since = heard.toISOString().slice(11, 19);
    lost.textContent = `This server cannot be reached. What is below was so at ${since} UTC.`;
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

  // What the reader has marked, or stands on with the keyboard, is not taken away. A selection is asked once for all
  // that is swapped: each question makes the browser lay out the page.
  const markedRange = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed ? selection.getRangeAt(0) : null;
  };

  const swap = (element, html, marked) => {
    if (marked && marked.intersectsNode(element)) return;
    const links = [...element.querySelectorAll("a, button, summary, [tabindex]")];
    const place = links.indexOf(document.activeElement);
    const scrolled = [...element.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    element.innerHTML = html;
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
    // The page has another structure now, for example because this peer has become master.
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
        say("Not live: the server takes no more pages, or you may not read this one any more. Reload to see newer.");
        close();
      } else if (failures > 1 || Date.now() - heard > PATIENCE_MS) lose();
      else say("Not live: the server does not answer. Trying again.");
    };
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) close();
    say(paused ? "Paused" : "Not live yet");
    open();
  });
  // A page that is not seen costs nothing, and keeps none of the few connections that a browser opens.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
})();
