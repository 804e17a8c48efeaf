// The fleet: every device, by node or in groups; filters, an order, and how many devices are in each state.
import { byDriver, kindsOf, measureOf, places, readMatches, sorted, totals } from "./devices.js";
import { emptiness } from "./emptiness.js";
import { Grid } from "./grid.js";
import { allFolded, grouped, nameOf } from "./groups.js";
import { again, beside, calm, field, mark, note } from "./parts.js";
import { Reader } from "./reader.js";
import { refine } from "./route.js";
import { get, query } from "./service.js";
import { html, number, plural } from "./text.js";
import { Tooltip } from "./tooltip.js";

const UNKNOWN = "…"; // in place of a number that the service has not told yet
const NO_FILTERS = { driver: "", class: "", attribute: "", node: "", text: "", state: "" };
const SHAPES = ["group", "fold", "sort", "dense"]; // what else the address may say
const SORTS = { free: "most free", full: "fullest", broken: "most broken" };

const MOST_DRIVERS = 6;

// "6 of 8 devices free, or up to 40 partitions": partitions exclude each other, and the device that they are parts of.
const answer = ({ free, all, freeParts, parts }) =>
  all || !parts
    ? html`<strong>${number(free)}</strong> of ${plural(all, "device")} free${freeParts ? `, or up to ${plural(freeParts, "partition")}` : ""}`
    : html`<strong>${number(freeParts)}</strong> of ${plural(parts, "partition")} free`;

// "6 of 8, or up to 40 partitions", as kubectl dra free says it.
const inWords = ({ free, all, freeParts, parts }) =>
  all || !parts
    ? `${number(free)} of ${number(all)}${freeParts ? `, or up to ${plural(freeParts, "partition")}` : ""}`
    : `${number(freeParts)} of ${plural(parts, "partition")}`;

// The same for each driver, if there are several.
const drivers = (found) =>
  found.length > 1
    ? html`<ul class="drivers quiet" aria-label="Free devices by driver">${found.slice(0, MOST_DRIVERS).map(({ driver, ...kinds }) => html`<li>${driver} ${inWords(kinds)}</li>`)}${found.length > MOST_DRIVERS ? html`<li>and ${plural(found.length - MOST_DRIVERS, "more driver")}</li>` : ""}</ul>`
    : "";

export class FleetView {
  title = "Fleet";
  #matches = null;
  #note = "";
  #asked = "";
  #reader = null;
  #isKnown = true; // whether the matches are those of the filters

  constructor({ devices, redraw }) {
    this.devices = devices;
    this.redraw = redraw;
    this.tooltip = new Tooltip(devices);
    this.grid = new Grid(devices, (fold) => refine(this.route, { fold }), this.tooltip);
    this.type = calm(150, (filters) => refine(this.route, filters));
  }

  open(route) {
    this.route = route;
    const { class: deviceClass = "", attribute = "" } = route.filters;
    const asked = query({ class: deviceClass, attribute: attribute.trim() });
    if (asked !== this.#asked) this.#ask(asked);
  }

  close() {
    this.#reader?.close();
    this.tooltip.hide();
  }

  // Selectors of classes run in the service: it alone knows which devices belong to a class.
  #ask(asked) {
    this.#reader?.close();
    [this.#asked, this.#isKnown, this.#reader] = [asked, !asked, null];
    if (!asked) return this.#take(null);
    this.#reader = new Reader({ read: () => get(`console/matches?${asked}`), took: (found) => this.#take(found), redraw: this.redraw });
    this.#reader.ask();
  }

  #take(found) {
    [this.#matches, this.#note, this.#isKnown] = [found && readMatches(found), found?.note ?? "", true];
  }

  #stale = again(() => this.reread()); // not calm: it waits for a pause, and a busy cluster makes none

  changed({ pools }) {
    if (!pools) return false;
    this.#stale(); // a driver may have published other devices
    return true;
  }

  reread() {
    this.#reader?.ask();
  }

  drawn(root) {
    this.tooltip.attach(root.querySelector(".tooltip"));
    this.grid.attach(root.querySelector(".lines"));
    this.grid.show(this.lines, Boolean(this.route.filters.dense));
  }

  // The rows that match. While the service has not told which these are, the ones before stay, paler and without numbers.
  #found() {
    const isRefused = this.#reader?.error && !this.#isKnown;
    const { filters } = this.route;
    const found = this.devices.select(filters, isRefused ? new Map() : this.#matches, this.devices.groupOf(filters.group));
    return { found, isKnown: this.#isKnown || isRefused, isRefused };
  }

  // The rows in their order, below lines with totals if there are groups.
  #lines(found, { group, fold = "", sort }) {
    const measure = measureOf(sort);
    const ordered = measure ? sorted(found, measure) : found;
    return this.devices.groupOf(group) ? grouped(ordered, group, fold, measure) : ordered.filter(({ cells }) => cells.length);
  }

  template() {
    const { filters } = this.route;
    const { found, isKnown, isRefused } = this.#found();
    this.lines = this.#lines(found, filters);
    const counts = totals(found);
    const parts = totals(found, "parts");
    const isEmpty = !isRefused && !found.some(({ cells }) => cells.length);
    const shown = (count) => (isKnown ? number(count ?? 0) : UNKNOWN);
    const named = [filters.class, filters.attribute, filters.driver, filters.node].find(Boolean);
    return html`<section class="fleet" aria-label="Fleet">
      <h1 class="unseen">Fleet</h1>
      <header class="totals">
        <p class="answer">${isKnown ? answer(kindsOf(found)) : html`<strong>${UNKNOWN}</strong> of ${UNKNOWN} devices free`}${named ? html` <span class="quiet">· ${named}</span>` : ""}</p>
        ${isKnown ? drivers(byDriver(found)) : ""}
        <ul class="states" aria-label="Devices by state">
          ${this.devices.states.map((state) => this.#state(state, counts.get(state), isKnown && parts.get(state), shown, filters.state))}
        </ul>
      </header>
      ${this.#filters(filters)} ${note(this.#reader?.error?.message, "problem")} ${note(this.#note)} ${this.#unknown(filters)}
      ${isKnown && isEmpty ? note(emptiness(this.devices, filters, this.#matches)) : ""}
      <div class=${filters.dense ? "lines dense" : "lines"} role="grid" aria-label=${`Devices of ${plural(places(found), "place")}`} aria-readonly="true" aria-busy=${isKnown ? "false" : "true"}></div>
      <div class="tooltip" id="tooltip" role="tooltip" hidden></div>
    </section>`;
  }

  // What a link asks for that the fleet does not have.
  #unknown({ group, sort, ...others }) {
    const odd = Object.keys(others).filter((name) => !(name in NO_FILTERS) && !SHAPES.includes(name));
    return [
      group && !this.devices.groupOf(group) && `Devices are not grouped by ${group}; there is ${[...this.devices.labels, "model", "namespace"].join(", ")}.`,
      sort && !measureOf(sort) && `Nodes are not sorted by ${sort}; there is ${Object.keys(SORTS).join(", ")}.`,
      odd.length && `The fleet has no filter ${odd.join(", ")}; there is ${Object.keys(NO_FILTERS).join(", ")}.`,
    ].map((text) => note(text, "problem"));
  }

  #state(state, count, parts, shown, chosen) {
    const isChosen = state === chosen;
    return html`<li><button type="button" aria-pressed=${isChosen} ?data-none=${!count && !parts}
      @click=${() => refine(this.route, { state: isChosen ? "" : state })}>${mark(state)}<b>${shown(count)}</b> ${state}${beside(parts)}</button></li>`;
  }

  #filters(filters) {
    const { driver = "", class: deviceClass = "", attribute = "", node = "", text = "", group = "", sort = "", dense = "" } = filters;
    return html`<form class="filters" @submit=${(event) => event.preventDefault()}>
      ${field("Class", this.#choice("class", deviceClass, this.devices.classes, "all classes"))}
      ${field("Driver", this.#choice("driver", driver, this.devices.drivers(), "all drivers"))}
      ${field("Attribute", this.#typed("attribute", attribute, this.devices.example))}
      ${field("Node, pool or device", this.#typed("text", text, "text"))}
      ${field("Groups", this.#choice("group", group, this.devices.groupings(), "none", nameOf))}
      ${field("Order", this.#choice("sort", sort, Object.keys(SORTS), "by name", (each) => SORTS[each] ?? each))}
      <button type="button" class="dense" aria-pressed=${dense ? "true" : "false"} @click=${() => refine(this.route, { dense: dense ? "" : "yes" })}>Dense</button>
      ${group ? html`<button type="button" class="fold" @click=${() => refine(this.route, { fold: allFolded(filters.fold) })}>${filters.fold ? "Unfold all" : "Fold all"}</button>` : ""}
      ${node ? html`<button type="button" class="chosen" aria-label=${`no longer only node ${node}`} @click=${() => refine(this.route, { node: "" })}>node ${node} ×</button>` : ""}
      ${Object.keys(NO_FILTERS).some((name) => filters[name]) ? html`<button type="button" class="clear" @click=${() => refine(this.route, NO_FILTERS)}>Clear</button>` : ""}
    </form>`;
  }

  #choice(name, value, options, all, shown = (each) => each) {
    return html`<select name=${name} @change=${(event) => refine(this.route, { [name]: event.target.value })}>
      <option value="" .selected=${!value}>${all}</option>
      ${[...new Set(value ? [...options, value] : options)].map((each) => html`<option value=${each} .selected=${each === value}>${shown(each)}</option>`)}
    </select>`;
  }

  #typed(name, value, placeholder) {
    return html`<input type="search" name=${name} .value=${value} placeholder=${placeholder} autocomplete="off" spellcheck="false"
      @input=${(event) => this.type({ [name]: event.target.value })}>`;
  }
}
