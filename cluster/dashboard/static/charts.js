// Four charts of the last 15 minutes, with one cursor. Lines differ in dashes as well as in colour; events are vertical lines.
import { size, seconds, latency } from "./words.js";

const KEPT_SECONDS = 900;
const DASHES = [[], [7, 4], [2, 3]];
const CHARTS = {
  lag_bytes: { quantities: { lag_bytes: "" }, words: size, low: 1000 },
  lag_seconds: { quantities: { lag_seconds: "" }, words: seconds, low: 1 },
  ack: { quantities: { ack_p50: " p50", ack_p99: " p99" }, words: latency, low: 0.001 },
  rate: { quantities: { rate: "" }, words: (value) => `${size(value)}/s`, low: 1000 },
};

export function charts() {
  let columns = { t: [] };
  let marks = [];
  const drawn = Object.entries(CHARTS).map(([name, chart]) => new Chart(name, chart, () => marks));
  const show = () => drawn.forEach((each) => each.show(columns));

  new ResizeObserver(() => drawn.forEach((each) => each.resize())).observe(document.querySelector(".charts"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawn.forEach((each) => each.forget());
    show();
  });
  return {
    start(all) {
      columns = all;
      show();
    },
    add(sample, newMarks) {
      marks = newMarks;
      append(columns, sample);
      show();
    },
  };
}

function append(columns, sample) {
  if (!sample.t.length || sample.t[0] <= columns.t.at(-1)) return;
  const before = columns.t.length;
  columns.t.push(sample.t[0]);
  const drop = columns.t.findIndex((t) => t >= sample.t[0] - KEPT_SECONDS);
  columns.t.splice(0, drop);
  for (const quantity of Object.keys(sample).filter((key) => key !== "t")) {
    const known = (columns[quantity] ??= {});
    for (const name of Object.keys(sample[quantity])) known[name] ??= new Array(before).fill(null);
    for (const name of Object.keys(known)) {
      known[name].push(sample[quantity][name]?.[0] ?? null);
      known[name].splice(0, drop);
    }
  }
}

class Chart {
  constructor(name, { quantities, words, low }, marks) {
    Object.assign(this, { quantities, words, low, marks, plot: null, names: "" });
    this.place = document.getElementById(`chart-${name}`);
    this.now = document.getElementById(`now-${name}`);
  }

  lines(columns) {
    return Object.entries(this.quantities).flatMap(([quantity, suffix]) => {
      const members = Object.entries(columns[quantity] ?? {});
      const named = (member) => (suffix && members.length === 1 ? suffix.trim() : member + suffix);
      const known = members.filter(([, values]) => values.some((value) => value !== null));
      return known.map(([member, values]) => ({ name: named(member), values }));
    });
  }

  show(columns) {
    const lines = this.lines(columns);
    this.tell(lines);
    const names = lines.map((each) => each.name).join();
    if (names !== this.names) this.forget();
    this.names = names;
    const data = [columns.t, ...lines.map((each) => each.values)];
    if (this.plot) this.plot.setData(data);
    else if (lines.length && columns.t.length > 1) this.plot = new uPlot(this.options(lines), data, this.place);
  }

  tell(lines) {
    const keys = lines.flatMap((each, i) => {
      const value = each.values.at(-1);
      if (value == null && lines.length > 2) return []; // Who was a slave, or the master, some time ago.
      const key = document.createElement("span");
      key.className = `key s${(i % 6) + 1}`;
      key.textContent = `${each.name} ${value == null ? "–" : this.words(value)}`;
      return [key];
    });
    if (!keys.length) keys.push("not told");
    this.now.replaceChildren(...keys);
  }

  options(lines) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), font: "11px system-ui", ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
    return {
      ...this.extent(),
      legend: { show: false },
      cursor: { sync: { key: "twinlog" }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, this.low)] } },
      series: [
        { value: (_, t) => (t == null ? "" : new Date(t * 1000).toLocaleTimeString()) },
        ...lines.map((each, i) => ({
          label: each.name,
          stroke: colour(`--s${(i % 6) + 1}`),
          width: 2,
          dash: DASHES[i % 3],
          points: { show: false },
          spanGaps: false,
        })),
      ],
      axes: [
        { ...axis, size: 24, space: 80, values: clocks },
        { ...axis, size: 58, space: 34, values: (_, values) => values.map((value) => this.words(value)) },
      ],
      hooks: { drawClear: [(plot) => this.drawMarks(plot, colour)] },
    };
  }

  drawMarks(plot, colour) {
    const { ctx, bbox } = plot;
    for (const [at, mark] of this.marks()) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.fillStyle = colour(`--${mark}`);
      ctx.globalAlpha = 0.55;
      ctx.fillRect(x, bbox.top, Math.max(1, devicePixelRatio), bbox.height);
      ctx.globalAlpha = 1;
    }
  }

  extent() {
    return { width: Math.max(200, this.place.clientWidth), height: 150 };
  }

  resize() {
    this.plot?.setSize(this.extent());
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
  }
}

function clocks(plot, times) {
  const { min, max } = plot.scales.x;
  const parts = { hour12: false, hour: "2-digit", minute: "2-digit", ...(max - min < 240 && { second: "2-digit" }) };
  return times.map((t) => new Date(t * 1000).toLocaleTimeString([], parts));
}
