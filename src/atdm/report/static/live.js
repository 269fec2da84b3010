// Follows a run: one stream of changed sections, drawn as they come. Texts enter the page as text, never as markup.
"use strict";
(() => {
  const MANY = 200, WIDEST = 26, TICK = 250;
  const at = (id) => document.getElementById(id);
  const words = new Map([...document.querySelectorAll(".states .chip")].map((c) => [c.dataset.state, c.textContent]));
  let state = {}, clocks = { run: 0, round: 0 }, heard = performance.now(), chips = [], over = false;

  const element = (tag, text = "", kind = "") => {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const put = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };
  const show = (id, visible) => { at(id).hidden = !visible; };
  const span = (seconds) => {
    if (seconds < 100) return `${seconds.toFixed(1)} s`;
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
    return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min ${Math.floor(seconds % 60)} s`;
  };
  const count = (letters) => [...state.states ?? ""].filter((c) => letters.includes(c)).length;

  const drawRun = () => {
    const { run, now, names = [] } = state;
    document.body.dataset.status = run.status;
    over = ["done", "aborted", "stopped"].includes(run.status);
    put("protocol", run.protocol === "collect" ? " · equal weights" : run.protocol ? ` · protocol ${run.protocol}` : "");
    if (names.length) put("title", `A run of ${names.length} agents, as the aggregator sees it`);
    put("status", run.text);
    put("plan", run.plan);
    show("plan", run.plan);
    put("attempt", run.attempt ?? "not yet");
    document.title = `${run.status === "running" ? `round ${now?.round ?? state.rounds.length}` : run.status} · atdm live`;
  };

  const drawProgress = () => {
    const { run, now, names = [] } = state, here = run.joined;
    put("joined", names.length ? `${here} of ${names.length}` : "–");
    put("inside", run.inside === null ? "–" : `${run.inside} of ${names.length}`);
    let share = 0, text = "Not begun";
    if (now) {
      share = now.of ? now.answered / now.of : 0;
      text = `Round ${now.round}${now.what ? `, ${now.what}` : ""}: ${now.answered} of ${now.of} agents have answered`;
    } else if (over) {
      share = run.status === "done" ? 1 : 0;
      text = run.status === "done" ? "Done" : "Ended";
    } else if (names.length) {
      share = here / names.length;
      text = `${here} of ${names.length} agents have joined`;
    }
    at("bar").value = share;
    put("bar-text", text);
  };

  const drawAgents = () => {
    const { names, states } = state, reasons = new Map(state.out.map((o) => [o.agent, o.text]));
    if (chips.length !== names.length || chips.some((c, i) => c.name !== names[i])) {
      chips = names.map((name) => {
        const item = element("li"), chip = element("span", name, "chip"), hidden = element("span", "", "visually-hidden");
        item.append(chip, hidden);
        return { name, item, chip, hidden };
      });
      const order = new Intl.Collator("en", { numeric: true });
      at("grid").replaceChildren(...chips.toSorted((a, b) => order.compare(a.name, b.name)).map((c) => c.item));
      at("grid").classList.toggle("many", names.length > MANY);
      const lengths = names.map((name) => name.length).sort((a, b) => a - b);
      at("grid").style.setProperty("--wide", Math.min(WIDEST, lengths[Math.floor(0.9 * (lengths.length - 1))] ?? 4));
    }
    chips.forEach(({ name, item, chip, hidden }, i) => {
      if (chip.dataset.state === states[i]) return;
      chip.dataset.state = states[i];
      const why = reasons.get(name);
      hidden.textContent = words.get(states[i]) + (why ? `: ${why}` : "");
      item.title = `${name}: ${hidden.textContent}`;
    });
    show("no-agents", !names.length);
    for (const total of document.querySelectorAll("[data-count]")) {
      const found = count(total.dataset.count);
      total.textContent = found;
      total.parentElement.classList.toggle("none", !found);
    }
  };

  const tableRow = ([first, ...others], scope, tag) => {
    const row = element("tr"), head = element("th", first);
    head.scope = scope;
    row.append(head, ...others.map((text) => element(tag, text, "num")));
    return row;
  };
  const cell = (text, kind = "num") => element("td", String(text), kind);
  const drawRounds = () => {
    const rounds = state.rounds, longest = Math.max(...rounds.map((r) => r.seconds), 1e-9);
    put("round", String(rounds.at(-1)?.round ?? "–"));
    put("totals", String(rounds.filter((r) => r.total).length));
    show("no-rounds", !rounds.length);
    show("rounds-table", rounds.length);
    at("round-rows").replaceChildren(...rounds.toReversed().map((r) => {
      const row = element("tr"), head = element("th", String(r.round), "num"), bar = element("i"), took = cell("", "took");
      head.scope = "row";
      bar.style.width = `${100 * r.seconds / longest}%`;
      took.append(bar);
      row.append(head, cell(r.what, ""), cell(r.seconds.toFixed(3)), took, cell(r.up), cell(r.down));
      return row;
    }));
  };

  const drawLedger = () => {
    show("no-ledger", !state.ledger.length);
    show("ledger-table", state.ledger.length);
    at("ledger-rows").replaceChildren(...state.ledger.map((r) => {
      const row = element("tr", "", r.grave ? "grave" : ""), head = element("th", r.what);
      head.scope = "row";
      row.append(head, cell(r.means, ""), cell(r.size), cell(r.times.toLocaleString("en")));
      return row;
    }));
  };

  const list = (section, id, rows) => {
    show(section, rows.length);
    at(id).replaceChildren(...rows.map((n) => {
      const item = element("li");
      item.append(element("b", n.agent), ` ${n.text}`);
      return item;
    }));
  };
  const drawNotices = () => list("refusals", "notices", state.notices);
  const drawOut = () => list("out", "absent", state.out);

  const drawResult = () => {
    const found = state.result;
    show("result", found?.facts);
    if (!found?.facts) return;
    at("facts").replaceChildren(...found.facts.map(([name, value]) => {
      const tile = element("div");
      tile.append(element("dt", name), element("dd", value));
      return tile;
    }));
    at("notes").replaceChildren(...found.notes.map((note) => element("li", note)));
    show("notes", found.notes.length);
    const [names, ...lags] = found.model;
    at("model-head").replaceChildren(tableRow(names, "col", "th"));
    at("model").replaceChildren(...lags.map((lag) => tableRow(lag, "row", "td")));
    show("report", found.report);
    if (found.report) {
      const link = element("a", "Open the report");
      link.href = "report.html";
      at("report").replaceChildren(link, found.path ? `, also written to ${found.path}.` : ". Keep it with your browser's “save as”.");
    }
  };

  const drawLog = () => at("lines").replaceChildren(...state.log.toReversed().map((line) => element("li", line)));

  const tick = () => {
    const passed = over ? 0 : (performance.now() - heard) / 1000;
    put("run-time", span(clocks.run + passed));
    put("round-time", state.now ? span(clocks.round + passed) : "–");
  };

  const parts = { // what to draw when a section changes
    run: [drawRun, drawProgress], now: [drawRun, drawProgress], names: [drawRun, drawAgents, drawProgress],
    states: [drawAgents, drawProgress], out: [drawOut, drawAgents], rounds: [drawRounds], ledger: [drawLedger],
    notices: [drawNotices], result: [drawResult], log: [drawLog],
  };
  const link = (where, text) => { at("link").dataset.at = where; put("link", text); };

  const source = new EventSource("events");
  source.addEventListener("open", () => link("live", "live"));
  source.addEventListener("error", () => link("lost", "connection lost: showing the last state"));
  source.addEventListener("change", (event) => {
    const { clocks: times, ...changed } = JSON.parse(event.data);
    if (times) [clocks, heard] = [times, performance.now()];
    Object.assign(state, changed);
    for (const draw of new Set(Object.keys(changed).flatMap((name) => parts[name] ?? []))) draw();
    tick();
  });
  source.addEventListener("gone", () => {
    source.close();
    link("ended", "the command has ended: this is its last state");
  });
  document.documentElement.classList.add("live");
  setInterval(tick, TICK);
})();
