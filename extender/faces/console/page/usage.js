// Usage over time: who has had how many devices for how long, how long pods waited, and what was free but in pieces.
import { chart, PATTERNS } from "./chart.js";
import { ListView } from "./list-view.js";
import { field, note, unread } from "./parts.js";
import { refine } from "./route.js";
import { get, query } from "./service.js";
import { shown } from "./table-view.js";
import { duration, html, number } from "./text.js";

const AGAIN = 20_000; // milliseconds between two reads
const WINDOWS = { "1h": "1m", "6h": "5m", "24h": "15m" }; // each with the length of a column
const KINDS = ["namespace", "class", "model"];
const MOST = 10_000; // rows of one answer
const SHOWN = 100; // rows that are drawn

const amount = (value) => (value ?? 0).toLocaleString("en-US", { maximumFractionDigits: 1 });
const percent = (share) => `${Math.round(100 * (share ?? 0))}%`;
const wait = (seconds) => (seconds === null ? "" : seconds < 10 ? `${seconds}s` : duration(seconds));
const clock = (time) => new Date(time).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });

async function all(parameters) {
  const items = [];
  let [token, told] = ["", ""];
  do {
    const found = await get(`usage?${query({ ...parameters, limit: MOST, continue: token })}`);
    items.push(...found.items);
    [token, told] = [found.continue ?? "", found.note ?? told];
  } while (token);
  return { items, note: told };
}

export class UsageView extends ListView {
  title = "Usage";
  #found = null;
  #chosen = null; // the column that is read; the last one as long as nobody chooses
  #timer = 0;

  constructor(shared) {
    super(shared, { read: () => this.#read(), took: (found) => (this.#found = found) });
    this.redraw = shared.redraw;
  }

  open(route) {
    const before = this.route && this.#asked();
    this.route = route;
    if (this.#asked() === before) return;
    this.#chosen = null;
    this.reread();
    clearInterval(this.#timer);
    this.#timer = setInterval(() => document.hidden || this.reread(), AGAIN);
  }

  close() {
    clearInterval(this.#timer);
    super.close();
  }

  changed() {
    return false; // what was used is read now and then, not with each change
  }

  // What is asked for: by which property, of which time, and of which driver.
  #asked() {
    const { by, window, driver = "" } = this.route.filters;
    return [KINDS.includes(by) ? by : KINDS[0], Object.hasOwn(WINDOWS, window) ? window : "24h", driver].join(" ");
  }

  async #read() {
    const [by, window, wanted] = this.#asked().split(" ");
    const [drivers, { grafana }] = await Promise.all([all({ by: "driver", window }), get("console/usage")]);
    const named = drivers.items.find((each) => each.driver === wanted);
    const total = named ?? drivers.items.toSorted((one, other) => other.hours - one.hours || other.of - one.of)[0];
    const driver = total?.driver ?? "";
    const [rows, parts, whole, waits] = await Promise.all([
      all({ by, window, driver }),
      all({ by, window, driver, step: WINDOWS[window] }),
      all({ by: "driver", window, driver, step: WINDOWS[window] }),
      all({ window, waits: "true" }),
    ]);
    return { by, window, total, grafana, drivers: drivers.items.map((each) => each.driver), note: drivers.note, rows: byHours(rows.items), ...columns(by, byHours(rows.items), parts.items, whole.items), waits: waits.items };
  }

  template() {
    if (!this.#found) return unread(this.reader.error, "usage");
    const { total, note: since } = this.#found;
    return html`<section class="table usage" aria-label="Usage">
      <h1 class="unseen">Usage</h1>
      ${total ? totals(total) : ""}
      ${this.#filters()}
      ${note(this.reader.error?.message, "problem")} ${note(since)}
      ${total ? this.#devices() : note("No driver has published a device: devices that claims hold come here, with device-hours.")}
      ${this.#waits()}
    </section>`;
  }

  #filters() {
    const { by, window, total, drivers, grafana } = this.#found;
    const choice = (label, name, values, now, words = (each) => each) => field(label, html`<select name=${name} @change=${(event) => refine(this.route, { [name]: event.target.value })}>
      ${values.map((each) => html`<option value=${each} .selected=${each === now}>${words(each)}</option>`)}
    </select>`);
    const csv = query({ by, window, step: WINDOWS[window], format: "csv", limit: MOST });
    return html`<form class="filters" @submit=${(event) => event.preventDefault()}>
      ${choice("By", "by", KINDS, by)}
      ${choice("Time", "window", Object.keys(WINDOWS), window, (each) => `the last ${each === "1h" ? "hour" : each.replace("h", " hours")}`)}
      ${drivers.length > 1 ? choice("Driver", "driver", drivers, total.driver) : ""}
      <a class="csv" href=${`usage?${csv}`} download="usage.csv">Download CSV</a>
      ${grafana ? html`<a class="more" href=${`${grafana}?from=now-${window}&to=now`} target="_blank" rel="noreferrer">More than a day: Grafana</a>` : ""}
    </form>`;
  }

  #devices() {
    const { by, rows, steps, names } = this.#found;
    const choose = (at) => ((this.#chosen = at), this.redraw());
    const said = (step) => {
      const held = step.parts.map((part, index) => [part, names[index]]).filter(([part]) => part >= 0.05);
      const pieces = step.pieces === null ? "; not known what is free in pieces" : step.pieces >= 0.05 ? `; ${amount(step.pieces)} free in pieces` : "";
      return `${step.label}: ${held.length ? held.map(([part, name]) => `${name} ${amount(part)}`).join(", ") : "nothing held"}, of ${amount(step.of)} devices${pieces}`;
    };
    return html`<div class="beside">
      ${steps.length ? chart({ title: `Devices by ${by}`, steps, names, chosen: this.#chosen, choose, said }) : ""}
      ${rows.length ? table("Devices and device-hours", held(by), rows) : note("No claim has held a device in this time.")}
    </div>`;
  }

  #waits() {
    const { waits } = this.#found;
    return html`<section class="part"><h2>How long pods waited</h2>
      ${waits.length ? table("How long pods waited", WAITS, waits) : note("No pod with devices has waited in this time.")}
    </section>`;
  }
}

const byHours = (rows) => rows.filter((each) => each.hours).toSorted((one, other) => other.hours - one.hours);

// The columns of the drawing: the names with the most have parts of their own, all others share one.
function columns(by, rows, parts, whole) {
  const own = rows.slice(0, PATTERNS - 1).map((each) => each[by]);
  const names = rows.length > own.length ? [...own, "all others"] : own;
  const places = new Map(own.map((name, index) => [name, index]));
  const steps = new Map(whole.map((each) => [each.time, { label: clock(each.time), parts: names.map(() => 0), of: each.of, pieces: each.inPieces }]));
  for (const each of parts) {
    const step = steps.get(each.time);
    if (step && each.devices) step.parts[places.get(each[by]) ?? names.length - 1] += each.devices;
  }
  return { steps: [...steps.values()], names: names.map((each) => each || "(no name)") };
}

const totals = ({ driver, devices, of, share, hours, inPieces }) => html`<header class="totals">
  <p class="answer"><strong>${percent(share)}</strong> of ${amount(of)} devices of ${driver} were held: ${amount(devices)} on average, ${amount(hours)} device-hours</p>
  ${inPieces >= 0.05 ? html`<p>${amount(inPieces)} were free, but in pieces: <a href="#/defragment">which pods to move</a></p>` : ""}
</header>`;

const bar = (share) => html`<svg class="bar" aria-hidden="true" width="80" height="8"><rect class="track" width="100%" height="100%" rx="2"></rect><rect class="fill" width=${percent(Math.min(1, share ?? 0))} height="100%" rx="2"></rect></svg>`;

const held = (by) => [
  [by, (row) => row[by] || "(no name)"],
  ["devices", (row) => amount(row.devices), "count"],
  ["share", (row) => html`${percent(row.share)} ${bar(row.share)}`, "count"],
  ["peak", (row) => amount(row.peak), "count"],
  ["hours", (row) => html`<b>${amount(row.hours)}</b>`, "count"],
];

const WAITS = [
  ["namespace", (row) => row.namespace],
  ["waiting", (row) => amount(row.waiting), "count"],
  ["placed", (row) => number(row.placed), "count"],
  ["half within", (row) => wait(row.p50), "count"],
  ["95% within", (row) => wait(row.p95), "count"],
];

const table = (title, cells, rows) => html`<div>
  <table class="rows" aria-label=${title}>
    <thead><tr>${cells.map(([heading, , kind = ""]) => html`<th scope="col" class=${kind}>${heading}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, SHOWN).map((row) => html`<tr>${cells.map(([heading, cell, kind = ""]) => shown(heading, cell(row), kind))}</tr>`)}</tbody>
  </table>
  ${rows.length > SHOWN ? note(`and ${number(rows.length - SHOWN)} more`) : ""}
</div>`;
