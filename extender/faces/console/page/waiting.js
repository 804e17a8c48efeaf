// Pending pods: what each asks for, since when it waits, and why.
import { ListView, unmatched } from "./list-view.js";
import { note, unread } from "./parts.js";
import { link } from "./route.js";
import { get, query } from "./service.js";
import { age, html, number, plural } from "./text.js";

const READ = 10_000; // pods that are read; the service gives no more at once
const SHOWN = 300; // rows that are drawn

const keyOf = ({ namespace, pod }) => `${namespace}/${pod}`;

export class WaitingView extends ListView {
  title = "Waiting";
  #pods = null;
  #note = "";

  constructor(shared) {
    super(shared, {
      read: () => get(`pods?${query({ state: "pending", limit: READ })}`),
      took: (found) => this.#take(found),
      told: (message) => this.#hear(message),
    });
  }

  #take(found) {
    this.#pods = new Map(found.items.map((each) => [keyOf(each), each]));
    this.#note = found.continue ? `The first ${number(READ)} pods are shown.` : this.#pods.size ? "" : (found.note ?? "");
  }

  #hear({ pods = [] }) {
    if (!this.#pods) return false;
    for (const pod of pods) {
      if (pod.state === "pending") this.#pods.set(keyOf(pod), pod);
      else this.#pods.delete(keyOf(pod));
    }
    return pods.length > 0;
  }

  #wanted({ namespace = "", text = "" }) {
    const wanted = text.trim().toLowerCase();
    const found = [...this.#pods.values()].filter(
      (each) => (!namespace || each.namespace === namespace) && (!wanted || [each.pod, each.reason, ...each.requests].some((part) => part.toLowerCase().includes(wanted))),
    );
    return found.sort((a, b) => b.priority - a.priority || a.created.localeCompare(b.created) || keyOf(a).localeCompare(keyOf(b)));
  }

  // Why no pod is shown, and what would be.
  #emptiness(shown) {
    if (shown.length) return "";
    if (this.#pods.size) return unmatched("waiting pod", this.#pods.size);
    return "A pod that asks for devices and has no node comes here, with the reason why it waits.";
  }

  template() {
    if (!this.#pods) return unread(this.reader.error, "the pending pods");
    const { filters } = this.route;
    const pods = this.#wanted(filters);
    const namespaces = [...new Set([...this.#pods.values()].map((each) => each.namespace))].sort();
    return html`<section class="waiting" aria-label="Waiting">
      <h1 class="unseen">Waiting</h1>
      <header class="totals"><p class="answer"><strong>${number(pods.length)}</strong> ${pods.length === 1 ? "pod waits" : "pods wait"} for devices</p></header>
      <form class="filters" @submit=${(event) => event.preventDefault()}>
        ${this.choice("Namespace", "namespace", namespaces, "all namespaces")} ${this.text("Pod, request or reason")}
      </form>
      ${note(this.reader.error?.message, "problem")} ${note(this.#note)} ${note(this.#emptiness(pods))}
      <ul class="pods">${pods.slice(0, SHOWN).map(row)}</ul>
      ${pods.length > SHOWN ? note(`and ${plural(pods.length - SHOWN, "more pod")}; filter to see them`) : ""}
    </section>`;
  }
}

const row = (pod) => html`<li><a class="pod" href=${link("pod", [pod.namespace, pod.pod])}>
  <span class="name"><span class="quiet">${pod.namespace}/</span>${pod.pod}</span>
  <span class="asks">${pod.requests.join(", ")}</span>
  <span class="reason">${pod.reason}</span>
  <span class="since quiet">${pod.priority ? `priority ${pod.priority} · ` : ""}${age(pod.created)}</span>
</a></li>`;
