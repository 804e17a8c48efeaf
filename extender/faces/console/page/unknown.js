// A link that leads nowhere: the page says so, and where links lead.
import { link } from "./route.js";
import { html } from "./text.js";

export class UnknownView {
  title = "Unknown page";

  // tabs: views of the bar, each with its name and its title; objects: the names that the address of an object has, by view.
  constructor({ tabs, objects }) {
    this.tabs = tabs;
    this.objects = objects;
  }

  open(route) {
    this.route = route;
  }

  changed = () => false;

  reread() {}

  template() {
    const { view, address } = this.route;
    const names = Object.hasOwn(this.objects, view) ? this.objects[view] : null;
    return html`<section class="unknown" aria-label=${this.title}>
      <h1>There is no page ${address}</h1>
      ${names ? html`<p>The address of a ${view} is <code>${`#/${[view, ...names].join("/")}`}</code>.</p>` : ""}
      <p>There is:</p>
      <ul class="links">${this.tabs.map(([name, title]) => html`<li><a href=${link(name)}>${title}</a></li>`)}</ul>
    </section>`;
  }
}
