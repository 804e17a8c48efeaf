// The answer to a question: each pod today and then, and the nodes that do not exist with their devices.
import { Devices } from "./devices.js";
import { deviceLink, joined, namedLink, note } from "./parts.js";
import { newNode } from "./new-nodes.js";
import { link } from "./route.js";
import { html, number, plural } from "./text.js";

const SHOWN = 200; // pods that are drawn
const FEW = 4; // reasons of a pod that are shown at once
const SAME = new Set(["as today", "waits"]);
const TONES = { "gets a place": "good", "as today": "good", "loses its place": "bad", waits: "bad" };

export function answer(found) {
  const names = new Set(found.nodes.map((each) => each.node));
  const known = found.pods.filter((each) => each.then);
  const told = known.filter((each) => each.edited || each.origin !== "pending" || !SAME.has(each.difference));
  const others = known.filter((each) => !told.includes(each));
  const unknown = found.pods.filter((each) => !each.then);
  const devices = new Devices();
  if (found.nodes.length) devices.read({ ...found.picture, classes: [] });
  return html`
    <p class="verdict">${found.text.split("\n")[0]}</p>
    ${found.notes.map((each) => note(`${each}.`, "sentence"))}
    ${told.length ? html`<section class="part"><h2>What is different</h2>${told.slice(0, SHOWN).map((each) => pod(each, names))}${more(told)}</section>` : ""}
    ${found.nodes.length ? html`<section class="part"><h2>Nodes that do not exist</h2>${found.nodes.map((each) => newNode(each, devices))}</section>` : ""}
    ${found.staying.length ? html`<section class="part"><h2>Pods that stay on drained nodes</h2><ul>${found.staying.map((each) => html`<li>${namedLink("pod", each.pod)}: ${each.reason}</li>`)}</ul></section>` : ""}
    ${others.length ? html`<section class="part"><h2>As today</h2>${others.slice(0, SHOWN).map((each) => line(each, names))}${more(others)}</section>` : ""}
    ${unknown.length ? html`<section class="part unknown"><h2>Had no turn in time</h2>${listed(unknown)}</section>` : ""}
    ${found.unexamined ? html`<section class="part unexamined"><h2>Evictions that are not known</h2><p>${found.unexamined.text}.</p>${listed(found.pods.filter((each) => found.unexamined.pods.includes(each.pod)))}</section>` : ""}
    ${found.unmodeled.length ? note(`Not looked at: ${found.unmodeled.join(", ")}.`) : ""}`;
}

const more = ({ length }) => (length > SHOWN ? note(`and ${plural(length - SHOWN, "more pod")}`) : "");

const listed = (pods) => html`<p>${joined(pods.slice(0, SHOWN).map(nameOf))}</p>${more(pods)}`;

const nameOf = ({ pod, origin }) => (origin === "new" ? html`${pod} <span class="quiet">new</span>` : html`${namedLink("pod", pod)}${origin === "drained" ? html` <span class="quiet">leaves a drained node</span>` : ""}`);

const pod = (each, names) => html`<div class="card fate">
  <h3>${nameOf(each)} <span class=${TONES[each.difference] ?? ""}>${each.today ? each.difference : each.then.node ? "gets a place" : "waits"}</span>${each.edited ? html` <span class="quiet">edited</span>` : ""}</h3>
  <dl>${each.today ? html`<div><dt>today</dt><dd>${fate(each.today, names)}</dd></div>` : ""}<div><dt>then</dt><dd>${fate(each.then, names)}</dd></div></dl>
  ${each.caution ? html`<p class="quiet">But ${each.caution}.</p>` : ""}
  ${each.preemption?.node ? html`<p>${evictions(each.preemption)}</p>` : ""}
</div>`;

const line = (each, names) => html`<div class="fate line-of-pod">${nameOf(each)} <span class="quiet">${fate(each.then, names)}</span></div>`;

function fate({ node, devices, reasons }, names) {
  if (!node) return html`waits: ${reasonsOf(reasons)}`;
  const at = names.has(node) ? html`<b>${node}</b>` : html`<a href=${link("fleet", [], { text: node })}>${node}</a>`;
  return html`${at}${devices.length ? html` with ${joined(devices.map((each) => held(each, names)))}` : ""}`;
}

// Devices of new nodes have no page.
const held = ({ device, consumedCapacity: consumed }, names) => html`${names.has(device.pool.split("/")[0]) ? `${device.driver}/${device.pool}/${device.device}` : deviceLink(device)}${consumed ? ` (${Object.entries(consumed).map(([name, amount]) => `${name}: ${amount}`).join(", ")})` : ""}`;

const reasonsOf = (reasons) => html`${reasons.slice(0, FEW).map((each, index) => html`${index ? "; " : ""}${each.nodes ? `${number(each.nodes)} ${each.nodes === 1 ? "node" : "nodes"}: ` : ""}${each.reason}`)}${reasons.length > FEW ? `; and ${plural(reasons.length - FEW, "more reason")}` : ""}`;

const evictions = ({ node, victims }) =>
  victims.length
    ? html`dra-extender would evict ${joined(victims.map((each) => html`${namedLink("pod", each.pod)} (priority ${each.priority})`))} for it on ${node}.`
    : html`On ${node} it would fit once terminating pods are gone.`;
