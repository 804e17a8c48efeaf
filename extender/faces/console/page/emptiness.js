// Why the fleet shows no device, and what there is.
import { number, plural } from "./text.js";

const FEW = 8; // names that are told

const few = (names) => `${names.slice(0, FEW).join(", ")}${names.length > FEW ? ` and ${number(names.length - FEW)} more` : ""}`;

const countOf = (lines) => lines.reduce((before, { cells }) => before + cells.length, 0);

// filters: those of the address; matches: what the service says of class and attribute, null without these.
export function emptiness(devices, filters, matches) {
  const { driver = "", node = "", text = "" } = filters;
  if (!countOf(devices.select({}, null))) return "No driver has published a device: the devices of ResourceSlices come here.";
  if (matches && !matches.size) return ""; // the service has said why
  const drivers = devices.drivers();
  if (driver && !drivers.includes(driver)) return `There is no driver ${driver}; there is ${few(drivers)}.`;
  if (node && !countOf(devices.select({ node }, null))) return `Node ${node} has no devices, or there is no such node.`;
  if (text && !countOf(devices.select({ text }, null))) return `No node, pool, driver or device has "${text.trim()}" in its name.`;
  return `No device matches all filters. ${without(devices, filters, matches).join(" ")}`;
}

// How many devices there would be without each filter.
function without(devices, filters, matches) {
  const local = ["state", "text", "node", "driver"].filter((name) => filters[name]);
  const rest = local.map((name) => [`${name} ${filters[name]}`, countOf(devices.select({ ...filters, [name]: "" }, matches))]);
  const asked = ["class", "attribute"].filter((name) => filters[name]).map((name) => `${name} ${filters[name]}`);
  if (asked.length) rest.push([asked.join(" and "), countOf(devices.select(filters, null))]);
  return rest.filter(([, count]) => count).map(([words, count]) => `Without ${words} there ${count === 1 ? "is" : "are"} ${plural(count, "device")}.`);
}
