// A view whose answer takes seconds: it is asked for when the question in the address changes, or when somebody asks again.
import { get } from "./service.js";
import { clock, html } from "./text.js";

// A subclass has: working, what is said meanwhile; again, the words of the button; and answered, what an answer looks like.
export class AnswerView {
  #path = "";
  #answer = null;
  #error = null;
  #asking = null;
  #isOld = false;

  constructor({ redraw }) {
    this.redraw = redraw;
  }

  // An answer that nobody waits for any more costs the service its work.
  close() {
    this.#asking?.abort();
  }

  // An answer is not asked for again by itself: it may take seconds.
  changed({ pods = [], pools = [] }) {
    if (this.#isOld || !(pods.length || pools.length)) return false;
    return (this.#isOld = true);
  }

  reread() {
    this.ask(this.#path);
  }

  async ask(path) {
    this.#path = path;
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    this.#isOld = false;
    this.redraw();
    try {
      const found = await get(path, asking.signal);
      [this.#answer, this.#error] = [{ ...found, time: clock(Date.now()) }, null];
    } catch (error) {
      if (error.name === "AbortError") return;
      [this.#answer, this.#error] = [null, error];
    }
    if (asking === this.#asking) this.#asking = null;
    this.redraw();
  }

  // The answer, or why there is none.
  outcome() {
    return html`<div aria-live="polite" aria-busy=${this.#asking ? "true" : "false"}>
      ${this.#error ? html`<div class="note problem" role="alert"><strong>There is no answer.</strong> ${this.#error.message}</div>` : ""}
      ${this.#asking ? html`<p class="quiet" role="status">${this.working}</p>` : ""}
      ${this.#answer
        ? html`<p class="quiet asked">${this.#isOld ? "The cluster has changed since" : "As of"} ${this.#answer.time}.
            <button type="button" class="again" @click=${() => this.reread()}>${this.again}</button></p>
          ${this.answered(this.#answer)}`
        : ""}
    </div>`;
  }
}
