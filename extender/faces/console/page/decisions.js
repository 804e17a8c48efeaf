// The latest answers to schedulers, as they come. The list is bounded, and it can be paused.
import { ListView, unmatched } from "./list-view.js";
import { note, unread } from "./parts.js";
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
  return each.passed ? `${number(each.passed)} ${each.passed === 1 ? "node fits" : "nodes fit"}` : rejected.join(", ") || "no node";
};

export class DecisionsView extends ListView {
  title = "Decisions";
  #entries = null;
  #held = [];
  #note = "";

  constructor(shared) {
    super(shared, {
      read: () => get(`decisions?limit=${KEPT}`),
      took: (found) => this.#take(found),
      told: (message) => this.#hear(message),
    });
  }

  open(route) {
    super.open(route);
    if (!route.filters.paused) this.#release();
  }

  #take(found) {
    [this.#entries, this.#held] = [found.items, []];
    this.#note = found.items.length ? "" : (found.note ?? "");
  }

  #hear({ decisions = [], skipped = 0 }) {
    if (!this.#entries || !decisions.length) return false;
    this.#note = skipped ? `${number(skipped)} decisions came too fast and are not shown; /decisions has them.` : "";
    const known = new Set([...this.#entries, ...this.#held].map((each) => each.id));
    this.#held = [...decisions.filter((each) => !known.has(each.id)), ...this.#held].slice(0, KEPT);
    if (!this.route.filters.paused) this.#release();
    return true;
  }

  #release() {
    if (!this.#held.length) return;
    this.#entries = [...this.#held, ...this.#entries].slice(0, KEPT);
    this.#held = [];
  }

  // Why no decision is shown, and what would be.
  #emptiness(shown) {
    if (shown.length) return "";
    if (this.#entries.length) return unmatched("decision", this.#entries.length);
    return "What a scheduler is answered about a pod with devices comes here: make demo plays one.";
  }

  template() {
    if (!this.#entries) return unread(this.reader.error, "the decisions");
    const { verb = "", text = "", paused = "" } = this.route.filters;
    const wanted = text.trim().toLowerCase();
    const shown = this.#entries.filter(
      (each) => (!verb || each.verb === verb) && (!wanted || `${each.namespace}/${each.pod} ${each.node} ${outcome(each)} ${Object.keys(each.rejected).join(" ")}`.toLowerCase().includes(wanted)),
    );
    return html`<section class="decisions" aria-label="Decisions">
      <h1 class="unseen">Decisions</h1>
      <form class="filters" @submit=${(event) => event.preventDefault()}>
        ${this.choice("Verb", "verb", VERBS, "all verbs")} ${this.text("Pod, node or reason")}
        <button type="button" class="pause" aria-pressed=${paused ? "true" : "false"} @click=${() => refine(this.route, { paused: paused ? "" : "yes" })}>
          ${paused ? `Continue${this.#held.length ? ` (${number(this.#held.length)} new)` : ""}` : "Pause"}</button>
      </form>
      ${note(this.#note)} ${note(this.#emptiness(shown))} ${note(this.reader.error?.message, "problem")}
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
