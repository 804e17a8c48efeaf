// A table of the service as a view: its rows, a filter by namespace and by text, and what to say where there are none.
import { again, calm, field, note, unread } from "./parts.js";
import { Reader } from "./reader.js";
import { refine } from "./route.js";
import { get } from "./service.js";
import { html, number, plural } from "./text.js";

const READ = 10_000; // rows that are read; the service gives no more at once
const SHOWN = 300; // rows that are drawn

const textOf = (value) => (value !== null && typeof value === "object" ? Object.entries(value).flat().map(textOf).join(" ") : String(value ?? ""));

// A subclass has: title; path of the table; noun of a row; columns, each a heading, a cell and perhaps a class; isBad, whether
// a row is wrong; and empty, what would fill the table.
export class TableView {
  #rows = null;
  #note = "";
  #reader;

  constructor({ redraw }) {
    this.type = calm(150, (filters) => refine(this.route, filters));
    this.soon = again(() => this.reread());
    this.#reader = new Reader({ read: () => get(this.#path()), took: (found) => this.#take(found), redraw });
  }

  isBad = () => false;

  #path() {
    return `${this.path}${this.path.includes("?") ? "&" : "?"}limit=${READ}`;
  }

  open(route) {
    if (!this.route) this.reread();
    this.route = route;
  }

  reread() {
    this.#reader.ask();
  }

  close() {
    this.#reader.close();
  }

  // The feed says that something has changed; which rows that concerns, only the service knows.
  changed() {
    this.soon();
    return false;
  }

  #take(found) {
    this.#rows = found.items.map((row) => ({ row, text: textOf(Object.values(row)).toLowerCase() }));
    this.#note = found.continue ? `The first ${number(READ)} rows are shown.` : found.items.length ? (found.note ?? "") : "";
  }

  #wanted({ namespace = "", text = "" }) {
    const wanted = text.trim().toLowerCase();
    return this.#rows.filter((each) => (!namespace || each.row.namespace === namespace) && each.text.includes(wanted)).map(({ row }) => row);
  }

  // Why no row is shown, and what would be.
  #emptiness(shown) {
    if (shown.length) return "";
    if (!this.#rows.length) return this.empty;
    return `No ${this.noun} matches; without filters there ${this.#rows.length === 1 ? "is 1" : `are ${number(this.#rows.length)}`}.`;
  }

  template() {
    if (!this.#rows) return unread(this.#reader.error, this.title.toLowerCase());
    const rows = this.#wanted(this.route.filters);
    return html`<section class="table" aria-label=${this.title}>
      <h1 class="unseen">${this.title}</h1>
      <header class="totals"><p class="answer"><strong>${number(rows.length)}</strong> ${rows.length === 1 ? this.noun : `${this.noun}s`}</p></header>
      ${this.#filters(this.route.filters)}
      ${note(this.#reader.error?.message, "problem")} ${note(this.#note)} ${note(this.#emptiness(rows))}
      ${rows.length ? this.#table(rows.slice(0, SHOWN)) : ""}
      ${rows.length > SHOWN ? note(`and ${plural(rows.length - SHOWN, `more ${this.noun}`)}; filter to see them`) : ""}
    </section>`;
  }

  #filters({ namespace = "", text = "" }) {
    const namespaces = [...new Set(this.#rows.map(({ row }) => row.namespace).filter(Boolean))].sort();
    return html`<form class="filters" @submit=${(event) => event.preventDefault()}>
      ${namespaces.length ? field("Namespace", html`<select name="namespace" @change=${(event) => refine(this.route, { namespace: event.target.value })}>
        <option value="" .selected=${!namespace}>all namespaces</option>
        ${namespaces.map((each) => html`<option value=${each} .selected=${each === namespace}>${each}</option>`)}
      </select>`) : ""}
      ${field("Any text of a row", html`<input type="search" name="text" .value=${text} placeholder="text" autocomplete="off" spellcheck="false"
        @input=${(event) => this.type({ text: event.target.value })}>`)}
    </form>`;
  }

  #table(rows) {
    return html`<table class="rows">
      <thead><tr>${this.columns.map(([heading, , kind = ""]) => html`<th scope="col" class=${kind}>${heading}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr class=${this.isBad(row) ? "bad" : ""}>${this.columns.map(([heading, cell, kind = ""]) => shown(heading, cell(row), kind))}</tr>`)}</tbody>
    </table>`;
  }
}

// On a narrow screen a row is a block, with the heading before each cell that has something in it.
export const shown = (heading, found, kind = "") => html`<td class="${kind} ${found === "" || found === undefined ? "none" : ""}" data-label=${heading}><span>${found}</span></td>`;
