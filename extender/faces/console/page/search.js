// One search over pods, gangs, claims, nodes, classes and devices. The key "/" goes there, arrows choose, Enter opens.
import { calm } from "./parts.js";
import { link } from "./route.js";
import { get, query } from "./service.js";
import { html } from "./text.js";

const PAUSE = 150; // milliseconds after the last letter

const target = ({ kind, names }) => {
  if (kind === "class") return link("fleet", [], { class: names[0] });
  if (kind === "gang") return link("gangs", [], { namespace: names[0], text: names[1] });
  return link(kind, names);
};

export class Search {
  #text = "";
  #found = null; // what the service has found; null: nothing was asked
  #error = "";
  #chosen = 0;
  #asked = 0;

  constructor({ redraw }) {
    this.redraw = redraw;
    this.ask = calm(PAUSE, () => this.#ask());
    addEventListener("keydown", (event) => this.#slash(event));
  }

  // A slash that is typed into a field is a letter.
  #slash(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    document.getElementById("search").focus();
  }

  async #ask() {
    const [text, asked] = [this.#text.trim(), ++this.#asked];
    if (!text) return this.#close();
    const [found, error] = await get(`console/search?${query({ text })}`).then(({ items }) => [items, ""], (problem) => [[], problem.message]);
    if (asked !== this.#asked) return; // a later question is on its way
    [this.#found, this.#error, this.#chosen] = [found, error, 0];
    this.redraw();
  }

  #close() {
    this.#asked += 1;
    [this.#found, this.#error] = [null, ""];
    this.redraw();
  }

  #key(event) {
    const last = (this.#found?.length ?? 0) - 1;
    const moved = { ArrowDown: Math.min(last, this.#chosen + 1), ArrowUp: Math.max(0, this.#chosen - 1) }[event.key];
    if (event.key === "Escape") return this.#leave(event.target);
    if (event.key === "Enter") return event.preventDefault(), this.#open(event.target);
    if (moved === undefined || last < 0) return;
    event.preventDefault();
    this.#chosen = moved;
    this.redraw();
  }

  #open(input) {
    const found = this.#found?.[this.#chosen];
    if (!found) return;
    location.hash = target(found);
    this.#leave(input);
    document.getElementById("main").focus();
  }

  #leave(input) {
    this.#text = "";
    if (input) input.value = "";
    this.#close();
  }

  template() {
    const found = this.#found;
    return html`<search class="search" @focusout=${(event) => event.currentTarget.contains(event.relatedTarget) || this.#close()}>
      <input id="search" type="search" role="combobox" aria-label="Search pods, gangs, claims, nodes, classes and devices" placeholder="Search  /" autocomplete="off" spellcheck="false"
        aria-expanded=${found ? "true" : "false"} aria-controls="found" aria-autocomplete="list" aria-activedescendant=${found?.length ? `found-${this.#chosen}` : ""}
        .value=${this.#text} @input=${(event) => ((this.#text = event.target.value), this.ask())} @keydown=${(event) => this.#key(event)}>
      <ul id="found" role="listbox" aria-label="Found objects" ?hidden=${!found?.length}>${(found ?? []).map((each, index) => this.#option(each, index))}</ul>
      ${found && !found.length ? html`<p class="none" role="status">${this.#error || `Nothing has "${this.#text.trim()}" in its name.`}</p>` : ""}
    </search>`;
  }

  // The keyboard stays in the field; a click leads there as well.
  #option(each, index) {
    return html`<li id=${`found-${index}`} role="option" aria-selected=${index === this.#chosen ? "true" : "false"} @mousedown=${(event) => event.preventDefault()}
      @click=${() => ((this.#chosen = index), this.#open(document.getElementById("search")))}><span class="quiet">${each.kind}</span> ${each.names.join("/")} <span class="quiet">${each.state}</span></li>`;
  }
}
