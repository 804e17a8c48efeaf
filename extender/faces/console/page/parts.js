// Parts that several views share.
import { nothing } from "./lit-html.js";
import { link } from "./route.js";
import { html, plural } from "./text.js";

// A state by its word and its mark: no state is told by color alone.
export const mark = (state) => html`<i class="mark ${state}" aria-hidden="true"></i>`;
export const badge = (state) => html`<span class="badge">${mark(state)}${state}</span>`;

// What follows a number of devices: partitions are no further devices, so they are counted apart.
export const beside = (parts) => (parts ? html` <span class="parts">+ ${plural(parts, "partition")}</span>` : "");

export const deviceLink = ({ driver, pool, device }, text) =>
  html`<a href=${link("device", [driver, pool, device])}>${text ?? `${driver}/${pool}/${device}`}</a>`;

// NAMESPACE/NAME, as the service writes names of claims and pods.
export const namedLink = (view, name) => {
  const [namespace, rest] = name.split(/\/(.*)/s);
  return rest === undefined ? html`${name}` : html`<a href=${link(view, [namespace, rest])}>${name}</a>`;
};

// A name with a space is no node's, but says which nodes reach a device: "all nodes".
export const nodeLink = (name) => (name && !name.includes(" ") ? html`<a href=${link("node", [name])}>${name}</a>` : name);

export const joined = (items) => items.map((each, index) => html`${index ? ", " : ""}${each}`);

export const facts = (pairs) => html`<dl class="facts">
  ${pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

export const note = (text, kind = "") => (text ? html`<p class="note ${kind}" role="status">${text}</p>` : nothing);

// What stands in place of a view that is not there yet, or not to be had.
export const unread = (error, what) =>
  error
    ? html`<div class="note problem" role="alert"><h1>${what} cannot be shown.</h1> ${error.message}</div>`
    : html`<h1 class="unseen">${what}</h1><p class="quiet" role="status">Reading ${what} …</p>`;

export const field = (label, input) => html`<label class="field"><span>${label}</span>${input}</label>`;

// Commands, each on a line of its own, with a button that copies all of them.
export const commandLines = (commands) =>
  html`<div class="how"><code>${commands.map((each, index) => html`${index ? html`<br>` : ""}${each}`)}</code>${copyButton(commands.join("\n"))}</div>`;

// A button that copies a text. The clipboard needs a secure page; without one the text is selected instead.
export function copyButton(text) {
  const copy = async ({ currentTarget: button }) => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  return html`<button type="button" class="copy" @click=${copy}>Copy</button>`;
}

// Calls a function at most once in a while, the last time included.
export function calm(milliseconds, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(call, milliseconds, ...given);
  };
}

// Reads something again at most once in two seconds, however many changes there are. Pages that all see one change do not
// all ask at the same moment.
export function again(read) {
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    setTimeout(() => ((isWaiting = false), read()), 300 + Math.random() * 1700);
  };
}
