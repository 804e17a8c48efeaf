// Reads one thing from the service, one read at a time. A read that is asked for meanwhile comes after it, so changes that
// come all the time cannot keep the page from its answer.

const PATIENCE = 5000; // milliseconds until a read that has failed is tried again

export class Reader {
  #isReading = false;
  #isAskedAgain = false;
  #isClosed = false;
  #held = [];
  #retry = 0;
  error = null;

  // read: asks the service; took: gets what it answers; told: gets a message of the feed, and returns whether it changes
  // the view; redraw: called after each read.
  constructor({ read, took, told = () => false, redraw }) {
    this.read = read;
    this.took = took;
    this.told = told;
    this.redraw = redraw;
  }

  async ask() {
    this.#isAskedAgain = this.#isReading;
    if (this.#isReading || this.#isClosed) return;
    clearTimeout(this.#retry);
    [this.#isReading, this.#held] = [true, []];
    const [found, error] = await this.read().then((each) => [each, null], (each) => [null, each]);
    this.#isReading = false;
    if (this.#isClosed) return;
    this.error = error;
    if (!error) this.#take(found);
    else if (error.isPassing) this.#retry = setTimeout(() => this.ask(), PATIENCE);
    this.redraw();
    if (this.#isAskedAgain) this.ask();
  }

  // The service may have answered before it knew of a message that came meanwhile.
  #take(found) {
    this.took(found);
    for (const message of this.#held) this.told(message);
  }

  tell(message) {
    if (this.#isReading) this.#held.push(message);
    return this.told(message);
  }

  // The answer is of no use any more.
  close() {
    this.#isClosed = true;
    clearTimeout(this.#retry);
  }
}
