// The tables that are views: which columns each has, and where its cells lead.
import { deviceLinkOf } from "./details.js";
import { badge, joined, namedLink, nodeLink } from "./parts.js";
import { link } from "./route.js";
import { table, TableView } from "./table-view.js";
import { age, html, number, plural } from "./text.js";

const FEW = 8; // names in a cell

// Some names, and how many more there are.
const few = (names, shown) =>
  names.length ? html`${joined(names.slice(0, FEW).map(shown))}${names.length > FEW ? ` and ${number(names.length - FEW)} more` : ""}` : "";

const podLink = (namespace, name) => html`<a href=${link("pod", [namespace, name])}><span class="quiet">${namespace}/</span>${name}</a>`;

// Where a person looks at an object: a page of its own, if it has one.
const OBJECTS = { Pod: "pod", ResourceClaim: "claim" };
const objectLink = ({ kind, object }) => html`<span class="quiet">${kind}</span> ${OBJECTS[kind] ? namedLink(OBJECTS[kind], object) : kind === "Node" ? nodeLink(object) : object}`;

// How much of a limit is used, as a bar beside the numbers.
function share({ used, hard }) {
  const [part, all] = [used, hard].map(Number.parseFloat);
  const width = all > 0 ? Math.min(100, (100 * part) / all) : 100;
  return html`<span class=${part >= all ? "bad" : ""}>${used} of ${hard}</span>
    <svg class="bar" aria-hidden="true" width="120" height="8"><rect class="track" width="100%" height="100%" rx="2"></rect><rect class="fill" width=${`${width}%`} height="100%" rx="2"></rect></svg>`;
}

export class ProblemsView extends TableView {
  title = "Problems";
  path = "problems";
  noun = "problem";
  empty = "No problem is known: what is wrong with an object comes here, with what it costs and what to do.";
  columns = [
    ["object", objectLink],
    ["since", ({ age: seconds, since }) => (seconds === null ? "" : html`<time datetime=${since}>${age(since)}</time>`), "when quiet"],
    ["problem", (row) => row.problem],
    ["costs", (row) => row.cost],
    ["to do", (row) => row.advice],
  ];
}

export class QuotasView extends TableView {
  title = "Quotas";
  path = "quotas";
  noun = "limit";
  empty = "There are no DeviceQuotas: a DeviceQuota limits how many devices, or how much of a capacity, a namespace may have.";
  isBad = (row) => Boolean(row.problem);
  columns = [
    ["quota", (row) => html`<span class="quiet">${row.namespace}/</span>${row.quota}`],
    ["limit", (row) => html`${row.limit} <span class="quiet">${row.of}</span>`],
    ["counts", (row) => row.counts],
    ["used", share],
    ["kept", (row) => row.kept],
    ["borrowed", (row) => row.borrowed],
    ["cohort", (row) => row.cohort],
    ["problem", (row) => row.problem],
  ];
}

export class ClaimsView extends TableView {
  title = "Claims";
  path = "claims";
  noun = "claim";
  empty = "There are no ResourceClaims: a pod's claim comes here, with its devices and who uses it.";
  columns = [
    ["claim", (row) => html`<a href=${link("claim", [row.namespace, row.claim])}><span class="quiet">${row.namespace}/</span>${row.claim}</a>`],
    ["state", (row) => badge(row.state)],
    ["devices", (row) => few(row.devices, (name) => deviceLinkOf(name))],
    ["reserved for", (row) => few(row.reservedFor, (name) => namedLink("pod", `${row.namespace}/${name}`))],
    ["age", (row) => age(row.created), "when quiet"],
  ];
}

export class ClassesView extends TableView {
  title = "Classes";
  path = "resources?by=class";
  noun = "class";
  nouns = "classes";
  empty = "No DeviceClass selects a device.";
  columns = [
    ["class", (row) => html`<a href=${link("fleet", [], { class: row.class })}>${row.class}</a>`],
    ["extended resource", (row) => row.resource],
    ["nodes", (row) => number(row.nodes), "count"],
    ["devices", (row) => number(row.devices), "count"],
    ["usable", (row) => number(row.allocatable), "count"],
    ["free", (row) => html`<b>${number(row.free)}</b>`, "count"],
    ["in use", (row) => number(row.inUse), "count"],
  ];
}

export class PoolsView extends TableView {
  title = "Pools";
  path = "pools";
  noun = "pool";
  empty = "No driver has published a ResourceSlice.";
  isBad = (row) => Boolean(row.problem);
  columns = [
    ["pool", (row) => html`<a href=${link("fleet", [], { driver: row.driver, text: row.pool })}>${row.pool}</a>`],
    ["driver", (row) => html`<a href=${link("fleet", [], { driver: row.driver })}>${row.driver}</a>`],
    ["node", (row) => nodeLink(row.node)],
    ["age", (row) => age(row.created), "when quiet"],
    ["generation", (row) => row.generation, "count"],
    ["slices", (row) => row.slices, "count"],
    ["free", freeOf],
    ["problem", (row) => row.problem],
  ];

  // How each driver does.
  above(rows) {
    return html`<h2>Drivers</h2>${table(DRIVERS, byDriver(rows), ({ bad }) => bad > 0, "Drivers")}<h2>Pools</h2>`;
  }
}

const freeOf = ({ free, devices, partitions }) => html`<b>${number(free)}</b> of ${number(devices)}${partitions.free ? `, or up to ${plural(partitions.free, "partition")}` : ""}`;

const DRIVERS = [
  ["driver", (row) => html`<a href=${link("fleet", [], { driver: row.driver })}>${row.driver}</a>`],
  ["health", (row) => (row.bad ? `${number(row.bad)} of ${plural(row.pools, "pool")} cannot be used` : "all pools can be used")],
  ["pools", (row) => number(row.pools), "count"],
  ["free", freeOf],
  ["oldest pool", (row) => age(row.oldest), "when quiet"],
  ["newest pool", (row) => age(row.newest), "when quiet"],
];

function byDriver(pools) {
  return [...Map.groupBy(pools, ({ driver }) => driver)].map(([driver, own]) => {
    const [free, devices, parts] = [({ free }) => free, ({ devices }) => devices, ({ partitions }) => partitions.free ?? 0].map((part) => own.reduce((before, each) => before + part(each), 0));
    const created = own.map((each) => each.created).filter(Boolean).sort();
    return { driver, pools: own.length, bad: own.filter(({ problem }) => problem).length, free, devices, partitions: { free: parts }, oldest: created[0], newest: created.at(-1) };
  });
}

export class GangsView extends TableView {
  title = "Gangs";
  path = "gangs";
  noun = "gang";
  empty = "No pod with devices is in a gang: pods that get devices all or none come here.";
  isBad = (row) => row.state === "wrong" || row.state === "runs in part";
  columns = [
    ["gang", (row) => html`<span class="quiet">${row.namespace}/</span>${row.gang}`],
    ["kind", (row) => row.kind],
    ["state", (row) => row.state],
    ["have a node", (row) => `${row.bound} of ${row.size}`, "count"],
    ["kept", (row) => row.kept, "count"],
    ["priority", (row) => row.priority, "count"],
    ["waiting", (row) => few(row.waiting, (name) => html`<a href=${link("pod", [row.namespace, name])}>${name}</a>`)],
    ["why", (row) => row.why],
  ];
}

export class PreemptionsView extends TableView {
  title = "Preemptions";
  path = "preemptions";
  noun = "preemption";
  empty = "No pod waits for evictions: a pod for which others are evicted comes here, with its victims and the devices that are kept for it.";
  columns = [
    ["pod", (row) => podLink(row.namespace, row.pod)],
    ["priority", (row) => row.priority, "count"],
    ["node", (row) => nodeLink(row.node)],
    ["victims", (row) => row.state],
    ["still there", (row) => few(row.victims, (name) => namedLink("pod", name))],
    ["kept devices", (row) => few(row.devices, (name) => deviceLinkOf(name))],
    ["age", (row) => age(row.created), "when quiet"],
  ];
}
