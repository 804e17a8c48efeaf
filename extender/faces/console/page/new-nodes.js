// A node that does not exist: its devices by state, the pods that take them, and what nobody takes.
import { joined, mark } from "./parts.js";
import { html, plural } from "./text.js";

// The level of the heading follows from what is around the card.
const HEADINGS = {
  h3: (text) => html`<h3>${text}</h3>`,
  h4: (text) => html`<h4>${text}</h4>`,
  h5: (text) => html`<h5>${text}</h5>`,
};

export const newNode = (each, devices, heading = "h3") => html`<div class="card new-node">
  ${HEADINGS[heading](html`${each.node} <span class="quiet">${each.origin || "nothing is known of its devices"}</span>`)}
  ${each.pools.map(({ driver, pool }) => devices.rowsOf(driver, pool).map((row) => html`<p class="drawn" role="img" aria-label=${marks(row, devices)}>
    ${row.shape.indexes.map((index) => mark(`${devices.stateOf(row, index)} ${isPartition(row, index) ? "partition" : ""}`))} <span class="quiet">${driver}</span></p>`))}
  ${each.pods.length ? html`<ul>${each.pods.map(({ pod, devices: held }) => html`<li>${pod}: ${joined(held.map((one) => `${one.device.driver}/${one.device.device}`))}</li>`)}</ul>` : html`<p class="quiet">no pod with devices is placed here</p>`}
  <p class=${each.stranded ? "bad" : "quiet"}>${each.stranded ? `${plural(each.stranded, "device")} stranded: no pod takes anything of ${each.stranded === 1 ? "it" : "them"}` : each.devices ? "no device is stranded" : ""}</p>
</div>`;

const isPartition = ({ shape: { hardware, partitioned, indexes } }, index) => partitioned && indexes.find((each) => hardware[each] === hardware[index]) !== index;

// For who does not see the marks: how many devices are in which state.
function marks(row, devices) {
  const counts = new Map();
  for (const index of row.shape.indexes) {
    const state = devices.stateOf(row, index);
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
}
