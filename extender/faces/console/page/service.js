// What the service knows, over HTTP. Paths are relative, so the console works behind a prefix and a proxy.

const ANSWERED_WITHIN = 30_000; // milliseconds
const SILENCE = 25_000; // milliseconds; a stream that lives says something every ten seconds
const GAP = 2500; // milliseconds; one stream ends after a minute, and the next one begins half a second later

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  // Whether the same question may have another answer soon.
  get isPassing() {
    return this.status === 0 || this.status >= 500 || this.status === 429;
  }
}

async function ask(path, accept, signal) {
  let reply;
  try {
    reply = await fetch(path, { headers: { Accept: accept }, cache: "no-store", signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the service does not answer");
  }
  if (reply.ok) return reply;
  const found = await reply.json().catch(() => ({}));
  throw new Refused(reply.status, found.error ?? found.message ?? `the service answers with status ${reply.status}`);
}

// signal: ends the wait; without one, it has a bound.
export async function get(path, signal = AbortSignal.timeout(ANSWERED_WITHIN)) {
  const reply = await ask(path, "application/json", signal);
  try {
    return await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the service has not answered to the end");
  }
}

export const query = (parameters) =>
  new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined)).toString();

// The stream of changes: EventSource connects again by itself, and goes on where it stopped.
export class Live {
  #source = null;
  #retry = 0; // timer until the next stream
  #loss = 0; // timer until the page says that it is not connected
  #ends = 0; // when this timer ends
  #position = 0;
  isOpen = false;
  heard = null; // when the service has last said that it lives
  why = ""; // why the service gives no stream

  // told: called with each message; lost: called when everything has to be read again; changed: the connection came or went.
  constructor({ told, lost, changed }) {
    this.told = told;
    this.lost = lost;
    this.changed = changed;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#close() : this.#open()));
  }

  // Follows from a position on. A stream that is open already goes on where it is: what is on its way must not be lost.
  follow(position) {
    this.#position ||= position;
    this.#open();
  }

  #close() {
    clearTimeout(this.#retry);
    clearTimeout(this.#loss);
    this.#loss = 0;
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    if (this.#source || document.hidden || !this.#position) return; // a page that nobody sees needs no stream
    clearTimeout(this.#retry);
    const source = new EventSource(this.#path());
    this.#source = source;
    this.#loseAfter(SILENCE);
    source.onopen = () => this.#hear();
    source.onerror = () => (source.readyState === EventSource.CLOSED ? this.#refused() : this.#loseAfter(GAP));
    source.addEventListener("alive", () => this.#hear());
    source.addEventListener("changes", (event) => {
      this.#hear(event);
      this.told(JSON.parse(event.data));
    });
    source.addEventListener("reset", (event) => {
      this.#hear(event);
      this.lost();
    });
  }

  #path() {
    return `console/changes?after=${this.#position}`;
  }

  #hear(event) {
    if (event) this.#position = Number(event.lastEventId);
    this.heard = new Date();
    clearTimeout(this.#loss);
    this.#loss = 0;
    this.#loseAfter(SILENCE);
    this.#set(true);
  }

  // The browser tries again all the time, so another failure does not start the wait anew; it may only end earlier.
  #loseAfter(milliseconds) {
    const ends = Date.now() + milliseconds;
    if (this.#loss && ends >= this.#ends) return;
    clearTimeout(this.#loss);
    this.#ends = ends;
    this.#loss = setTimeout(() => this.#lose(), milliseconds);
  }

  #lose() {
    this.#close();
    this.#set(false);
    this.#open();
  }

  // The service answers, but with no stream. EventSource does not tell why.
  async #refused() {
    this.#close();
    this.#retry = setTimeout(() => this.#open(), 5000 + Math.random() * 5000);
    this.#set(false);
    const why = await refusal(this.#path());
    if (!this.isOpen) this.#set(false, why);
  }

  #set(isOpen, why = "") {
    if (this.isOpen === isOpen && this.why === why) return;
    [this.isOpen, this.why] = [isOpen, why];
    this.changed();
  }
}

async function refusal(path) {
  const given = new AbortController();
  try {
    await ask(path, "text/event-stream", given.signal);
    return "";
  } catch (error) {
    return error.status ? error.message : "";
  } finally {
    given.abort();
  }
}
