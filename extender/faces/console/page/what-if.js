// What if: requests are edited, and pods and nodes come or go. The service answers; nothing is written.
// The question is in the URL, as JSON.
import { answer } from "./what-if-answer.js";
import { Form } from "./what-if-form.js";
import { note } from "./parts.js";
import { refine } from "./route.js";
import { get, query } from "./service.js";
import { clock, html, number } from "./text.js";

const LONGEST = 8192; // characters of a question in an address
const LONGEST_ADDRESS = 24_576; // the same in an address, where a character may take twelve; a request's head has 32 KiB

export class WhatIfView {
  title = "What if";
  #text = null;
  #question = {};
  #wrong = "";
  #answer = null;
  #error = null;
  #asking = null;
  #isOld = false;

  constructor({ redraw, devices }) {
    this.redraw = redraw;
    this.form = new Form({ redraw, devices, ask: (question) => this.#change(question), pick: (pod) => refine(this.route, { pod }) });
  }

  open(route) {
    this.route = route;
    this.form.open(route.filters.pod ?? "");
    const text = route.filters.question ?? "{}";
    if (text === this.#text) return;
    this.#text = text;
    this.#read(text);
    this.form.show(this.#question);
    this.#ask();
  }

  // An answer that nobody waits for any more costs the service its work.
  close() {
    this.#asking?.abort();
  }

  reread() {
    this.form.reread();
    this.#ask();
  }

  // An answer is not asked for again by itself: it may take seconds.
  changed({ pods = [], pools = [] }) {
    if (this.#isOld || !(pods.length || pools.length)) return false;
    return (this.#isOld = true);
  }

  // A link may have been typed: what is no object is not a question.
  #read(text) {
    [this.#question, this.#wrong] = [{}, ""];
    try {
      const found = JSON.parse(text);
      if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error("it is no object");
      this.#question = found;
    } catch (error) {
      this.#wrong = `The question of this link cannot be read: ${error.message}`;
    }
  }

  #change(question) {
    const text = JSON.stringify(question);
    if (text.length > LONGEST || encodeURIComponent(text).length > LONGEST_ADDRESS) {
      this.#wrong = `The question is too long for a link, with ${number(text.length)} characters: POST /what-if and kubectl dra what-if take a longer one.`;
      return this.redraw();
    }
    this.#wrong = "";
    refine(this.route, { question: text === "{}" ? "" : text });
  }

  async #ask() {
    this.#asking?.abort();
    if (this.#wrong) return this.redraw();
    const asking = (this.#asking = new AbortController());
    this.#isOld = false;
    this.redraw();
    try {
      const found = await get(`what-if?${query({ question: this.#text })}`, asking.signal);
      [this.#answer, this.#error] = [{ ...found, time: clock(Date.now()) }, null];
    } catch (error) {
      if (error.name === "AbortError") return;
      [this.#answer, this.#error] = [null, error];
    }
    if (asking === this.#asking) this.#asking = null;
    this.redraw();
  }

  template() {
    return html`<section class="what-if" aria-label="What if">
      <header class="totals"><h1>What if</h1><p class="quiet">Nothing is written: the service computes the answer from the cluster as it knows it.</p></header>
      ${this.form.template()} ${note(this.#wrong, "problem")}
      <div aria-live="polite" aria-busy=${this.#asking ? "true" : "false"}>
        ${this.#error ? html`<div class="note problem" role="alert"><strong>There is no answer.</strong> ${this.#error.message}</div>` : ""}
        ${this.#asking ? html`<p class="quiet" role="status">Computing …</p>` : ""}
        ${this.#answer && !this.#wrong
          ? html`<p class="quiet asked">${this.#isOld ? "The cluster has changed since" : "As of"} ${this.#answer.time}.
              <button type="button" class="again" @click=${() => this.#ask()}>Ask again</button></p>
            ${answer(this.#answer)}`
          : ""}
      </div>
    </section>`;
  }
}
