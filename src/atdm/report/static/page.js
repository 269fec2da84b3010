// Zoom, tooltips and CSV downloads for the charts of a report. The charts are complete without it.
"use strict";
(() => {
  const WIDE = 100000, HIGH = 10000, HOUR = 3600, DAY = 86400;
  const HOUR_STEPS = [1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672, 2184, 8736];
  const MOST_HOURS = 8, MOST_NUMBERS = 6, NARROW = 480, MOST_ZOOM = 400;

  const numberTicks = (low, high) => {
    const rough = (high - low) / MOST_NUMBERS, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9));
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k <= Math.floor(high / step + 1e-9); k++)
      ticks.push([k * step, (k * step + 0).toFixed(digits).replace("-", "−")]);
    return ticks;
  };

  const powerLabel = (factor, power) => (power >= -3 && power <= 4
    ? (factor * 10 ** power).toFixed(Math.max(0, -power)) : `${factor}e${power}`.replace("-", "−"));

  const logTicks = (low, high) => { // low and high are log10
    if (high - low < 1) return numberTicks(10 ** low, 10 ** high).map(([v, text]) => [Math.log10(v), text]);
    const step = Math.ceil((high - low) / MOST_NUMBERS), ticks = [];
    for (let k = Math.floor(low / step) * step; k <= Math.floor(high); k += step)
      for (const m of high - low < 3 ? [1, 2, 5] : [1]) ticks.push([k + Math.log10(m), powerLabel(m, k)]);
    return ticks.filter(([at]) => at >= low && at <= high);
  };

  const timeLabel = (seconds) => {
    const date = new Date(seconds * 1000);
    return seconds % DAY ? date.toISOString().slice(11, 16)
      : `${date.getUTCDate()} ${date.toLocaleString("en", { month: "short", timeZone: "UTC" })}`;
  };

  const hourTicks = (low, high, axis) => {
    const unit = axis === "time" ? HOUR : 1;
    const step = unit * (HOUR_STEPS.find((s) => (high - low) / (unit * s) <= MOST_HOURS) ?? HOUR_STEPS.at(-1));
    const ticks = [];
    for (let k = Math.ceil(low / step); k <= Math.floor(high / step); k++)
      ticks.push([k * step, axis === "time" ? timeLabel(k * step) : String(k * step)]);
    return ticks;
  };

  const ticksOf = (low, high, axis) => (axis === "number" ? numberTicks(low, high)
    : axis === "log" ? logTicks(low, high) : hourTicks(low, high, axis));
  const placed = (values, axis) => (axis === "log" ? values.map((v) => (v > 0 ? Math.log10(v) : null)) : values);

  const stamp = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";

  const csv = (data, axis) => {
    const quote = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
    const labels = data.labels.length ? ["name"] : [];
    const head = [axis === "time" ? "time" : data.x.name, ...labels, ...data.columns.map((c) => c.name)];
    const rows = data.x.values.map((x, i) => [
      axis === "time" ? new Date(x * 1000).toISOString().replace(".000Z", "Z") : String(x),
      ...(labels.length ? [data.labels[i]] : []),
      ...data.columns.map((c) => (c.values[i] === null ? "" : String(c.values[i]))),
    ]);
    return [head, ...rows].map((row) => row.map(quote).join(",")).join("\n") + "\n";
  };

  const download = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const start = (figure) => {
    const meta = JSON.parse(figure.dataset.chart);
    const data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const find = (selector) => figure.querySelector(selector);
    const plot = find(".plot"), svg = find("svg"), tip = find(".tip"), pick = find(".pick");
    const xs = placed(data.x.values, meta.axis), [xmin, xmax] = meta.x, [ymin, ymax] = meta.y;
    const drawn = data.columns.filter((c) => c.drawn).map((c) => placed(c.values, meta.y_axis));
    const toX = (x) => ((x - xmin) / (xmax - xmin)) * WIDE, toY = (y) => ((ymax - y) / (ymax - ymin)) * HIGH;
    let view = [xmin, xmax], shown = [ymin, ymax], at = null, drag = null;

    const visible = () => { // the y range of what the view holds, a little wider
      const whole = view[0] <= xmin && view[1] >= xmax;
      if (whole) return [ymin, ymax];
      let low = Infinity, high = -Infinity;
      xs.forEach((x, i) => {
        if (x < view[0] || x > view[1]) return;
        for (const values of drawn) if (values[i] !== null) {
          low = Math.min(low, values[i]);
          high = Math.max(high, values[i]);
        }
      });
      if (!(high > low)) return [ymin, ymax];
      if (figure.querySelector(".bars")) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
      if (meta.hard) [low, high] = [Math.max(low, meta.hard[0]), Math.min(high, meta.hard[1])];
      const pad = 0.05 * (high - low);
      return [low - pad, high + pad];
    };

    const labelled = (ticks, place) => ticks.map(([value, text]) => {
      const span = document.createElement("span");
      span.textContent = text;
      span.style[place[0]] = `${place[1](value) * 100}%`;
      return span;
    });

    const draw = () => {
      const [x0, x1] = view, [y0, y1] = (shown = visible());
      svg.setAttribute("viewBox", `${toX(x0)} ${toY(y1)} ${toX(x1) - toX(x0)} ${toY(y0) - toY(y1)}`);
      const yTicks = ticksOf(y0, y1, meta.y_axis);
      let xTicks = ticksOf(x0, x1, meta.axis);
      if (plot.clientWidth < NARROW && xTicks.length > 5) xTicks = xTicks.filter((_, i) => i % 2 === 0);
      find(".grid").setAttribute("d", yTicks.map(([v]) => `M0 ${toY(v)}h${WIDE}`).join(""));
      find(".y").replaceChildren(...labelled(yTicks, ["top", (v) => (y1 - v) / (y1 - y0)]));
      find(".x").replaceChildren(...labelled(xTicks, ["left", (v) => (v - x0) / (x1 - x0)]));
      figure.classList.toggle("zoomed", x0 > xmin || x1 < xmax);
    };

    const zoomTo = (low, high) => {
      const least = (xmax - xmin) / Math.min(MOST_ZOOM, Math.max(xs.length / 4, 1));
      const width = Math.min(Math.max(high - low, least), xmax - xmin);
      const left = Math.min(Math.max((low + high - width) / 2, xmin), xmax - width);
      view = [left, left + width];
      draw();
    };
    const scale = (factor, centre = at === null ? (view[0] + view[1]) / 2 : xs[at]) =>
      zoomTo(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
    const reset = () => { hide(); zoomTo(xmin, xmax); };

    const nearest = (x) => {
      let low = 0, high = xs.length - 1;
      while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
      return x - xs[low] < xs[high] - x ? low : high;
    };

    const hide = () => { at = null; tip.hidden = true; find(".cursor").setAttribute("d", ""); };
    const show = (index) => {
      at = Math.min(Math.max(index, 0), xs.length - 1);
      const x = xs[at];
      if (x < view[0] || x > view[1]) zoomTo(x - (view[1] - view[0]) / 2, x + (view[1] - view[0]) / 2);
      find(".cursor").setAttribute("d", `M${toX(x)} ${-HIGH}v${3 * HIGH}`);
      const title = document.createElement("b");
      title.textContent = data.labels[at] ?? (meta.axis === "time" ? stamp(x) : `${data.x.name}: ${data.x.values[at]}`);
      const lines = data.columns.filter((c) => c.values[at] !== null).map((c) => {
        const line = document.createElement("div"), value = document.createElement("span");
        value.textContent = String(c.values[at]).replace("-", "−");
        line.append(c.name + " ", value);
        return line;
      });
      tip.replaceChildren(title, ...lines);
      tip.hidden = false;
      const share = (x - view[0]) / (view[1] - view[0]);
      tip.style.left = share > 0.5 ? "auto" : `calc(${share * 100}% + 12px)`;
      tip.style.right = share > 0.5 ? `calc(${(1 - share) * 100}% + 12px)` : "auto";
    };

    const under = (event) => {
      const box = plot.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      return view[0] + share * (view[1] - view[0]);
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button === 0) { drag = under(event); plot.setPointerCapture(event.pointerId); }
    });
    plot.addEventListener("pointermove", (event) => {
      const x = under(event);
      show(nearest(x));
      if (drag !== null) {
        pick.setAttribute("x", Math.min(toX(drag), toX(x)));
        pick.setAttribute("width", Math.abs(toX(x) - toX(drag)));
        pick.setAttribute("y", toY(shown[1]));
        pick.setAttribute("height", toY(shown[0]) - toY(shown[1]));
      }
    });
    const drop = (event) => {
      if (drag === null) return;
      const from = drag, to = under(event);
      drag = null;
      pick.setAttribute("width", 0);
      if (event.type === "pointerup" && Math.abs(to - from) > 0.02 * (view[1] - view[0]))
        zoomTo(Math.min(from, to), Math.max(from, to));
    };
    plot.addEventListener("pointerup", drop);
    plot.addEventListener("pointercancel", drop);
    plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) hide(); });
    plot.addEventListener("blur", hide);
    plot.addEventListener("dblclick", reset);
    plot.addEventListener("keydown", (event) => {
      const middle = nearest((view[0] + view[1]) / 2), jump = event.shiftKey ? 10 : 1;
      const keys = {
        ArrowLeft: () => show(at === null ? middle : at - jump),
        ArrowRight: () => show(at === null ? middle : at + jump),
        Home: () => show(0),
        End: () => show(xs.length - 1),
        "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), Escape: reset,
      };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); }
    });
    const does = {
      in: () => scale(0.5), out: () => scale(2), reset,
      csv: () => download(`${figure.id}.csv`, csv(data, meta.axis)),
    };
    for (const button of figure.querySelectorAll("button[data-do]"))
      button.addEventListener("click", () => does[button.dataset.do]());
    plot.removeAttribute("title"); // the help stands once at the top of the page; a native tooltip would cover ours
    new ResizeObserver(draw).observe(plot);
  };

  const tableCsv = (table) => [...table.rows].map((row) => [...row.cells]
    .map((cell) => cell.textContent.trim().replaceAll("−", "-"))
    .map((cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(",")).join("\n") + "\n";

  document.documentElement.classList.add("live");
  for (const button of document.querySelectorAll("button[data-table]")) {
    const name = button.dataset.table;
    button.addEventListener("click", () => download(`${name}.csv`, tableCsv(document.getElementById(`table-${name}`))));
  }
  const begin = () => document.querySelectorAll("figure[data-chart]:not([data-begun])").forEach((figure) => {
    figure.dataset.begun = "";
    start(figure);
  });
  begin();
  document.addEventListener("drawn", begin); // by a page that draws its figures anew
})();
