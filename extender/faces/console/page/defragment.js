// Which few pods to move, so that pending pods get devices. The service tries moves out on a copy; nothing is written.
import { AnswerView } from "./answer-view.js";
import { commandLines, field, joined, namedLink, nodeLink, note } from "./parts.js";
import { refine } from "./route.js";
import { query } from "./service.js";
import { html, number, plural } from "./text.js";

const MOST_MOVES = 16;
const MOVES = 3; // unless the address says another number
const SHOWN = 50; // names that are shown of those who can't move

export class DefragmentView extends AnswerView {
  title = "Defragment";
  working = "Trying moves …";
  again = "Try again";
  #asked = null;

  open(route) {
    this.route = route;
    const { pod = "", moves = "" } = route.filters;
    const asked = `defragment?${query({ pod, moves })}`;
    if (asked === this.#asked) return;
    this.#asked = asked;
    this.ask(asked);
  }

  answered(found) {
    return answer(found, this.route.filters.pod);
  }

  template() {
    return html`<section class="defragment" aria-label="Defragment">
      <header class="totals"><h1>Defragment</h1><p class="quiet">Nothing is written: each proposal was tried out on a copy of the cluster, without the other proposals.</p></header>
      ${this.#form()} ${this.outcome()}
    </section>`;
  }

  #form() {
    const { pod = "", moves = "" } = this.route.filters;
    const tried = (event) => {
      event.preventDefault();
      const form = new FormData(event.target);
      refine(this.route, { pod: form.get("pod").trim(), moves: form.get("moves") === String(MOVES) ? "" : form.get("moves") });
    };
    return html`<form class="filters" @submit=${tried}>
      ${field("Pending pod", html`<input name="pod" .value=${pod} placeholder="NAMESPACE/POD, or all" autocomplete="off" spellcheck="false">`)}
      ${field("Moves at most", html`<input name="moves" type="number" min="1" max=${MOST_MOVES} required .value=${moves || String(MOVES)}>`)}
      <button type="submit">Try</button>
    </form>`;
  }
}

function answer({ shapes, protected: spared, fitting, notModeled }, pod) {
  const [helped, others] = [shapes.filter((each) => each.proposal), shapes.filter((each) => !each.proposal)];
  return html`
    <p class="verdict">${verdict(helped, shapes, fitting, pod)}</p>
    ${helped.length ? html`<section class="part"><h2>${helped.length === 1 ? "A proposal" : "Proposals, each for itself"}</h2>${helped.map(proposed)}</section>` : ""}
    ${others.length ? html`<section class="part"><h2>No moves help</h2><ul>${others.map((each) => html`<li>${pods(each.pods)}: ${each.reason}</li>`)}</ul></section>` : ""}
    ${fitting.length ? html`<section class="part"><h2>Fit without any move</h2><ul>${fitting.map((each) => html`<li>${namedLink("pod", each.pod)} on ${nodeLink(each.node)}</li>`)}</ul></section>` : ""}
    ${spared.length ? html`<section class="part"><h2>Not moved</h2><ul>${spared.map((each) => html`<li>${each.reason}: ${joined(each.names.slice(0, SHOWN))}${each.names.length > SHOWN ? ` and ${number(each.names.length - SHOWN)} more` : ""}</li>`)}</ul></section>` : ""}
    ${notModeled.length ? note(`kube-scheduler also checks what is not looked at here: ${notModeled.join(", ")}.`) : ""}`;
}

function verdict(helped, shapes, fitting, pod) {
  const placed = helped.reduce((sum, { proposal }) => sum + proposal.placed.length, 0);
  if (placed) return `Moves would give ${placed === 1 ? "1 pod its" : `${number(placed)} pods their`} devices.`;
  if (shapes.length) return "No moves make room.";
  return fitting.length ? `${pod ? "The pod fits" : "All pending pods fit"} without any move.` : "No pod with devices is pending.";
}

const pods = (names) => html`${namedLink("pod", names[0])}${names.length > 1 ? ` and ${plural(names.length - 1, "more pod")}` : ""}`;

const proposed = ({ pods: waiting, asks, proposal }) => html`<div class="card proposal">
  <h3>${pods(waiting)} <span class="quiet">${asks.join(", ")}</span></h3>
  <p>Room on ${nodeLink(proposal.node)} for ${proposal.placed.length} of ${waiting.length}:</p>
  <ul>${proposal.moves.map(moved)}</ul>
  <p class="quiet">Carry it out like this. Before the last command, wait until the moved pods have their nodes.</p>
  ${commandLines(proposal.commands)}
</div>`;

const moved = ({ pod, from, to, controller, priority }) =>
  html`<li>${namedLink("pod", pod)} ${to ? html`moves from ${nodeLink(from)} to ${nodeLink(to)}` : html`is <span class="bad">evicted</span> from ${nodeLink(from)}, and finds no other place`}
    <span class="quiet">priority ${priority}${controller ? `, made again by ${controller}` : ""}</span></li>`;
