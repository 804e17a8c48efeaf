// One node: its devices, who holds them, what else could have them, and which pods run there.
import { ObjectView } from "./details.js";
import { badge, deviceLink, facts, joined, namedLink, note } from "./parts.js";
import { link } from "./route.js";
import { get, query } from "./service.js";
import { shown } from "./table-view.js";
import { age, html, number, plural } from "./text.js";

const MOST = 10_000; // rows that the service gives at once
const SHOWN = 1000; // devices that are drawn

export class NodeView extends ObjectView {
  kind = "node";

  async read(node) {
    const [found, devices, classes, pods] = await Promise.all([
      get(`console/node?${query({ node })}`),
      get(`devices?${query({ node, limit: MOST })}`),
      get(`resources?${query({ node, by: "class", limit: MOST })}`),
      get(`pods?${query({ node, limit: MOST })}`),
    ]);
    return { node: found, devices: devices.items, classes: classes.items, pods: pods.items };
  }

  concerns({ pods = [], pools = [] }) {
    const [node] = this.route.names;
    return pods.some((each) => each.node === node) || pools.some(({ driver, pool }) => this.devices.rowsOf(driver, pool).some((row) => row.node === node));
  }

  body({ node, devices, classes, pods }) {
    const hardware = devices.filter((each) => each.kind !== "partition");
    const parts = devices.filter((each) => each.kind === "partition" && each.state === "free");
    const free = hardware.filter((each) => each.state === "free");
    return html`<p class="answer"><strong>${number(free.length)}</strong> of ${plural(hardware.length, "device")} free${parts.length ? `, or up to ${plural(parts.length, "partition")}` : ""} · <a href=${link("fleet", [], { node: node.node })}>in the fleet</a></p>
      ${facts([
        ["age", age(node.created)],
        ["taints", node.taints.join(", ")],
        ["from device plugins", Object.entries(node.plugins).map(([name, amount]) => `${amount} ${name}`).join(", ")],
      ])}
      ${fits(classes.filter((each) => each.devices))} ${list(devices)} ${running(pods)}
      <section class="part"><h2>Labels</h2>${facts(Object.entries(node.labels).sort())}</section>`;
  }
}

// What a pod could get here now: the free devices of each class.
const fits = (classes) =>
  classes.length
    ? html`<section class="part"><h2>What would fit</h2><ul class="chips">${classes.map((each) => html`<li><a href=${link("fleet", [], { class: each.class })}>${each.class}</a>: <b>${number(each.free)}</b> <span class="quiet">of ${number(each.devices)}</span></li>`)}</ul></section>`
    : "";

const list = (devices) => html`<section class="part"><h2>Devices</h2>
  ${note(devices.length ? "" : "No driver publishes devices for this node alone; devices that several nodes reach are in the fleet.")}
  ${devices.length ? html`<table class="rows">
    <thead><tr>${["device", "state", "held by", "in the way"].map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
    <tbody>${devices.slice(0, SHOWN).map(line)}</tbody>
  </table>` : ""}
  ${note(devices.length > SHOWN ? `and ${plural(devices.length - SHOWN, "more device")}` : "")}
</section>`;

const line = (each) => html`<tr>
  ${shown("device", html`${deviceLink(each, each.device)} <span class="quiet">${each.driver}${each.kind === "partition" ? ", partition" : ""}</span>`)}
  ${shown("state", badge(each.state))}
  ${shown("held by", each.claims.length ? joined(each.claims.map((name) => namedLink("claim", name))) : "")}
  ${shown("in the way", each.why || each.blockedBy.length ? joined([...(each.why ? [each.why] : []), ...each.blockedBy.map((name) => namedLink("claim", name))]) : "")}
</tr>`;

const running = (pods) =>
  pods.length
    ? html`<section class="part"><h2>Pods with devices</h2><ul>${pods.map((each) => html`<li>${namedLink("pod", `${each.namespace}/${each.pod}`)} <span class="quiet">${each.requests.join(", ")}</span></li>`)}</ul></section>`
    : "";
