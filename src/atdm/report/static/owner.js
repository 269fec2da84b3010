// Follows one home: a stream of changed sections, drawn as they come, and the owner's switches.
// Texts enter the page as text, never as markup.
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const home = Number(document.body.dataset.home);
  const word = document.querySelector("meta[name=atdm-word]").content;
  let state = {};

  const element = (tag, text = "", kind = "") => {
    const made = document.createElement(tag);
    if (text !== "") made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const put = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };
  const show = (id, visible) => { at(id).hidden = !visible; };
  const when = (stamp) => new Date(stamp).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  const cell = (text, kind = "") => element("td", String(text), kind);

  const words = {
    "takes part": () => state.home.under_way ? "Your home takes part, and is answering a question now."
      : state.home.homes ? "Your home takes part." : "Your home is ready to take part.",
    paused: () => `Paused${state.home.since ? ` since ${when(state.home.since)}` : ""}: your home stays out of every new question.`
      + (state.home.under_way ? " One that had begun is being finished." : ""),
    left: () => `Left for good${state.home.since ? ` on ${when(state.home.since)}` : ""}.`,
  };
  const drawHome = () => {
    const { choice, connected, server, homes, next_block, allows } = state.home, paused = choice === "paused";
    document.body.dataset.choice = choice;
    put("status", words[choice]());
    put("server", (connected ? `Connected to ${server}. ` : `Not connected at present${server ? ` (${server})` : ""}: it tries again by itself. `)
      + (homes ? `${homes} homes are enrolled.` : "It has no list of homes that names yours: the first one comes with the first question. If your home took part before, it was taken off."));
    put("pause", paused ? "Take part again" : "Pause");
    put("pause-now", paused ? "Your home stays out until you take part again." : "Your home answers every new question with “out”, until you take part again.");
    put("next-block", next_block);
    show("pausing", choice !== "left");
    show("leaving", choice !== "left");
    show("gone", choice === "left");
    at("allows").replaceChildren(...allows.map((text) => element("li", text)));
  };

  const drawFacts = () => at("facts").replaceChildren(...state.facts.map(([name, value]) => {
    const tile = element("div");
    tile.append(element("dt", name), element("dd", value));
    return tile;
  }));

  const drawRuns = () => {
    show("no-runs", !state.runs.length);
    at("runs").replaceChildren(...state.runs.map((run) => {
      const item = element("li"), head = element("div"), time = element("time", when(run.time));
      item.dataset.kind = run.kind;
      time.dateTime = run.time;
      head.append(time, element("div", run.what));
      if (run.window) head.append(element("small", `from ${when(1000 * run.window[0])} to ${when(1000 * run.window[1])}`));
      item.append(head, element("div", `${run.messages} message${run.messages === 1 ? "" : "s"} sent, ${run.bytes}`, "left"),
        element("div", run.outcome, "said"));
      return item;
    }));
  };

  const columns = [...document.querySelectorAll("#days-table thead th")].map((head) => head.textContent);
  const drawDays = () => {
    show("no-days", !state.days.length);
    show("days-table", state.days.length);
    at("days").replaceChildren(...state.days.map((day) => {
      const row = element("tr"), head = element("th", day.day), others = cell("");
      head.scope = "row";
      if (day.with.length) {
        const list = element("details");
        list.append(element("summary", `${day.with.length} homes`), day.with.join(", "));
        others.append(list);
      }
      row.append(head, cell(day.in), cell(day.way), cell(day.sent, "num"), cell(day.filled, "num"), others, cell(day.left));
      [...row.children].forEach((one, i) => { one.dataset.name = columns[i]; }); // phones have no room for a head
      return row;
    }));
  };

  const drawMessages = () => at("lines").replaceChildren(...state.messages.map((line) => {
    const row = element("tr"), came = cell(line.asked);
    if (line.reason) came.append(element("div", line.reason, "small"));
    row.append(cell(when(line.time)), came, cell(line.received, "num"), cell(line.sent), cell(line.bytes, "num"));
    return row;
  }));

  const parts = { home: drawHome, facts: drawFacts, runs: drawRuns, days: drawDays, messages: drawMessages };
  const link = (where, text) => { at("link").dataset.at = where; put("link", text); };
  const source = new EventSource(`events?home=${home}`);
  source.addEventListener("open", () => link("live", "live"));
  source.addEventListener("error", () => link("lost", "connection to the agent lost: showing the last state"));
  source.addEventListener("change", (event) => {
    const changed = JSON.parse(event.data);
    Object.assign(state, changed);
    for (const name of Object.keys(changed)) parts[name]?.();
  });
  source.addEventListener("gone", () => {
    source.close();
    link("ended", "the agent has stopped: this is its last state");
  });

  const choose = async (choice) => {
    const buttons = [at("pause"), at("leave"), at("really")];
    for (const button of buttons) button.disabled = true;
    let fault = "";
    try {
      const answer = await fetch("choice", {
        method: "POST", headers: { "Content-Type": "application/json", "X-Atdm-Word": word }, body: JSON.stringify({ home, choice }),
      });
      if (!answer.ok) fault = `Nothing was changed: ${await answer.text()}`;
    } catch {
      fault = "Nothing was changed: the agent does not answer. Is it running?";
    }
    put("fault", fault);
    show("fault", fault);
    for (const button of buttons) button.disabled = false;
  };
  at("pause").addEventListener("click", () => choose(state.home.choice === "paused" ? "takes part" : "paused"));
  at("leave").addEventListener("click", () => at("sure").showModal());
  at("stay").addEventListener("click", () => at("sure").close());
  at("really").addEventListener("click", () => { at("sure").close(); choose("left"); });
  document.documentElement.classList.add("live");
})();
