// The form of a question: edits of requests, pods and nodes that do not exist, nodes that are drained.
import { field, note } from "./parts.js";
import { get, query } from "./service.js";
import { html } from "./text.js";

const PODS = 1000; // pending pods that are offered; others can be typed

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const oneLine = (text) => text.replace(/\s+/g, " ").trim(); // an expression means the same on one line
const listOf = (value) => (Array.isArray(value) ? value.filter((each) => each !== null && typeof each === "object") : []);
const textsOf = (value) => (Array.isArray(value) ? value.filter((each) => typeof each === "string") : []);
const options = (id, names) => html`<datalist id=${id}>${names.map((each) => html`<option value=${each}></option>`)}</datalist>`;
const amounts = (capacity) => Object.entries(capacity ?? {}).map(([name, amount]) => `${name}=${amount}`).join(", ");

function readAmounts(text) {
  const pairs = text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => each.split("="));
  return Object.fromEntries(pairs.map(([name, ...rest]) => [name.trim(), rest.join("=").trim()]));
}

const without = (list, index) => list.filter((_, at) => at !== index);

export class Form {
  #question = {};
  #pod = "";
  #offered = { templates: [], nodes: [] };
  #pending = [];
  #requests = new Map(); // of pods, as they are: a list, or what is wrong
  #isRead = false;

  // ask: called with a new question; pick: called with the name of the pod whose requests are shown.
  constructor({ redraw, devices, ask, pick }) {
    Object.assign(this, { redraw, devices, ask, pick });
  }

  open(pod) {
    this.#pod = pod;
    if (!this.#isRead) this.reread();
    this.#readPods();
  }

  show(question) {
    this.#question = question;
    this.#readPods();
  }

  async reread() {
    this.#isRead = true;
    this.#requests.clear();
    this.#readPods();
    try {
      const [offered, pods] = await Promise.all([get("console/what-if"), get(`pods?${query({ state: "pending", limit: PODS })}`)]);
      [this.#offered, this.#pending] = [offered, pods.items.map((each) => `${each.namespace}/${each.pod}`)];
    } catch {
      this.#isRead = false; // names can be typed; the answer says what is wrong
    }
    this.redraw();
  }

  // The requests of the pods that are shown.
  #readPods() {
    for (const pod of this.#shown()) {
      if (this.#requests.has(pod)) continue;
      this.#requests.set(pod, []);
      get(`console/what-if?${query({ pod })}`)
        .then((found) => this.#requests.set(pod, found.requests), (error) => this.#requests.set(pod, error.message))
        .then(this.redraw);
    }
  }

  #shown() {
    const edited = listOf(this.#question.edits).map((each) => each.pod).filter((each) => typeof each === "string");
    return [...new Set([this.#pod, ...edited])].filter(Boolean);
  }

  // The question with another list; empty lists are left out.
  #with(name, list) {
    const { [name]: _, ...rest } = this.#question;
    this.ask(list.length ? { ...rest, [name]: list } : rest);
  }

  template() {
    const isEmpty = same(this.#question, {});
    return html`<form class="question" aria-label="Question" @submit=${(event) => event.preventDefault()}>
      ${options("what-if-pods", this.#pending)} ${options("what-if-nodes", this.#offered.nodes)} ${options("what-if-classes", this.devices.classes)}
      ${this.#edits()} ${this.#pods()} ${this.#nodes()} ${this.#drained()}
      ${isEmpty ? "" : html`<p><button type="button" class="clear" @click=${() => this.ask({})}>Clear the question</button></p>`}
    </form>`;
  }

  #edits() {
    return html`<fieldset><legend>Edit a request</legend>
      ${field("Pending pod", html`<input name="pod" list="what-if-pods" .value=${this.#pod} placeholder="namespace/name" autocomplete="off" spellcheck="false"
        @change=${(event) => this.pick(event.target.value.trim())}>`)}
      ${this.#shown().map((pod) => this.#ofPod(pod))}
    </fieldset>`;
  }

  #ofPod(pod) {
    const found = this.#requests.get(pod) ?? [];
    if (typeof found === "string") return note(found, "problem");
    return found.map((request) => {
      const edit = listOf(this.#question.edits).find((each) => this.#isFor(each, pod, request)) ?? {};
      const now = { ...request, ...edit };
      const set = (name, value) => this.#edit(pod, request, edit, name, value);
      return html`<div class="card" role="group" aria-label=${`${pod}, request ${request.request}`}>
        <h2>${pod} <span class="quiet">claim ${request.claim}, request ${request.request}${same(edit, {}) ? "" : " · edited"}</span></h2>
        ${this.#values(now, set)}
      </div>`;
    });
  }

  #isFor(edit, pod, request) {
    return edit.pod === pod && edit.request === request.request && [undefined, "", request.claim].includes(edit.claim);
  }

  // A value that is as it was is no edit.
  #edit(pod, request, edit, name, value) {
    const { [name]: _, pod: _pod, claim: _claim, request: _request, ...rest } = edit;
    const values = same(value, request[name]) || value === undefined ? rest : { ...rest, [name]: value };
    const others = listOf(this.#question.edits).filter((each) => !this.#isFor(each, pod, request));
    this.#with("edits", same(values, {}) ? others : [...others, { pod, claim: request.claim, request: request.request, ...values }]);
  }

  // The values of a request. set: called with the name of a value and the new value.
  #values(now, set) {
    const selectors = textsOf(now.selectors);
    const count = (event) => set("count", event.target.value === "" ? undefined : Number(event.target.value));
    return html`<div class="filters">
        ${field("Devices", html`<input name="count" type="number" min="1" .value=${String(now.count ?? "")} placeholder="all" @change=${count}>`)}
        ${field("Device class", html`<input name="class" list="what-if-classes" .value=${String(now.deviceClassName ?? "")} autocomplete="off" spellcheck="false"
          @change=${(event) => set("deviceClassName", event.target.value.trim())}>`)}
        ${field("Capacity", html`<input name="capacity" .value=${amounts(now.capacity)} placeholder="memory=16Gi" autocomplete="off" spellcheck="false"
          @change=${(event) => set("capacity", readAmounts(event.target.value))}>`)}
      </div>
      <div class="selectors">${[...selectors, ""].map((each, index) =>
        field(each ? `Selector ${index + 1}` : "One more selector", html`<input name="selector" .value=${oneLine(each)} placeholder="a CEL expression over device" autocomplete="off" spellcheck="false"
          @change=${(event) => set("selectors", [...selectors.slice(0, index), event.target.value.trim(), ...selectors.slice(index + 1)].filter(Boolean))}>`))}</div>`;
  }

  #pods() {
    const pods = listOf(this.#question.pods);
    const add = () => this.#with("pods", [...pods, { namespace: "default", name: nameFor(pods), requests: [{ name: "devices", deviceClassName: this.devices.classes[0] ?? "", count: 1 }] }]);
    return html`<fieldset><legend>Pods that do not exist</legend>
      ${pods.map((pod, index) => this.#pod_(pods, pod, index))}
      <button type="button" class="add-pod" @click=${add}>Add a pod</button>
    </fieldset>`;
  }

  #pod_(pods, pod, index) {
    const change = (values) => this.#with("pods", pods.map((each, at) => (at === index ? { ...each, ...values } : each)));
    const requests = listOf(pod.requests);
    const text = (name, label) => field(label, html`<input name=${name} .value=${String(pod[name] ?? "")} autocomplete="off" spellcheck="false" @change=${(event) => change({ [name]: event.target.value.trim() })}>`);
    const number = (name, label, least) => field(label, html`<input name=${name} type="number" min=${least} .value=${String(pod[name] ?? "")} placeholder=${least} @change=${(event) => change({ [name]: event.target.value === "" ? undefined : Number(event.target.value) })}>`);
    return html`<div class="card" role="group" aria-label=${`new pod ${pod.name ?? ""}`}>
      <div class="filters">${text("namespace", "Namespace")} ${text("name", "Name")} ${number("count", "Pods", "1")} ${number("priority", "Priority", "0")} ${text("priorityClassName", "Priority class")}
        <button type="button" class="remove" aria-label=${`Remove pod ${pod.name ?? ""}`} @click=${() => this.#with("pods", without(pods, index))}>Remove</button></div>
      ${requests.map((request, at) => html`<h2><span class="quiet">request</span> ${String(request.name ?? "")}</h2>
        ${this.#values(request, (name, value) => change({ requests: requests.map((each, place) => (place === at ? { ...each, [name]: value } : each)) }))}`)}
    </div>`;
  }

  #nodes() {
    const nodes = listOf(this.#question.nodes);
    const { templates } = this.#offered;
    const add = (values) => this.#with("nodes", [...nodes, { ...values, count: 1 }]);
    const change = (index, count) => this.#with("nodes", nodes.map((each, at) => (at === index ? { ...each, count } : each)));
    return html`<fieldset><legend>Nodes that do not exist</legend>
      ${nodes.map((each, index) => {
        const name = each.template ? `by template ${each.template}` : `like ${each.like ?? ""}`;
        return html`<div class="filters" role="group" aria-label=${`new nodes ${name}`}>
          ${field(`Nodes ${name}`, html`<input name="nodes" type="number" min="1" .value=${String(each.count ?? 1)} @change=${(event) => change(index, Number(event.target.value))}>`)}
          <button type="button" class="remove" aria-label=${`Remove new nodes ${name}`} @click=${() => this.#with("nodes", without(nodes, index))}>Remove</button>
        </div>`;
      })}
      <div class="filters">
        ${templates.length
          ? field("Add a node by template", html`<select name="template" @change=${(event) => { const template = event.target.value; event.target.value = ""; if (template) add({ template }); }}>
              <option value="">choose …</option>${templates.map((each) => html`<option value=${each}>${each}</option>`)}</select>`)
          : ""}
        ${field("Add a node like", html`<input name="like" list="what-if-nodes" placeholder="name of a node" autocomplete="off" spellcheck="false" @change=${taken((like) => add({ like }))}>`)}
      </div>
    </fieldset>`;
  }

  #drained() {
    const drained = textsOf(this.#question.drain);
    return html`<fieldset><legend>Drain nodes</legend>
      ${drained.length ? html`<ul class="chips">${drained.map((each, index) => html`<li>${each} <button type="button" class="remove" aria-label=${`Do not drain ${each}`} @click=${() => this.#with("drain", without(drained, index))}>Remove</button></li>`)}</ul>` : ""}
      ${field("Drain a node", html`<input name="drain" list="what-if-nodes" placeholder="name of a node" autocomplete="off" spellcheck="false" @change=${taken((node) => this.#with("drain", [...new Set([...drained, node])]))}>`)}
    </fieldset>`;
  }
}

// The text of an input is taken, and the input is empty again.
const taken = (call) => ({ target }) => {
  const text = target.value.trim();
  target.value = "";
  if (text) call(text);
};

function nameFor(pods) {
  const names = new Set(pods.map((each) => each.name));
  for (let number = 1; ; number += 1) if (!names.has(`what-if-${number}`)) return `what-if-${number}`;
}
