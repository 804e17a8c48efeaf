// What a device of the fleet is, and who holds it: shown beside the device that the mouse or the keyboard is at.
import { holdersOf, modelOf } from "./devices.js";
import { render } from "./lit-html.js";
import { get, query } from "./service.js";
import { age, html } from "./text.js";

const PAUSE = 150; // milliseconds at a device before the service is asked
const GRACE = 250; // milliseconds in which the mouse may reach the tooltip
const MARGIN = 8;

export class Tooltip {
  #box = null;
  #anchor = null;
  #address = ""; // of the device that is shown
  #asking = 0; // timer until the service is asked
  #leaving = 0; // timer until the tooltip goes

  constructor(devices) {
    this.devices = devices;
  }

  attach(box) {
    if (box === this.#box) return;
    this.#box = box;
    box?.addEventListener("pointerenter", () => clearTimeout(this.#leaving));
    box?.addEventListener("pointerleave", () => this.leave());
  }

  show(anchor, row, index) {
    const address = anchor.getAttribute("href");
    clearTimeout(this.#leaving);
    if (!this.#box || address === this.#address) return;
    this.hide();
    [this.#anchor, this.#address] = [anchor, address];
    anchor.setAttribute("aria-describedby", this.#box.id);
    this.#draw(anchor, row, index);
    if (this.devices.stateOf(row, index) !== "free") this.#asking = setTimeout(() => this.#ask(anchor, row, index), PAUSE);
  }

  leave() {
    clearTimeout(this.#leaving);
    this.#leaving = setTimeout(() => this.hide(), GRACE);
  }

  hide() {
    clearTimeout(this.#asking);
    clearTimeout(this.#leaving);
    this.#anchor?.removeAttribute("aria-describedby");
    [this.#anchor, this.#address] = [null, ""];
    if (this.#box) this.#box.hidden = true;
  }

  // The element may be another device now.
  redrawn() {
    if (this.#anchor && this.#anchor.getAttribute("href") !== this.#address) this.hide();
  }

  // The keyboard has scrolled the device to where it is seen; whoever scrolls otherwise leaves it.
  moved() {
    if (!this.#anchor) return;
    if (this.#anchor === document.activeElement) this.#place(this.#anchor.getBoundingClientRect());
    else this.hide();
  }

  async #ask(anchor, row, index) {
    const named = query({ driver: row.driver, pool: row.pool, device: row.shape.devices[index] });
    const answers = Promise.all([get(`devices?${named}`), get(`console/history?${named}`)]);
    const [devices, history] = await answers.catch((error) => [{ items: [{ why: error.message }] }, { holds: [] }]);
    if (anchor === this.#anchor && anchor.getAttribute("href") === this.#address) this.#draw(anchor, row, index, devices.items[0], history.holds.filter(({ until }) => !until));
  }

  // device: its row of the table; holds: of those who hold it now. Both come later.
  #draw(anchor, row, index, device, holds = []) {
    const [state, left] = [this.devices.stateOf(row, index), row.left[index]];
    const namespaces = holdersOf(row, index);
    render(html`<p><b>${row.shape.devices[index]}</b> ${modelOf(row, index)}</p>
      <p>${state}${left === undefined ? "" : `, ${Math.round(left * 100)}% left`} <span class="quiet">${row.node || "no node"} · ${row.driver}</span></p>
      ${device?.why ? html`<p>${device.why}</p>` : ""}
      ${holds.length ? holds.slice(0, 5).map(held) : namespaces.length ? html`<p>held in ${namespaces.join(", ")}</p>` : ""}
      ${holds.length > 5 ? html`<p>and ${String(holds.length - 5)} more claims</p>` : ""}`, this.#box);
    this.#box.hidden = false;
    this.#place(anchor.getBoundingClientRect());
  }

  // Below the device; above it where there is no room below.
  #place(at) {
    const { style } = this.#box;
    [style.left, style.top] = ["0", "0"];
    const { left, top, width, height } = this.#box.getBoundingClientRect(); // a gray page has another origin
    const y = at.bottom + MARGIN + height > innerHeight ? at.top - MARGIN - height : at.bottom + MARGIN;
    style.left = `${Math.max(MARGIN, Math.min(at.left, innerWidth - width - MARGIN)) - left}px`;
    style.top = `${Math.max(MARGIN, y) - top}px`;
  }
}

const held = ({ claim, users, since }) =>
  html`<p>held by claim ${claim}${users.length ? `, for pod ${users.join(", ")}` : ""}${since ? `, for ${age(since)}` : ""}</p>`;
