// The fleet is asked for before the rest of the page has come: the service works it out meanwhile.
import { get } from "./service.js";

const read = () => get("console/fleet");

let ahead = read();
ahead.catch(() => {}); // who takes it handles the error

// The fleet; at first the one that was asked for ahead.
export function fleet() {
  const found = ahead ?? read();
  ahead = null;
  return found;
}
