// Constraints of a claim as lines between its devices, with the value that they share.
import { joined } from "./parts.js";
import { html, svg } from "./text.js";

const ROW = 30; // the height of a device's row, in CSS pixels; style.css has the same number
const STEP = 18; // between two lines
const NAMES = { matchAttribute: "same", distinctAttribute: "different" };

// devices: all devices of the claim, each as DRIVER/POOL/DEVICE; shown: draws the link to one.
export function tied(devices, constraints, shown) {
  const drawn = constraints.filter((each) => each.devices.length > 1);
  if (!drawn.length) return "";
  const width = drawn.length * STEP + 6;
  return html`<div class="tied">
    <div class="rails">
      <svg aria-hidden="true" width=${width} height=${devices.length * ROW}>${drawn.map((each, index) => rail(each, devices, (index + 0.5) * STEP + 3, index))}</svg>
      <ul>${devices.map((device) => html`<li>${shown(device)}</li>`)}</ul>
    </div>
    <ol class="ties">${drawn.map(words)}</ol>
  </div>`;
}

function rail({ kind, devices: own }, devices, x, index) {
  const names = new Set(own.map((each) => each.device));
  const heights = devices.flatMap((device, at) => (names.has(device) ? [(at + 0.5) * ROW] : []));
  return svg`<g class=${`rail ${NAMES[kind] ?? ""}`}>
    <line x1=${x} x2=${x} y1=${Math.min(...heights)} y2=${Math.max(...heights)}></line>
    ${heights.map((y) => svg`<circle cx=${x} cy=${y} r="8"></circle><text x=${x} y=${y + 4}>${index + 1}</text>`)}
  </g>`;
}

const words = ({ kind, attribute, devices, shared }) => html`<li><b>${NAMES[kind] ?? kind}</b> ${attribute}${
  shared.length
    ? html`: <b>${shared.map(String).join(", ")}</b>`
    : html`<span class="quiet">: ${joined(devices.map((each) => `${last(each.device)} ${each.values.map(String).join(" and ") || "(not published)"}`))}</span>`
} <span class="quiet">(${kind})</span></li>`;

const last = (device) => device.slice(device.lastIndexOf("/") + 1);
