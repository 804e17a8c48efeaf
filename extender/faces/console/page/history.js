// Who has held a device in the last hour: a bar for each hold, on one scale of time.
import { joined, namedLink } from "./parts.js";
import { clock, duration, html } from "./text.js";

const HOUR = 3600_000;

export function holds({ completeAfter, holds: found }) {
  const now = Date.now();
  const start = now - HOUR;
  return html`<section class="part"><h2>The last hour</h2>
    ${found.length ? html`<ul class="holds">${found.map((each) => hold(each, start, now))}</ul>` : ""}
    <p class="quiet">${found.length ? "" : "Nobody has held it. "}${
      Date.parse(completeAfter) > start + 60_000 ? `This replica has watched it since ${clock(completeAfter)}.` : ""
    }</p></section>`;
}

const hold = ({ claim, users, since, until }, start, now) => html`<li>
  ${bar(since ? Date.parse(since) : start, until ? Date.parse(until) : now, start)}
  <span>${namedLink("claim", claim)}${users.length ? html`, for ${joined(users.map((each) => namedLink("pod", `${claim.split("/")[0]}/${each}`)))}` : ""}</span>
  <span class="quiet">${since ? clock(since) : "earlier"} – ${until ? clock(until) : "now"}${since ? ` (${duration(((until ? Date.parse(until) : now) - Date.parse(since)) / 1000)})` : ""}</span>
</li>`;

function bar(from, to, start) {
  const share = (time) => Math.min(100, Math.max(0, ((time - start) / HOUR) * 100));
  return html`<svg class="bar" aria-hidden="true" width="120" height="10"><rect class="track" width="100%" height="100%" rx="2"></rect><rect class="fill" x=${`${Math.min(98, share(from))}%`} width=${`${Math.max(2, share(to) - share(from))}%`} height="100%" rx="2"></rect></svg>`;
}
