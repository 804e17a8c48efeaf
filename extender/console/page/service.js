// What the service knows, over HTTP. Paths are relative, so the console works behind a prefix and a proxy.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function get(path, signal) {
  let reply;
  try {
    reply = await fetch(path, { headers: { Accept: "application/json" }, cache: "no-store", signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the service does not answer");
  }
  const found = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Refused(reply.status, found.error ?? found.message ?? `the service answers with status ${reply.status}`);
  return found;
}

export const query = (parameters) =>
  new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined)).toString();

// The stream of changes: EventSource connects again by itself, and goes on where it stopped.
export class Live {
  #source = null;
  #retry = 0;
  #position = 0;

  // told: called with each message; lost: called when everything has to be read again; changed: the connection came or went.
  constructor({ told, lost, changed }) {
    this.told = told;
    this.lost = lost;
    this.changed = changed;
    this.isOpen = false;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.#open()));
  }

  follow(position) {
    this.#position = position;
    this.close();
    this.#open();
  }

  close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    if (this.#source || document.hidden || !this.#position) return; // a page that nobody sees needs no stream
    const source = new EventSource(`console/changes?after=${this.#position}`);
    this.#source = source;
    source.onopen = () => this.#set(true);
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return this.#later();
      this.close();
      this.#set(false);
      this.#retry = setTimeout(() => this.#open(), 5000 + Math.random() * 5000);
    };
    source.addEventListener("changes", (event) => {
      this.#position = Number(event.lastEventId);
      this.told(JSON.parse(event.data));
    });
    source.addEventListener("reset", (event) => {
      this.#position = Number(event.lastEventId);
      this.lost();
    });
  }

  // Each stream lasts a minute; the next one begins half a second later. Only a longer gap is worth a word.
  #later() {
    const source = this.#source;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => source === this.#source && source?.readyState !== EventSource.OPEN && this.#set(false), 2500);
  }

  #set(isOpen) {
    if (isOpen) clearTimeout(this.#retry);
    this.isOpen = isOpen;
    this.changed();
  }
}
