// Groups of nodes: the rows of the fleet by a label of their nodes, each group below a line with its totals.
import { kindsOf, places, totals } from "./devices.js";
import { plural } from "./text.js";

const NAMES = { "node.kubernetes.io/instance-type": "instance type", "topology.kubernetes.io/zone": "zone" };
const NONE = "-"; // no value of a label is written so
const ALL = "*";

export const nameOf = (label) => NAMES[label] ?? label;

const collator = new Intl.Collator("en", { numeric: true });

// folded: what the URL says of the groups whose rows are hidden: their values, with commas between them, or * for all.
export function grouped(lines, index, folded) {
  const groups = Map.groupBy(lines, ({ row }) => row.groups[index] || NONE);
  const values = [...groups.keys()].sort((a, b) => (a === NONE) - (b === NONE) || collator.compare(a, b));
  const hidden = new Set(folded === ALL ? values : folded.split(","));
  return values.flatMap((value) => {
    const own = groups.get(value);
    const isOpen = !hidden.has(value);
    const counts = totals(own);
    const header = { group: value === NONE ? "no group" : value, isOpen, counts, parts: totals(own, "parts"), kinds: kindsOf(own), size: plural(places(own), value === NONE ? "place" : "node"), cells: [0], folds: toggled(values, hidden, value) };
    return isOpen ? [header, ...own.filter(({ cells }) => cells.length)] : [header];
  });
}

export const sum = (counts) => [...counts.values()].reduce((before, each) => before + each, 0);

export const allFolded = (folded) => (folded ? "" : ALL);

function toggled(values, hidden, value) {
  const after = values.filter((each) => hidden.has(each) !== (each === value));
  return after.length === values.length ? ALL : after.join(",");
}
