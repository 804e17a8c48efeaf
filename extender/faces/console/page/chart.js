// A drawing of amounts over time: a column for each step, a part of it for each name. Each name has a pattern of its own, so
// that nothing is told by color alone. The columns can be read with the arrow keys, and in the table beside the drawing.
import { html, svg } from "./text.js";

export const PATTERNS = 6; // the last one is for all names that have none of their own

// A color and the lines on it, each.
const STRIPES = [
  ["series0", ""],
  ["series1", "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4"],
  ["series2", "M0,4 h8"],
  ["series3", "M4,0 v8"],
  ["series4", "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4"],
  ["series5", "M0,4 h8 M4,0 v8"],
];

const patterns = svg`<defs>${STRIPES.map(([color, stripe], index) => svg`<pattern id=${`pattern-${index}`} width="8" height="8" patternUnits="userSpaceOnUse">
  <rect class=${color} width="8" height="8"></rect><path class="stripe" d=${stripe}></path></pattern>`)}</defs>`;

const percent = (part) => `${(100 * part).toFixed(3)}%`;

const swatch = (index) => html`<svg class="swatch" aria-hidden="true" width="16" height="16">${svg`<rect width="16" height="16" rx="2" fill=${`url(#pattern-${index})`}></rect>`}</svg>`;

// steps: each {label, parts: [amount by name], of: what there is}; names: of the parts; chosen: the step that is read;
// choose: called with another one; said: a step in words.
export function chart({ title, steps, names, chosen, choose, said }) {
  const most = Math.max(1, ...steps.map(({ parts, of }) => Math.max(of, sum(parts))));
  const at = Math.min(chosen ?? steps.length - 1, steps.length - 1);
  const pointed = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    choose(Math.min(steps.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * steps.length))));
  };
  const pressed = (event) => {
    const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: steps.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(Math.min(steps.length - 1, Math.max(0, to)));
  };
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <ul class="legend">${names.map((name, index) => html`<li>${swatch(patternOf(index, names))}${name}</li>`)}<li><svg class="swatch" aria-hidden="true" width="16" height="16"><line class="of" y1="8" y2="8" x2="16"></line></svg>all there are</li></ul>
    <p class="most quiet">${most.toLocaleString("en-US", { maximumFractionDigits: 1 })}</p>
    <div class="columns" tabindex="0" role="slider" aria-label=${`${title}: time`} aria-valuemin="0" aria-valuemax=${steps.length - 1} aria-valuenow=${at} aria-valuetext=${said(steps[at])}
      @keydown=${pressed} @pointermove=${pointed} @pointerdown=${pointed}>
      <svg aria-hidden="true" width="100%" height="100%">${patterns}${steps.map((step, index) => column(step, index, steps.length, most, names))}${svg`<rect class="chosen" x=${percent(at / steps.length)} width=${percent(1 / steps.length)} height="100%"></rect>`}</svg>
    </div>
    <p class="times quiet"><span>${steps[0].label}</span><span>${steps.at(-1).label}</span></p>
    <p class="reading">${said(steps[at])}</p>
  </figure>`;
}

const sum = (parts) => parts.reduce((total, part) => total + part, 0);

const patternOf = (index, names) => (names.length > PATTERNS - 1 && index === names.length - 1 ? PATTERNS - 1 : index);

function column({ parts, of }, index, count, most, names) {
  let top = 0;
  const [x, width] = [percent(index / count), percent(0.86 / count)];
  const drawn = parts.map((part, name) => {
    top += part;
    return part ? svg`<rect x=${x} width=${width} y=${percent(1 - top / most)} height=${percent(part / most)} fill=${`url(#pattern-${patternOf(name, names)})`}></rect>` : "";
  });
  const height = percent(1 - of / most);
  return svg`${drawn}<line class="of" x1=${x} x2=${percent((index + 1) / count)} y1=${height} y2=${height}></line>`;
}
