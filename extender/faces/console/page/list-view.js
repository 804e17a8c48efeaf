// A view of one list: it is read when the view is opened, and the address says which rows are wanted.
import { calm, field } from "./parts.js";
import { Reader } from "./reader.js";
import { refine } from "./route.js";
import { html, number } from "./text.js";

export class ListView {
  // read, took and told: as for a Reader.
  constructor({ redraw }, { read, took, told }) {
    this.type = calm(150, (filters) => refine(this.route, filters));
    this.reader = new Reader({ read, took, told, redraw });
  }

  open(route) {
    if (!this.route) this.reread();
    this.route = route;
  }

  reread() {
    this.reader.ask();
  }

  close() {
    this.reader.close();
  }

  changed(message) {
    return this.reader.tell(message);
  }

  // A choice among the values of one filter.
  choice(label, name, values, all) {
    const chosen = this.route.filters[name] ?? "";
    return field(label, html`<select name=${name} @change=${(event) => refine(this.route, { [name]: event.target.value })}>
      <option value="" .selected=${!chosen}>${all}</option>
      ${values.map((each) => html`<option value=${each} .selected=${each === chosen}>${each}</option>`)}
    </select>`);
  }

  // The filter by text.
  text(label) {
    return field(label, html`<input type="search" name="text" .value=${this.route.filters.text ?? ""} placeholder="text" autocomplete="off" spellcheck="false"
      @input=${(event) => this.type({ text: event.target.value })}>`);
  }
}

// Why no row is shown although there are some.
export const unmatched = (noun, count) => `No ${noun} matches; without filters there ${count === 1 ? "is 1" : `are ${number(count)}`}.`;
