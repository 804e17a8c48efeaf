// The rows of the fleet. Only those on the screen are in the document: 40,000 devices scroll as ten do.
import { kindsOf, modelOf, places } from "./devices.js";
import { render } from "./lit-html.js";
import { beside, mark } from "./parts.js";
import { link } from "./route.js";
import { html, number, plural } from "./text.js";

const MOST = 3000; // devices of one row that are drawn

// Lengths of the rows. The stylesheet has them, because they depend on the window and on what points: mouse or finger.
const LENGTHS = ["pitch", "apart", "names", "frame", "head", "group"];

export class Grid {
  #given = [];
  #isDense = false;
  #lines = [];
  #tops = [0];
  #focus = { line: 0, cell: 0 };
  #box = null;

  // fold: called with the groups that are folded after a click, as the URL has them. tooltip: tells more of a device.
  constructor(devices, fold, tooltip) {
    this.devices = devices;
    this.fold = fold;
    this.tooltip = tooltip;
  }

  // The element in which the rows are drawn; it scrolls.
  attach(box) {
    if (!box || box === this.#box) return;
    this.#box = box;
    box.addEventListener("scroll", () => (this.draw(), this.tooltip.moved()), { passive: true });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("focusin", (event) => this.#focused(event));
    box.addEventListener("focusout", () => this.tooltip.leave());
    box.addEventListener("pointerover", (event) => this.#point(event.target.closest("a[data-line]")));
    box.addEventListener("pointerleave", () => this.tooltip.leave());
    new ResizeObserver(() => (this.#measure(), this.draw())).observe(box);
  }

  // With isDense, the devices of several nodes stand in one row.
  show(lines, isDense) {
    [this.#given, this.#isDense] = [lines, isDense];
    this.#measure();
    this.draw();
  }

  #measure() {
    if (!this.#box) return;
    const style = getComputedStyle(this.#box);
    const length = Object.fromEntries(LENGTHS.map((name) => [name, parseFloat(style.getPropertyValue(`--${name}`))]));
    const room = this.#box.clientWidth - length.names;
    let top = 0;
    this.#lines = this.#isDense ? packed(this.#given, room, length) : this.#given;
    this.#box.setAttribute("aria-rowcount", this.#lines.length);
    this.#tops = [0, ...this.#lines.map((line) => (top += isTotal(line) ? length.group : height(line, room, length)))];
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
    const hadFocus = box !== document.activeElement && box.contains(document.activeElement);
    const [top, bottom] = [box.scrollTop, box.scrollTop + box.clientHeight];
    const first = Math.max(0, this.#lineAt(top) - 4);
    const last = Math.min(this.#lines.length, this.#lineAt(bottom) + 5);
    this.#keepStop(first, last);
    const shown = this.#lines.slice(first, last).map((line, index) => this.#drawn(line, first + index));
    render(html`<div class="tall"><div class="shown">${shown}</div></div>`, box);
    const tall = box.firstElementChild;
    tall.style.height = `${this.#tops.at(-1)}px`;
    tall.firstElementChild.style.transform = `translateY(${this.#tops[first]}px)`;
    if (hadFocus) this.#focusStop(); // the element that had it may be another device now
    this.tooltip.redrawn();
  }

  #drawn(line, at) {
    if (isTotal(line)) return this.#group(line, at);
    return line.pieces ? this.#pack(line, at) : this.#row(line, at);
  }

  // One device is a stop of the Tab key: the one that had the focus last, or one on the screen if that is far away.
  #keepStop(first, last) {
    const { line, cell } = this.#focus;
    const at = line >= first && line < last ? line : Math.min(first + 4, last - 1);
    const cells = this.#lines[at] ? sizeOf(this.#lines[at]) : 1;
    this.#focus = { line: Math.max(0, at), cell: Math.max(0, Math.min(cell, cells - 1, MOST - 1)) };
  }

  #focusStop() {
    const stop = this.#box.querySelector('[tabindex="0"]');
    if (stop !== document.activeElement) stop?.focus({ preventScroll: true });
  }

  #row(line, at) {
    const { row } = line;
    const before = this.#lines[at - 1]?.row;
    const place = row.node || "no node";
    return html`<div class="line" role="row" aria-rowindex=${at + 1}>
      <span class="node ${before?.node === row.node ? "again" : ""}" role="rowheader" title=${place}>${place}</span>
      <span class="pool" role="gridcell" title=${`${row.driver}/${row.pool}`}>${row.pool === row.node ? row.driver : `${row.driver}/${row.pool}`}</span>
      ${free(line)}
      ${this.#cells(line, at)}
    </div>`;
  }

  // Several nodes, from the first to the last one.
  #pack(line, at) {
    const names = [line.pieces[0], line.pieces.at(-1)].map(({ row }) => row.node || "no node");
    const name = names[0] === names[1] ? names[0] : `${names[0]} – ${names[1]}`;
    return html`<div class="line" role="row" aria-rowindex=${at + 1}>
      <span class="node" role="rowheader" title=${`${name}: ${plural(places(line.pieces), "place")}`}>${name}</span>
      ${free(line)}
      ${this.#cells(line, at)}
    </div>`;
  }

  #cells(line, at) {
    const count = Math.min(MOST, sizeOf(line));
    const rest = sizeOf(line) - count;
    const cells = Array.from({ length: count }, (_, cell) => this.#cell(line, at, cell));
    return html`<span class="cells" role="presentation">${cells}${rest ? html`<span class="rest" role="gridcell">and ${number(rest)} more</span>` : ""}</span>`;
  }

  #group(line, at) {
    const states = this.devices.states.filter((state) => line.counts.get(state) || line.parts.get(state));
    return html`<div class="line sum" role="row" aria-rowindex=${at + 1}>
      <span class="node" role="rowheader"><button type="button" aria-expanded=${line.isOpen} tabindex=${this.#tabindex(at, 0)} data-line=${at} data-cell="0"
        title=${line.group} @click=${() => this.fold(line.folds)}>${line.group}</button></span>
      <span class="pool" role="gridcell">${line.size}</span>
      ${free(line)}
      <span class="counts" role="gridcell">${states.map((state) => html`<span title=${state}>${mark(state)}${number(line.counts.get(state) ?? 0)}<span class="unseen"> ${state}</span>${beside(line.parts.get(state))}</span> `)}</span>
    </div>`;
  }

  #tabindex(line, cell) {
    return line === this.#focus.line && cell === this.#focus.cell ? 0 : -1;
  }

  #cell(line, at, cell) {
    const { row, index, piece } = located(line, cell);
    const state = this.devices.stateOf(row, index);
    const device = row.shape.devices[index];
    const left = row.left[index];
    const level = left === undefined ? "" : `level${Math.round(left * 4)}`;
    const words = [state, left === undefined ? "" : `${Math.round(left * 100)}% left`, modelOf(row, index)].filter(Boolean).join(", ");
    const place = line.pieces ? `${row.node} ` : "";
    return html`<span role="gridcell" class=${isApart(line, cell) ? "cell apart" : "cell"}
      ><a href=${link("device", [row.driver, row.pool, device])} tabindex=${this.#tabindex(at, cell)} data-line=${at} data-cell=${cell}
        aria-label=${`${place}${device}: ${words}`}><i class="mark ${state} ${level} ${isPart(piece, index)}"></i></a
    ></span>`;
  }

  #point(anchor) {
    if (!anchor) return this.tooltip.leave();
    const { row, index } = located(this.#lines[Number(anchor.dataset.line)], Number(anchor.dataset.cell));
    this.tooltip.show(anchor, row, index);
  }

  #focused(event) {
    const { line, cell } = event.target.dataset;
    if (line === undefined) return;
    this.#focus = { line: Number(line), cell: Number(cell) };
    this.draw();
    if (event.target.matches("a")) this.#point(event.target);
  }

  #key(event) {
    if (event.key === "Escape") return this.tooltip.hide();
    const { line, cell } = this.#focus;
    const height = this.#tops[line + 1] - this.#tops[line];
    const page = Math.max(1, Math.floor(this.#box.clientHeight / height) - 1);
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
    this.#focus = { line: at, cell: Math.min(Math.max(0, cell), Math.min(MOST, sizeOf(this.#lines[at])) - 1) };
    const box = this.#box;
    if (this.#tops[at] < box.scrollTop) box.scrollTop = this.#tops[at];
    else if (this.#tops[at + 1] > box.scrollTop + box.clientHeight) box.scrollTop = this.#tops[at + 1] - box.clientHeight;
    this.draw();
    this.#focusStop();
  }
}

// Whether a row is that of a group, with its totals.
const isTotal = (line) => line.folds !== undefined;

// How many devices a row has.
const sizeOf = (line) => (line.pieces ? line.pieces.reduce((before, { cells }) => before + cells.length, 0) : line.cells.length);

// The device of a cell: its row of the fleet, its index there, and its piece of the row that is drawn.
function located(line, cell) {
  let at = cell;
  for (const piece of line.pieces ?? [line]) {
    if (at < piece.cells.length) return { row: piece.row, index: piece.cells[at], piece, at };
    at -= piece.cells.length;
  }
  return {};
}

// The partitions of one device stand together, apart from those of the next; so do the devices of a node.
function isApart(line, cell) {
  const { piece, at } = located(line, cell);
  return startsHardware(piece, at) || (at === 0 && cell > 0);
}

function startsHardware({ row, cells }, at) {
  const { hardware, partitioned } = row.shape;
  return partitioned && at > 0 && hardware[cells[at]] !== hardware[cells[at - 1]];
}

// Rows of the fleet, as many in one row as there is room for.
function packed(lines, room, { pitch, apart }) {
  const found = [];
  let pieces = null;
  let x = 0;
  for (const line of lines) {
    if (isTotal(line)) {
      found.push(line);
      pieces = null;
      continue;
    }
    const width = line.cells.reduce((before, _, at) => before + pitch + (startsHardware(line, at) ? apart : 0), 0);
    if (!pieces || x + apart + width > room) {
      found.push({ pieces: (pieces = []) });
      x = -apart;
    }
    pieces.push(line);
    x += apart + width;
  }
  for (const line of found) if (line.pieces) line.kinds = kindsOf(line.pieces);
  return found;
}

const isPart = ({ row }, index) => {
  const { hardware, partitioned, indexes } = row.shape;
  return partitioned && indexes.find((each) => hardware[each] === hardware[index]) !== index ? "partition" : "";
};

function height(line, room, { pitch, apart, frame, head }) {
  let rows = 1;
  let x = 0;
  const count = sizeOf(line);
  for (let cell = 0; cell < Math.min(MOST, count); cell += 1) {
    const gap = isApart(line, cell) ? apart : 0;
    if (x + gap + pitch > room && x > 0) {
      rows += 1;
      x = 0;
    }
    x += gap + pitch;
  }
  return (rows + (count > MOST)) * pitch + frame + head;
}

// Of hardware; of partitions where the row has no hardware of its own.
const free = ({ kinds }) => {
  const [left, all] = kinds.all ? [kinds.free, kinds.all] : [kinds.freeParts, kinds.parts];
  return html`<span class="left" role="gridcell"><b>${number(left)}</b>/${number(all)}<span class="unseen"> free</span></span>`;
};
