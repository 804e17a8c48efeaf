// The fleet: every device, by node or by groups of nodes; filters, and how many devices are in each state.
import { byDriver, kindsOf, places, readMatches, totals } from "./devices.js";
import { Grid } from "./grid.js";
import { allFolded, grouped, nameOf, sum } from "./groups.js";
import { again, beside, calm, field, mark, note } from "./parts.js";
import { Reader } from "./reader.js";
import { refine } from "./route.js";
import { get, query } from "./service.js";
import { html, number, plural } from "./text.js";

const UNKNOWN = "…"; // in place of a number that the service has not told yet
const NO_FILTERS = { driver: "", class: "", attribute: "", node: "", text: "", state: "" };

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
    this.grid = new Grid(devices, (fold) => refine(this.route, { fold }));
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
  }

  // Selectors of classes run in the service: it alone knows which devices belong to a class.
  #ask(asked) {
    this.close();
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
    this.grid.attach(root.querySelector(".lines"));
    this.grid.show(this.lines);
  }

  // The rows that match. While the service has not told which these are, the ones before stay, paler and without numbers.
  #found() {
    const isRefused = this.#reader?.error && !this.#isKnown;
    return { found: this.devices.select(this.route.filters, isRefused ? new Map() : this.#matches), isKnown: this.#isKnown || isRefused };
  }

  template() {
    const { filters } = this.route;
    const { found, isKnown } = this.#found();
    const index = this.devices.labels.indexOf(filters.group);
    this.lines = index < 0 ? found.filter(({ cells }) => cells.length) : grouped(found, index, filters.fold ?? "");
    const counts = totals(found);
    const parts = totals(found, "parts");
    const all = sum(counts) + sum(parts);
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
      ${this.#filters(filters)} ${note(this.#reader?.error?.message, "problem")} ${note(this.#note)} ${this.#unknownGroup(filters.group, index)}
      <div class="lines" role="grid" aria-label=${`Devices of ${plural(places(found), "place")}`} aria-rowcount=${this.lines.length} aria-readonly="true" aria-busy=${isKnown ? "false" : "true"}></div>
      ${all ? "" : html`<p class="empty quiet">No device matches.</p>`}
    </section>`;
  }

  #unknownGroup(label, index) {
    return note(label && index < 0 && `Nodes are not grouped by ${label}; there is ${this.devices.labels.join(", ")}.`, "problem");
  }

  #state(state, count, parts, shown, chosen) {
    const isChosen = state === chosen;
    return html`<li><button type="button" aria-pressed=${isChosen} ?data-none=${!count && !parts}
      @click=${() => refine(this.route, { state: isChosen ? "" : state })}>${mark(state)}<b>${shown(count)}</b> ${state}${beside(parts)}</button></li>`;
  }

  #filters(filters) {
    const { driver = "", class: deviceClass = "", attribute = "", node = "", text = "", group = "" } = filters;
    return html`<form class="filters" @submit=${(event) => event.preventDefault()}>
      ${field("Class", this.#choice("class", deviceClass, this.devices.classes, "all classes"))}
      ${field("Driver", this.#choice("driver", driver, this.devices.drivers(), "all drivers"))}
      ${field("Attribute", this.#typed("attribute", attribute, "model=h100"))}
      ${field("Node, pool or device", this.#typed("text", text, "text"))}
      ${field("Groups", this.#choice("group", group, this.devices.groupings(), "none", nameOf))}
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
