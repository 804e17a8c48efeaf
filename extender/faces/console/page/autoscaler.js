// Sessions of autoscalers: who plans, which nodes are made up, which pods and devices are on them.
import { Devices } from "./devices.js";
import { newNode } from "./new-nodes.js";
import { facts, note, unread } from "./parts.js";
import { refine } from "./route.js";
import { get, query } from "./service.js";
import { age, html, plural } from "./text.js";

const PERIOD = 2000; // milliseconds between two looks; the service answers with one number if nothing has changed

export class AutoscalerView {
  title = "Autoscaler";
  #found = null;
  #error = null;
  #timer = 0;
  #isReading = false;
  #isOpen = false;

  constructor({ redraw }) {
    this.redraw = redraw;
  }

  open(route) {
    this.route = route;
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.reread();
  }

  close() {
    this.#isOpen = false;
    clearTimeout(this.#timer);
  }

  // Looks again as long as the view is open.
  async reread() {
    if (this.#isReading) return;
    clearTimeout(this.#timer);
    this.#isReading = true;
    if (!document.hidden) await this.#read();
    this.#isReading = false;
    if (this.#isOpen) this.#timer = setTimeout(() => this.reread(), PERIOD);
  }

  async #read() {
    try {
      const found = await get(`console/sessions?${query({ after: this.#found?.position })}`);
      if (found.sessions) this.#found = found;
      this.#error = null;
    } catch (error) {
      this.#error = error;
    }
    this.redraw();
  }

  changed = () => false;

  template() {
    if (!this.#found) return unread(this.#error, "the sessions of autoscalers");
    const { sessions, others } = this.#found;
    const wanted = this.route.filters.session ?? "";
    const open = sessions.filter((each) => !wanted || each.session === wanted);
    return html`<section class="autoscaler" aria-label="Autoscaler">
      <h1 class="unseen">Autoscaler</h1>
      <header class="totals"><p class="answer"><strong>${String(sessions.length)}</strong> ${sessions.length === 1 ? "session is" : "sessions are"} open</p></header>
      ${note(this.#error?.message, "problem")}
      ${others ? note("Other replicas may have sessions of their own, which are not shown: each replica shows its own.") : ""}
      ${sessions.length ? note("Nothing here exists: an autoscaler tries nodes and pods out, and the cluster stays as it is.") : note("No autoscaler has a session here. An autoscaler begins one with POST /autoscaler/start, and what it plans comes here: make demo plays one.")}
      ${wanted ? html`<p><button type="button" class="all" @click=${() => refine(this.route, { session: "" })}>Show all sessions</button></p>` : ""}
      ${wanted && !open.length ? note(`Session ${wanted} is not open any more.`) : ""}
      ${open.map((each) => this.#session(each, wanted))}
    </section>`;
  }

  #session(each, wanted) {
    const devices = new Devices();
    devices.read({ ...each.picture, classes: [], nodes: each.nodes.length });
    const only = () => refine(this.route, { session: each.session });
    return html`<section class="part session"><h2>Session ${each.session} ${wanted ? "" : html`<button type="button" class="only" aria-label=${`Show only session ${each.session}`} @click=${only}>Show only this</button>`}</h2>
      ${facts([
        ["started by", each.caller || "unknown"],
        ["open for", age(each.started)],
        ["drivers", each.drivers?.join(", ") ?? "all"],
        ["new nodes", String(each.nodeCount)],
        ["pods booked", each.booked.length ? `${each.booked.length}: ${each.booked.slice(0, 20).join(", ")}${each.booked.length > 20 ? " …" : ""}` : "none"],
      ])}
      ${byOrigin(each.nodes).map(([origin, nodes]) => html`<h3>${origin || "nothing is known of the devices"} <span class="quiet">${plural(nodes.length, "node")}</span></h3>${nodes.map((node) => newNode(node, devices, "h4"))}`)}
      ${each.nodeCount > each.nodes.length ? note(`and ${plural(each.nodeCount - each.nodes.length, "more node")}`) : ""}
      ${each.plan ? plan(each.plan) : ""}
    </section>`;
  }
}

function byOrigin(nodes) {
  const found = new Map();
  for (const node of nodes) found.set(node.origin, [...(found.get(node.origin) ?? []), node]);
  return [...found];
}

function plan({ groups, failed, picture }) {
  const devices = new Devices();
  devices.read({ ...picture, classes: [], nodes: 0 });
  return html`<h3>Latest plan <span class="quiet">nothing of it is booked</span></h3>
    ${groups.map((group) => html`<div class="group-plan"><h4>${group.group} <span class="quiet">${group.add ? `add ${plural(group.add, "node")}` : "no node is added"}${group.devices ? `, ${group.devices}` : ""}</span></h4>
      ${group.nodes.map((node) => newNode(node, devices, "h5"))}
      ${group.add > group.nodes.length ? note(`and ${plural(group.add - group.nodes.length, "more node")}`) : ""}</div>`)}
    ${failed.length ? html`<h4>Pods that no group helps</h4><ul>${failed.slice(0, 100).map((each) => html`<li>${each.pod}: ${each.reason}</li>`)}</ul>${failed.length > 100 ? note(`and ${failed.length - 100} more`) : ""}` : ""}`;
}
