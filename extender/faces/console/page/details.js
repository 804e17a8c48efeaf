// One pod, one claim, one device.
import { explanation } from "./explanation.js";
import { tied } from "./constraints.js";
import { holds } from "./history.js";
import { again, badge, deviceLink, facts, joined, namedLink, nodeLink, note, unread } from "./parts.js";
import { Reader } from "./reader.js";
import { link } from "./route.js";
import { get, query, Refused } from "./service.js";
import { age, html } from "./text.js";

const MOST_CLAIMS = 10_000; // the service gives no more at once

// A view of one object: read when it is opened, and again when a change concerns it.
export class ObjectView {
  #reader = null;
  found = null;

  constructor({ redraw, devices }) {
    this.redraw = redraw;
    this.devices = devices;
    this.soon = again(() => this.reread());
  }

  open(route) {
    const isOther = this.title !== this.titleOf(route);
    this.route = route;
    this.title = this.titleOf(route);
    if (!isOther) return;
    this.close();
    this.found = null;
    this.#reader = new Reader({ read: () => this.read(...route.names), took: (found) => (this.found = found), redraw: this.redraw });
    this.reread();
  }

  reread() {
    this.#reader.ask();
  }

  close() {
    this.#reader?.close();
  }

  changed(message) {
    if (this.concerns(message)) this.soon();
    return false;
  }

  titleOf = ({ names }) => names.join("/");

  template() {
    const { error } = this.#reader;
    if (!this.found || error?.status === 404) return unread(error, `${this.kind} ${this.title}`);
    return html`<section class="object" aria-label=${`${this.kind} ${this.title}`}>
      <header><p class="quiet">${this.kind}</p><h1>${this.title}</h1></header>
      ${note(error?.message, "problem")} ${this.body(this.found)}
    </section>`;
  }
}

export class PodView extends ObjectView {
  kind = "pod";

  async read(namespace, name) {
    const [pods, claims, found] = await Promise.all([
      get(`pods?${query({ namespace, pod: name })}`),
      get(`claims?${query({ namespace, pod: name, wide: true, limit: MOST_CLAIMS })}`),
      get(`explain/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`),
    ]);
    return { pod: pods.items[0], claims: claims.items, explanation: found };
  }

  // A pending pod may fit or fit no longer because of any pool; a pod that is bound stays where it is.
  concerns({ pods = [], pools = [] }) {
    const [namespace, name] = this.route.names;
    return pods.some((each) => each.namespace === namespace && each.pod === name) || (pools.length > 0 && (!this.found || this.found.pod?.state === "pending"));
  }

  body({ pod, claims, explanation: found }) {
    return html`${pod
      ? facts([
          ["state", badge(pod.state)],
          ["node", nodeLink(pod.node)],
          ["nominated node", nodeLink(pod.nominatedNode)],
          ["asks for", pod.requests.join(", ")],
          ["priority", String(pod.priority)],
          ["scheduler", pod.scheduler],
          ["age", age(pod.created)],
          ["latest answer", pod.reason ? html`<a href=${link("decisions", [], { text: `${pod.namespace}/${pod.pod}` })}>${pod.reason}</a>` : ""],
        ])
      : ""}
    ${claims.length ? html`<section class="part"><h2>Claims</h2>${claims.map((each) => claimCard(each, this.devices))}</section>` : ""}
    ${pod?.state === "pending" ? html`<p class="what-if-link"><a href=${link("what-if", [], { pod: this.route.names.join("/") })}>What if it asked for something else?</a></p>` : ""}
    ${explanation(found)}`;
  }
}

// The devices of a claim, drawn among their neighbors on the node.
const claimCard = (claim, devices) => html`<div class="card">
  <h3><a href=${link("claim", [claim.namespace, claim.claim])}>${claim.claim}</a> ${badge(claim.state)}</h3>
  ${allocation(claim, devices)}
</div>`;

function allocation({ devices: names, constraints }, devices) {
  const held = new Map();
  for (const name of names) {
    const [driver, pool, device] = split(name);
    const key = `${driver}/${pool}`;
    held.set(key, { driver, pool, names: [...(held.get(key)?.names ?? []), device] });
  }
  const drawn = [...held.values()].map(
    ({ driver, pool, names: own }) => html`<div class="allocation">
      <p>${joined(own.map((device) => deviceLink({ driver, pool, device })))}</p>
      ${devices.rowsOf(driver, pool).map((row) => html`<p class="neighbors" aria-hidden="true">${row.shape.indexes.map((index) => {
        const state = devices.stateOf(row, index);
        return html`<i class="mark ${state} ${own.includes(row.shape.devices[index]) ? "own" : ""}"></i>`;
      })}</p>`)}
    </div>`,
  );
  return html`${drawn}${tied([...new Set(names)], constraints, deviceLinkOf)}`;
}

// A link by DRIVER/POOL/DEVICE.
export function deviceLinkOf(name) {
  const [driver, pool, device] = split(name);
  return deviceLink({ driver, pool, device });
}

// DRIVER/POOL/DEVICE: only a pool has slashes in its name.
function split(name) {
  const first = name.indexOf("/");
  const last = name.lastIndexOf("/");
  return [name.slice(0, first), name.slice(first + 1, last), name.slice(last + 1)];
}

export class ClaimView extends ObjectView {
  kind = "claim";

  async read(namespace, name) {
    const [claims, found] = await Promise.all([
      get(`claims?${query({ namespace, claim: name, wide: true })}`),
      get(`explain/${encodeURIComponent(namespace)}/claims/${encodeURIComponent(name)}`),
    ]);
    return { claim: claims.items[0], explanation: found };
  }

  concerns({ pods = [], pools = [] }) {
    return pods.some((each) => each.namespace === this.route.names[0]) || pools.length > 0;
  }

  body({ claim, explanation: found }) {
    return html`${claim
      ? html`${facts([
          ["state", badge(claim.state)],
          ["reserved for", claim.reservedFor.length ? joined(claim.reservedFor.map((each) => namedLink("pod", `${claim.namespace}/${each}`))) : ""],
          ["age", age(claim.created)],
        ])}${claim.devices.length ? html`<section class="part"><h2>Devices</h2>${allocation(claim, this.devices)}</section>` : ""}`
      : ""}
    ${explanation(found)}`;
  }
}

export class DeviceView extends ObjectView {
  kind = "device";

  async read(driver, pool, name) {
    const [{ items }, history] = await Promise.all([
      get(`devices?${query({ driver, pool, device: name, wide: true })}`),
      get(`console/history?${query({ driver, pool, device: name })}`),
    ]);
    if (!items.length) throw new Refused(404, `there is no device ${name} in pool ${driver}/${pool}`);
    return { items, history };
  }

  concerns({ pools = [] }) {
    return pools.some((each) => each.driver === this.route.names[0] && each.pool === this.route.names[1]);
  }

  // A pool with a problem may publish a device twice.
  body({ items, history }) {
    return items.map((device) => html`${facts([
        ["state", badge(device.state)],
        ["why", device.why],
        ["node", nodeLink(device.node)],
        ["driver", html`<a href=${link("fleet", [], { driver: device.driver })}>${device.driver}</a>`],
        ["held by", device.claims.length ? joined(device.claims.map((each) => namedLink("claim", each))) : ""],
        ["blocked by", device.blockedBy.length ? joined(device.blockedBy.map((each) => namedLink("claim", each))) : ""],
        ["taints", device.taints.join(", ")],
      ])}
      ${holds(history)} ${capacities(device)}
      <section class="part"><h2>Attributes</h2>${facts(Object.entries(device.attributes).map(([name, value]) => [name, attribute(device, name, value)]))}</section>`);
  }
}

const attribute = (device, name, value) =>
  Array.isArray(value)
    ? value.join(", ")
    : html`<a href=${link("fleet", [], { driver: device.driver, attribute: `${name}=${value}` })} title="all devices with this value">${String(value)}</a>`;

const capacities = ({ capacity }) =>
  Object.keys(capacity).length
    ? html`<section class="part"><h2>Capacity</h2>${facts(Object.entries(capacity).map(([name, { left, total }]) => [name, left === total ? total : `${left} left of ${total}`]))}</section>`
    : "";
