// The latest answers to schedulers, as they come. The list is bounded, and it can be paused.
import { calm, field, note, unread } from "./parts.js";
import { link, refine } from "./route.js";
import { get } from "./service.js";
import { clock, html, number } from "./text.js";

const KEPT = 500;
const SHOWN = 200;
const VERBS = ["filter", "preempt", "bind"];

const outcome = (each) => {
  if (each.error) return each.error;
  if (each.verb === "bind") return `bound to ${each.node}`;
  const rejected = Object.entries(each.rejected).map(([reason, nodes]) => `${nodes}x ${reason}`);
  return each.passed ? `${number(each.passed)} ${each.passed === 1 ? "node" : "nodes"} fit` : rejected.join(", ") || "no node";
};

export class DecisionsView {
  title = "Decisions";
  #entries = null;
  #held = [];
  #error = null;
  #note = "";

  constructor({ redraw }) {
    this.redraw = redraw;
    this.type = calm(150, (filters) => refine(this.route, filters));
  }

  open(route) {
    this.route = route;
    if (!this.#entries && !this.#error) this.reread();
    if (!route.filters.paused) this.#release();
  }

  async reread() {
    try {
      const found = await get(`decisions?limit=${KEPT}`);
      [this.#entries, this.#held, this.#error] = [found.items, [], null];
      this.#note = found.items.length ? "" : (found.note ?? "");
    } catch (error) {
      this.#error = error;
    }
    this.redraw();
  }

  changed({ decisions = [], skipped = 0 }) {
    if (!this.#entries || !decisions.length) return false;
    if (skipped) this.#note = `${number(skipped)} decisions came too fast and are not shown; /decisions has them.`;
    this.#held = [...decisions, ...this.#held].slice(0, KEPT);
    if (!this.route.filters.paused) this.#release();
    return true;
  }

  #release() {
    if (!this.#entries || !this.#held.length) return;
    const known = new Set(this.#entries.map((each) => each.id));
    this.#entries = [...this.#held.filter((each) => !known.has(each.id)), ...this.#entries].slice(0, KEPT);
    this.#held = [];
  }

  template() {
    if (!this.#entries) return unread(this.#error, "the decisions");
    const { verb = "", text = "", paused = "" } = this.route.filters;
    const wanted = text.trim().toLowerCase();
    const shown = this.#entries.filter(
      (each) => (!verb || each.verb === verb) && (!wanted || `${each.namespace}/${each.pod} ${each.node} ${outcome(each)} ${Object.keys(each.rejected).join(" ")}`.toLowerCase().includes(wanted)),
    );
    return html`<section class="decisions" aria-label="Decisions">
      <h1 class="unseen">Decisions</h1>
      <form class="filters" @submit=${(event) => event.preventDefault()}>
        ${field("Verb", html`<select name="verb" @change=${(event) => refine(this.route, { verb: event.target.value })}>
          <option value="" .selected=${!verb}>all verbs</option>
          ${VERBS.map((each) => html`<option value=${each} .selected=${each === verb}>${each}</option>`)}
        </select>`)}
        ${field("Pod, node or reason", html`<input type="search" name="text" .value=${text} placeholder="text" autocomplete="off" spellcheck="false"
          @input=${(event) => this.type({ text: event.target.value })}>`)}
        <button type="button" class="pause" aria-pressed=${paused ? "true" : "false"} @click=${() => refine(this.route, { paused: paused ? "" : "yes" })}>
          ${paused ? `Continue${this.#held.length ? ` (${number(this.#held.length)} new)` : ""}` : "Pause"}</button>
      </form>
      ${note(this.#note)} ${note(this.#error?.message, "problem")}
      <table class="log">
        <thead><tr><th scope="col">time</th><th scope="col">verb</th><th scope="col">pod</th><th scope="col">outcome</th><th scope="col" class="ms">ms</th></tr></thead>
        <tbody>${shown.slice(0, SHOWN).map(line)}</tbody>
      </table>
    </section>`;
  }
}

const line = (each) => html`<tr class=${each.error || (each.verb === "filter" && !each.passed) ? "bad" : ""}>
  <td class="quiet"><time datetime=${each.time}>${clock(each.time)}</time></td>
  <td>${each.verb}</td>
  <td><a href=${link("pod", [each.namespace, each.pod])}><span class="quiet">${each.namespace}/</span>${each.pod}</a></td>
  <td>${outcome(each)}</td>
  <td class="ms quiet">${each.milliseconds}</td>
</tr>`;
