// What if: requests are edited, and pods and nodes come or go. The service answers; nothing is written.
// The question is in the URL, as JSON.
import { AnswerView } from "./answer-view.js";
import { answer } from "./what-if-answer.js";
import { Form } from "./what-if-form.js";
import { note } from "./parts.js";
import { refine } from "./route.js";
import { query } from "./service.js";
import { html, number } from "./text.js";

const LONGEST = 8192; // characters of a question in an address
const LONGEST_ADDRESS = 24_576; // the same in an address, where a character may take twelve; a request's head has 32 KiB

export class WhatIfView extends AnswerView {
  title = "What if";
  working = "Computing …";
  again = "Ask again";
  answered = answer;
  #text = null;
  #question = {};
  #wrong = "";

  constructor(shared) {
    super(shared);
    const { redraw, devices } = shared;
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

  reread() {
    this.form.reread();
    this.#ask();
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

  #ask() {
    if (!this.#wrong) return this.ask(`what-if?${query({ question: this.#text })}`);
    this.close();
    this.redraw();
  }

  template() {
    return html`<section class="what-if" aria-label="What if">
      <header class="totals"><h1>What if</h1><p class="quiet">Nothing is written: the service computes the answer from the cluster as it knows it.</p></header>
      ${this.form.template()} ${note(this.#wrong, "problem")} ${this.#wrong ? "" : this.outcome()}
    </section>`;
  }
}
