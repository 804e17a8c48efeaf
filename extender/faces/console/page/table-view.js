// A table of the service as a view: its rows, a filter by namespace and by text, and what to say where there are none.
import { ListView, unmatched } from "./list-view.js";
import { nothing } from "./lit-html.js";
import { again, note, unread } from "./parts.js";
import { get } from "./service.js";
import { html, number } from "./text.js";

const READ = 10_000; // rows that are read; the service gives no more at once
const SHOWN = 300; // rows that are drawn

const textOf = (value) => (value !== null && typeof value === "object" ? Object.entries(value).flat().map(textOf).join(" ") : String(value ?? ""));

// A subclass has: title; path of the table; noun of a row; columns, each a heading, a cell and perhaps a class; isBad, whether
// a row is wrong; and empty, what would fill the table.
export class TableView extends ListView {
  #rows = null;
  #note = "";

  constructor(shared) {
    super(shared, { read: () => get(this.#path()), took: (found) => this.#take(found) });
    this.soon = again(() => this.reread());
  }

  isBad = () => false;

  // What stands above the table.
  above() {
    return "";
  }

  #path() {
    return `${this.path}${this.path.includes("?") ? "&" : "?"}limit=${READ}`;
  }

  get nouns() {
    return `${this.noun}s`;
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
    return unmatched(this.noun, this.#rows.length);
  }

  template() {
    if (!this.#rows) return unread(this.reader.error, this.title.toLowerCase());
    const rows = this.#wanted(this.route.filters);
    return html`<section class="table" aria-label=${this.title}>
      <h1 class="unseen">${this.title}</h1>
      <header class="totals"><p class="answer"><strong>${number(rows.length)}</strong> ${rows.length === 1 ? this.noun : this.nouns}</p></header>
      ${this.#filters()}
      ${note(this.reader.error?.message, "problem")} ${note(this.#note)} ${note(this.#emptiness(rows))}
      ${rows.length ? html`${this.above(rows)}${table(this.columns, rows.slice(0, SHOWN), this.isBad)}` : ""}
      ${rows.length > SHOWN ? note(`and ${number(rows.length - SHOWN)} more; filter to see them`) : ""}
    </section>`;
  }

  #filters() {
    const namespaces = [...new Set(this.#rows.map(({ row }) => row.namespace).filter(Boolean))].sort();
    return html`<form class="filters" @submit=${(event) => event.preventDefault()}>
      ${namespaces.length ? this.choice("Namespace", "namespace", namespaces, "all namespaces") : ""} ${this.text("Any text of a row")}
    </form>`;
  }
}

// columns: each a heading, a cell and perhaps a class.
export const table = (columns, rows, isBad, label = "") => html`<table class="rows" aria-label=${label || nothing}>
  <thead><tr>${columns.map(([heading, , kind = ""]) => html`<th scope="col" class=${kind}>${heading}</th>`)}</tr></thead>
  <tbody>${rows.map((row) => html`<tr class=${isBad(row) ? "bad" : ""}>${columns.map(([heading, cell, kind = ""]) => shown(heading, cell(row), kind))}</tr>`)}</tbody>
</table>`;

// On a narrow screen a row is a block, with the heading before each cell that has something in it.
export const shown = (heading, found, kind = "") => html`<td class="${kind} ${found === "" || found === undefined ? "none" : ""}" data-label=${heading}><span>${found}</span></td>`;
