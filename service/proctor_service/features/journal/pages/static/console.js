"use strict";
// Shows new records without a reload: fetches the body of the page, and puts it in place of the old.
(() => {
  const PAUSE_MS = 3000;
  const main = document.querySelector("main[data-live]");
  const live = document.getElementById("live");
  if (!main || !live) return;
  let tag = main.dataset.live;
  let waiting = false;

  function inUse() {
    const focused = document.activeElement;
    return (focused !== main && main.contains(focused)) || !document.getSelection().isCollapsed;
  }

  function replace(html) {
    const open = [...main.querySelectorAll("details")].map((each) => each.open);
    const fresh = new DOMParser().parseFromString(html, "text/html");
    main.replaceChildren(...fresh.body.childNodes);
    main.querySelectorAll("details").forEach((each, index) => { each.open = open[index] ?? each.open; });
  }

  async function refresh() {
    if (waiting || !live.checked || document.hidden || inUse()) return;
    waiting = true;
    try {
      const headers = { "Proctor-Part": "body", "If-None-Match": tag };
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
      if (answer.status === 401) location.reload();
      if (answer.ok) {
        const html = await answer.text();
        if (live.checked && !inUse()) {
          replace(html);
          tag = answer.headers.get("ETag") ?? "";
        }
      }
    } catch {
      // The service is away for a moment: the next round tries again.
    } finally {
      waiting = false;
    }
  }

  setInterval(refresh, PAUSE_MS);
  document.addEventListener("visibilitychange", refresh);
})();
