// Follows the desk: sections come as the server drew them, with every text in them escaped; ages are worked out here.
"use strict";
(() => {
  const at = (id) => document.getElementById(id), TICK = 1000;
  let now = null, heard = performance.now();

  const ago = (seconds) => {
    const size = Math.abs(seconds);
    const text = size < 90 ? `${Math.round(size)} s` : size < 5400 ? `${Math.round(size / 60)} min`
      : size < 172800 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} days`;
    return seconds >= 0 ? `${text} ago` : `in ${text}`;
  };
  const tick = () => {
    if (now === null) return;
    const clock = now + (performance.now() - heard) / 1000;
    for (const moment of document.querySelectorAll("time[data-at]")) {
      moment.title ||= moment.textContent;
      const text = ago(clock - Number(moment.dataset.at));
      if (moment.textContent !== text) moment.textContent = text;
    }
  };
  const link = (where, text) => {
    at("link").dataset.at = where;
    if (at("link").textContent !== text) at("link").textContent = text;
  };

  const source = new EventSource("events");
  source.addEventListener("open", () => link("live", "live"));
  source.addEventListener("error", () => link("lost", "connection lost: showing the last state"));
  source.addEventListener("change", (event) => {
    const { clocks, ...changed } = JSON.parse(event.data);
    if (clocks) [now, heard] = [clocks.now, performance.now()];
    const focused = document.activeElement?.closest("figure")?.id;
    for (const [name, html] of Object.entries(changed)) {
      if (at(name) && at(name).innerHTML !== html) at(name).innerHTML = html;
    }
    if (focused && !document.activeElement?.closest("figure")) at(focused)?.querySelector(".plot").focus();
    document.dispatchEvent(new Event("drawn"));
    tick();
  });
  source.addEventListener("gone", () => {
    source.close();
    link("ended", "the desk has stopped: this is its last state");
  });
  setInterval(tick, TICK);
})();
