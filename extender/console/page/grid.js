// The rows of the fleet. Only those on the screen are in the document: 40,000 devices scroll as ten do.
import { render } from "./lit-html.js";
import { mark } from "./parts.js";
import { link } from "./route.js";
import { html, number } from "./text.js";

const CELL = 18; // a cell with its gap, in CSS pixels; style.css has the same number
const GAP = 8; // between pieces of hardware
const PADDING = 10; // of a row
const HEAD = 24; // of a row on a narrow screen, where the names stand above the cells
const NARROW = 700;
const NAMES = 460; // the columns beside the cells; style.css has the same number
const MOST = 3000; // devices of one row that are drawn

export class Grid {
  #lines = [];
  #tops = [0];
  #focus = { line: 0, cell: 0 };
  #box = null;

  constructor(devices) {
    this.devices = devices;
  }

  // The element in which the rows are drawn; it scrolls.
  attach(box) {
    if (!box || box === this.#box) return;
    this.#box = box;
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focusin", (event) => this.#focused(event));
    new ResizeObserver(() => (this.#measure(), this.draw())).observe(box);
  }

  show(lines) {
    this.#lines = lines;
    this.#measure();
    this.draw();
  }

  #measure() {
    const width = this.#box?.clientWidth ?? 0;
    const isNarrow = width < NARROW;
    const room = width - (isNarrow ? 24 : NAMES);
    let top = 0;
    this.#tops = [0, ...this.#lines.map((line) => (top += this.#height(line, room, isNarrow)))];
  }

  #height(line, room, isNarrow) {
    let rows = 1;
    let x = 0;
    line.cells.slice(0, MOST).forEach((index, at) => {
      const gap = startsHardware(line, at) ? GAP : 0;
      if (x + gap + CELL > room && x > 0) {
        rows += 1;
        x = 0;
      }
      x += gap + CELL;
    });
    return rows * CELL + PADDING + (isNarrow ? HEAD : 0);
  }

  #lineAt(y) {
    let low = 0;
    let high = this.#lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#tops[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw() {
    const box = this.#box;
    if (!box) return;
    const first = Math.max(0, this.#lineAt(box.scrollTop) - 4);
    const last = Math.min(this.#lines.length, this.#lineAt(box.scrollTop + box.clientHeight) + 5);
    this.#focus.line = Math.min(this.#focus.line, Math.max(0, this.#lines.length - 1));
    const focus = this.#lines[this.#focus.line];
    this.#focus.cell = Math.min(this.#focus.cell, Math.max(0, (focus?.cells.length ?? 1) - 1));
    const shown = this.#lines.slice(first, last).map((line, index) => this.#row(line, first + index));
    render(html`<div class="tall"><div class="shown">${shown}</div></div>`, box);
    const tall = box.firstElementChild;
    tall.style.height = `${this.#tops.at(-1)}px`;
    tall.firstElementChild.style.transform = `translateY(${this.#tops[first]}px)`;
  }

  #row(line, at) {
    const { row } = line;
    const before = this.#lines[at - 1]?.row;
    const place = row.node || "no node";
    const cells = line.cells.slice(0, MOST).map((index, cell) => this.#cell(line, at, index, cell));
    const rest = line.cells.length - cells.length;
    return html`<div class="line" role="row" aria-rowindex=${at + 1}>
      <span class="node ${before?.node === row.node ? "again" : ""}" role="rowheader" title=${place}>${place}</span>
      <span class="pool" role="gridcell" title=${`${row.driver}/${row.pool}`}>${row.pool === row.node ? row.driver : `${row.driver}/${row.pool}`}</span>
      <span class="left" role="gridcell"><b>${number(line.free)}</b>/${number(line.all)}<span class="unseen"> free</span></span>
      <span class="cells" role="presentation">${cells}${rest ? html`<span role="gridcell">and ${number(rest)} more</span>` : ""}</span>
    </div>`;
  }

  #cell(line, at, index, cell) {
    const { row } = line;
    const state = this.devices.stateOf(row, index);
    const device = row.shape.devices[index];
    const left = row.left[index];
    const level = left === undefined ? "" : `level${Math.round(left * 4)}`;
    const words = left === undefined ? state : `${state}, ${Math.round(left * 100)}% left`;
    const isFocus = at === this.#focus.line && cell === this.#focus.cell;
    return html`<span role="gridcell" class=${startsHardware(line, cell) ? "cell apart" : "cell"}
      ><a href=${link("device", [row.driver, row.pool, device])} class="mark ${state} ${level} ${isPart(line, index)}"
        tabindex=${isFocus ? 0 : -1} data-line=${at} data-cell=${cell} aria-label=${`${device}: ${words}`} title=${`${device}: ${words}`}></a
    ></span>`;
  }

  #focused(event) {
    const { line, cell } = event.target.dataset;
    if (line === undefined) return;
    this.#focus = { line: Number(line), cell: Number(cell) };
    this.draw();
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.#box.clientHeight / (CELL + PADDING)) - 1);
    const { line, cell } = this.#focus;
    const to = {
      ArrowLeft: [line, cell - 1],
      ArrowRight: [line, cell + 1],
      ArrowUp: [line - 1, cell],
      ArrowDown: [line + 1, cell],
      PageUp: [line - page, cell],
      PageDown: [line + page, cell],
      Home: event.ctrlKey ? [0, 0] : [line, 0],
      End: event.ctrlKey ? [this.#lines.length - 1, Infinity] : [line, Infinity],
    }[event.key];
    if (!to || !this.#lines.length) return;
    event.preventDefault();
    this.#go(...to);
  }

  #go(line, cell) {
    const at = Math.min(Math.max(0, line), this.#lines.length - 1);
    this.#focus = { line: at, cell: Math.min(Math.max(0, cell), Math.min(MOST, this.#lines[at].cells.length) - 1) };
    const box = this.#box;
    if (this.#tops[at] < box.scrollTop) box.scrollTop = this.#tops[at];
    else if (this.#tops[at + 1] > box.scrollTop + box.clientHeight) box.scrollTop = this.#tops[at + 1] - box.clientHeight;
    this.draw();
    box.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }
}

// Partitions of one device stand together, apart from those of the next.
function startsHardware({ row, cells }, at) {
  const { hardware, partitioned } = row.shape;
  return partitioned && at > 0 && hardware[cells[at]] !== hardware[cells[at - 1]];
}

const isPart = ({ row }, index) => {
  const { hardware, partitioned, indexes } = row.shape;
  return partitioned && indexes.find((each) => hardware[each] === hardware[index]) !== index ? "partition" : "";
};

export const legend = (states) => states.map((state) => html`<li>${mark(state)}${state}</li>`);
