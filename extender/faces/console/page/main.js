// The frame around the views: which view is open, the data that all of them share, and when to draw.
import { render } from "./lit-html.js";
import { AutoscalerView } from "./autoscaler.js";
import { DecisionsView } from "./decisions.js";
import { DefragmentView } from "./defragment.js";
import { ClaimView, DeviceView, PodView } from "./details.js";
import { Devices } from "./devices.js";
import { FleetView } from "./fleet.js";
import { again, note, unread } from "./parts.js";
import { Reader } from "./reader.js";
import { current, link } from "./route.js";
import { get, Live } from "./service.js";
import { NodeView } from "./node.js";
import { Search } from "./search.js";
import { ClaimsView, ClassesView, GangsView, PoolsView, PreemptionsView, ProblemsView, QuotasView } from "./tables.js";
import { UnknownView } from "./unknown.js";
import { UsageView } from "./usage.js";
import { WaitingView } from "./waiting.js";
import { WhatIfView } from "./what-if.js";
import { clock, html } from "./text.js";

const TABS = [
  ["fleet", "Fleet", FleetView],
  ["waiting", "Waiting", WaitingView],
  ["problems", "Problems", ProblemsView],
  ["claims", "Claims", ClaimsView],
  ["classes", "Classes", ClassesView],
  ["pools", "Pools", PoolsView],
  ["quotas", "Quotas", QuotasView],
  ["gangs", "Gangs", GangsView],
  ["preemptions", "Preemptions", PreemptionsView],
  ["usage", "Usage", UsageView],
  ["decisions", "Decisions", DecisionsView],
  ["what-if", "What if", WhatIfView],
  ["defragment", "Defragment", DefragmentView],
  ["autoscaler", "Autoscaler", AutoscalerView],
];
const OBJECTS = [
  ["pod", ["NAMESPACE", "NAME"], PodView],
  ["claim", ["NAMESPACE", "NAME"], ClaimView],
  ["device", ["DRIVER", "POOL", "DEVICE"], DeviceView],
  ["node", ["NAME"], NodeView],
];
const VIEWS = Object.fromEntries([...TABS, ...OBJECTS].map(([name, , view]) => [name, view]));
const NAMES = Object.fromEntries(OBJECTS); // the names in the address of an object

const UNKNOWN = "unknown page"; // no name of a view

const root = document.getElementById("console");
const devices = new Devices();
const shared = { devices, redraw, tabs: TABS, objects: NAMES };
const search = new Search(shared);
const state = { view: null, name: "", tab: "", route: null, doubt: "", isRead: false, isDrawing: false, read: null };

const live = new Live({
  told(message) {
    const isChanged = reader.tell(message);
    if (state.view?.changed(message) || isChanged) redraw();
  },
  lost: again(() => (reader.ask(), state.view?.reread())),
  changed: redraw,
});

const reader = new Reader({
  read: () => get("console/fleet"),
  took(document) {
    state.read = new Date();
    devices.read(document);
    state.doubt = document.doubt;
    live.follow(document.position);
    if (state.isRead) return;
    state.isRead = true;
    state.view.open(state.route); // not before: the view has to hear of what changes after it has read
  },
  told(message) {
    const isChanged = message.doubt !== undefined && message.doubt !== state.doubt;
    state.doubt = message.doubt ?? state.doubt;
    return devices.change(message) || isChanged;
  },
  redraw,
});

function route() {
  const found = current();
  const isKnown = Object.hasOwn(VIEWS, found.view) && found.names.length === (NAMES[found.view] ?? []).length;
  const name = isKnown ? found.view : UNKNOWN;
  if (name !== state.name) {
    state.view?.close?.();
    state.view = new (VIEWS[name] ?? UnknownView)(shared);
    state.name = name;
    scrollTo(0, 0);
  }
  state.route = found;
  if (state.isRead) state.view.open(found);
  redraw();
}

function redraw() {
  if (state.isDrawing) return;
  state.isDrawing = true;
  requestAnimationFrame(() => {
    state.isDrawing = false;
    draw();
  });
}

// Whether the page follows the service; and if not, of when what it shows is.
function liveness() {
  if (live.isOpen) return "live";
  const last = live.heard ?? state.read;
  return last ? `as of ${clock(last)}, not connected` : "not connected";
}

function draw() {
  const { view } = state;
  document.title = state.isRead ? `${view.title} · dra-extender` : "dra-extender";
  const body = state.isRead ? view.template() : unread(reader.error, "the cluster");
  render(html`
    <a class="skip" href="#main" @click=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href="#/fleet">dra-extender</a>
      <nav aria-label="Views">${TABS.map(([name, title]) => html`<a href=${link(name)} aria-current=${name === state.name ? "page" : "false"}>${title}</a>`)}</nav>
      ${search.template()}
      <p class="live ${live.isOpen ? "open" : ""}" role="status">${liveness()}</p>
    </header>
    ${note(state.doubt && `The cluster is not known well enough: ${state.doubt}`, "problem")}
    ${note(live.why && `This page does not follow changes: ${live.why}`, "problem")}
    ${note(state.isRead && reader.error && `The devices may be out of date: ${reader.error.message}`, "problem")}
    <main id="main" tabindex="-1" class=${live.isOpen || !state.isRead ? "" : "past"}>${body}</main>`, root);
  if (state.isRead) view.drawn?.(root);
  if (state.tab !== state.name) root.querySelector("nav [aria-current=page]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
  state.tab = state.name;
}

// The hash is the route, so the link cannot be a plain one.
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

addEventListener("hashchange", route);
route();
reader.ask();
