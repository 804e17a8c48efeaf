// An explanation as a picture: what each request leaves of all devices, nodes by reason, and what would help.
import { commandLines, copyButton, deviceLink, joined, namedLink, note } from "./parts.js";
import { link } from "./route.js";
import { html, number, plural } from "./text.js";

// Verdicts with nothing wrong, each with the title of its places.
const GOOD = { fits: "Where it fits", bound: "Where it is", allocated: "Where it is" };

export const explanation = (found) => html`
  <p class="verdict ${GOOD[found.verdict] ? "good" : "bad"}">${found.summary}</p>
  ${found.cause ? html`<div class="note problem">${found.cause.split("\n").map((line) => html`<p>${line}</p>`)}</div>` : ""}
  ${found.advice ? html`<p class="note">To do: ${found.advice}</p>` : ""}
  ${found.notes.map((each) => note(each))}
  ${part(GOOD[found.verdict] ?? "Where it fits", found.places.map(place))}
  ${part("What would make it fit", found.proposals.map(proposal), found.allTried ? "" : "Not every change was tried.")}
  ${part("What each request leaves of the devices", found.requests.map(funnel))}
  ${part("What does not go together", found.clashes.map(clash))}
  ${found.preemption ? part("Who would be evicted", [preemption(found.preemption)]) : ""}
  ${part("Nodes without the devices", groups(found.nodes))}
  ${part("Nodes that kube-scheduler itself rejects", groups(found.rejectedByScheduler.nodes))}
`;

const part = (title, items, remark = "") => (items.length ? html`<section class="part"><h2>${title}</h2>${note(remark)}${items}</section>` : "");

const place = ({ node, score, why, devices, leftOut }) => html`<div class="card">
  <h3><a href=${link("fleet", [], { node })}>${node}</a>${score === null ? "" : html` <span class="quiet">score ${score}${why ? `: ${why}` : ""}</span>`}</h3>
  <ul>${devices.map((each) => html`<li>${each.request}: ${deviceLink(each.device)}${amounts(each.consumedCapacity)}</li>`)}
  ${leftOut.map((each) => html`<li class="quiet">left out: ${each.request}${each.reason ? `, ${each.reason}` : ""}</li>`)}</ul>
</div>`;

const amounts = (consumed) => (consumed ? ` (${Object.entries(consumed).map(([name, amount]) => `${name}: ${amount}`).join(", ")})` : "");

const proposal = ({ changes, node, devices, patches, commands }) => html`<div class="card">
  ${changes.map((each) => html`<h3 class="sentence">${each.text}</h3>
    <div class="how"><code>${each.how}</code>${copyButton(each.how)}</div>
    ${each.immutable ? html`<p class="quiet sentence">${each.immutable}.</p>` : ""}`)}
  ${patches.length && commands.length ? html`<details><summary>Commands</summary>${commandLines(commands)}</details>` : ""}
  <p>Then it fits on <a href=${link("fleet", [], { node })}>${node}</a>${devices.length ? html` with ${joined(devices.map((each) => deviceLink(each)))}` : ""}.</p>
</div>`;

// A step of the funnel is a bar: what remains of the devices that were considered.
function funnel(request) {
  const total = request.considered;
  let remaining = total;
  const steps = request.fallouts.map((fallout) => ({ fallout, remaining: (remaining -= fallout.count) }));
  return html`<div class="card">
    <h3>${request.request}: ${request.asks} <span class="quiet">${request.claim}, from ${request.source}</span></h3>
    <ol class="funnel">
      <li>${bar(total, total)}<span>${plural(total, "device")} considered</span></li>
      ${steps.map(({ fallout, remaining: left }) => html`<li>${bar(left, total)}<span><b>−${number(fallout.count)}</b> ${fallout.text}${details(fallout)}</span></li>`)}
      <li class=${request.free ? "good" : "bad"}>${bar(request.free, total)}<span><b>${number(request.free)}</b> suitable${request.mostOnOneNode ? `, at most ${request.mostOnOneNode.devices} on one node (${request.mostOnOneNode.node})` : ""}</span></li>
    </ol>
    ${request.unusablePools.map((each) => html`<p class="quiet">${plural(each.devices, "more device")} in pool ${each.pool}: ${each.problem}</p>`)}
  </div>`;
}

const bar = (part, all) => html`<svg class="bar" aria-hidden="true" width="120" height="10"><rect class="track" width="100%" height="100%" rx="2"></rect><rect class="fill" width=${`${all ? (100 * part) / all : 0}%`} height="100%" rx="2"></rect></svg>`;

// What was read of the devices. Of an amount, the text has its name already.
const reading = (values, need) => Object.entries(values).map(([name, value]) => (need ? value : `${name} is ${value}`)).join(", ");

const details = ({ values, need, holders, devices }) => html`
  ${values.length ? html`<span class="quiet"> — ${values.map((each) => `${reading(each.values, need)} on ${plural(each.devices, "device")}`).join("; ")}</span>` : ""}${holders.length
    ? html`<ul>${holders.map((each) => html`<li>${deviceLink(each.device)}${each.claim ? html`: claim ${namedLink("claim", each.claim)}` : ""}${each.pods.length ? html`, pod ${joined(each.pods.map((pod) => namedLink("pod", pod)))}` : ""}${amounts(each.consumedCapacity)}</li>`)}</ul>`
    : devices.length ? html`<span class="quiet">, such as ${joined(devices.map((each) => deviceLink(each)))}</span>` : ""}`;

const clash = ({ node, constraint, values }) => html`<div class="card">
  <h3>${constraint ? `${constraint} ` : "requests compete "}<span class="quiet">on ${node}</span></h3>
  <ul>${Object.entries(values).map(([request, found]) => html`<li>${request}: ${Object.entries(found).map(([value, count]) => `${count}x ${value}`).join(", ") || "no device"}</li>`)}</ul>
</div>`;

const preemption = ({ node, victims, budgetViolations, spared }) => html`<div class="card">
  ${node
    ? html`<p>To make room on <b>${node}</b>: ${victims.length ? joined(victims.map((each) => html`${namedLink("pod", each.pod)} (priority ${each.priority}${each.borrowed ? ", with borrowed devices" : ""})`)) : "no pod is evicted; terminating pods make room"}.</p>`
    : html`<p>No eviction helps.</p>`}
  ${budgetViolations ? html`<p>${plural(budgetViolations, "eviction")} would break a PodDisruptionBudget.</p>` : ""}
  ${spared.map((each) => html`<p class="quiet">not evicted: ${each.names.join(", ")} — ${each.reason}</p>`)}
</div>`;

const FEW = 12;
const groups = (found) => found.map(({ reason, nodes }) => html`<details class="group"><summary><b>${number(nodes.length)}</b> ${reason}
    <span class="quiet">${nodes.slice(0, FEW).join(", ")}${nodes.length > FEW ? " …" : ""}</span></summary>
  <p>${joined(nodes.slice(0, 1000).map((node) => html`<a href=${link("fleet", [], { node })}>${node}</a>`))}${nodes.length > 1000 ? ` and ${number(nodes.length - 1000)} more` : ""}</p>
</details>`);
