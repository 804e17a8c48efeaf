// The fleet: every device, by node; filters, and how many devices are in each state.
import { Grid } from "./grid.js";
import { readMatches } from "./devices.js";
import { calm, field, mark, note } from "./parts.js";
import { refine } from "./route.js";
import { get, query } from "./service.js";
import { html, number, plural } from "./text.js";

export class FleetView {
  title = "Fleet";
  #matches = null;
  #asked = "";
  #problem = "";
  #note = "";

  constructor({ devices, redraw }) {
    this.devices = devices;
    this.redraw = redraw;
    this.grid = new Grid(devices);
    this.type = calm(150, (filters) => refine(this.route, filters));
  }

  open(route) {
    this.route = route;
    this.#match(false);
  }

  // Selectors of classes run in the service: it alone knows which devices belong to a class.
  async #match(isStale) {
    const { class: deviceClass = "", attribute = "" } = this.route.filters;
    const asked = query({ class: deviceClass, attribute: attribute.trim() });
    if (asked === this.#asked && !isStale) return;
    this.#asked = asked;
    try {
      const found = asked ? await get(`console/matches?${asked}`) : null;
      if (asked !== this.#asked) return;
      [this.#matches, this.#note, this.#problem] = [found && readMatches(found), found?.note ?? "", ""];
    } catch (error) {
      if (asked !== this.#asked) return;
      [this.#matches, this.#note, this.#problem] = [new Map(), "", error.message];
    }
    this.redraw();
  }

  #stale = calm(1000, () => this.#match(true));

  changed({ pools }) {
    if (!pools) return false;
    if (this.#asked) this.#stale(); // a driver may have published other devices
    return true;
  }

  reread() {
    this.#match(true);
  }

  drawn(root) {
    this.grid.attach(root.querySelector(".lines"));
    this.grid.show(this.lines);
  }

  template() {
    const { filters } = this.route;
    const { lines, counts } = this.devices.select(filters, this.#matches);
    this.lines = lines;
    const all = [...counts.values()].reduce((sum, each) => sum + each, 0);
    const named = filters.class || filters.attribute || filters.driver;
    const nodes = new Set(lines.map(({ row }) => row.node)).size;
    return html`<section class="fleet" aria-label="Fleet">
      <h1 class="unseen">Fleet</h1>
      <header class="totals">
        <p class="answer"><strong>${number(counts.get("free") ?? 0)}</strong> of ${plural(all, "device")} free${named ? html` <span class="quiet">· ${named}</span>` : ""}</p>
        <ul class="states" aria-label="Devices by state">
          ${this.devices.states.map((state) => this.#state(state, counts.get(state), filters.state))}
        </ul>
      </header>
      ${this.#filters(filters)} ${note(this.#problem, "problem")} ${note(this.#note)}
      <div class="lines" role="grid" aria-label=${`Devices of ${plural(nodes, "place")}`} aria-rowcount=${lines.length} aria-readonly="true"></div>
      ${all ? "" : html`<p class="empty quiet">No device matches.</p>`}
    </section>`;
  }

  #state(state, count, chosen) {
    const isChosen = state === chosen;
    return html`<li><button type="button" aria-pressed=${isChosen} ?data-none=${!count}
      @click=${() => refine(this.route, { state: isChosen ? "" : state })}>${mark(state)}<b>${number(count)}</b> ${state}</button></li>`;
  }

  #filters({ driver = "", class: deviceClass = "", attribute = "", text = "" }) {
    const choice = (name, value, options, all) => html`<select name=${name} @change=${(event) => refine(this.route, { [name]: event.target.value })}>
      <option value="" .selected=${!value}>${all}</option>
      ${[...new Set(value ? [...options, value] : options)].map((each) => html`<option value=${each} .selected=${each === value}>${each}</option>`)}
    </select>`;
    const typed = (name, value, placeholder) => html`<input type="search" name=${name} .value=${value} placeholder=${placeholder}
      autocomplete="off" spellcheck="false" @input=${(event) => this.type({ [name]: event.target.value })}>`;
    return html`<form class="filters" @submit=${(event) => event.preventDefault()}>
      ${field("Class", choice("class", deviceClass, this.devices.classes, "all classes"))}
      ${field("Driver", choice("driver", driver, this.devices.drivers(), "all drivers"))}
      ${field("Attribute", typed("attribute", attribute, "model=h100"))}
      ${field("Node, pool or device", typed("text", text, "text"))}
      ${driver || deviceClass || attribute || text || this.route.filters.state
        ? html`<button type="button" class="clear" @click=${() => refine(this.route, { driver: "", class: "", attribute: "", text: "", state: "" })}>Clear</button>`
        : ""}
    </form>`;
  }
}
