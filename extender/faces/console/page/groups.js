// Groups of devices: by a label of their nodes, by model, or by who holds them. Each group stands below a line with its totals.
import { kindsOf, places, totals } from "./devices.js";
import { plural } from "./text.js";

const NAMES = { "node.kubernetes.io/instance-type": "instance type", "topology.kubernetes.io/zone": "zone" };
const NONE = "-"; // no value of a label is written so, and no namespace
const NOTHING = { model: "no model", namespace: "held by nobody" };
const ALL = "*";

export const nameOf = (label) => NAMES[label] ?? label;

const collator = new Intl.Collator("en", { numeric: true });

// Rows with their groups. by: the name of the grouping; folded: what the URL says of the groups whose rows are hidden: their
// values, with commas between them, or * for all; measure: by what groups are sorted instead of their names.
export function grouped(lines, by, folded, measure) {
  const groups = Map.groupBy(lines, ({ group }) => group || NONE);
  const names = [...groups.keys()].sort((a, b) => (a === NONE) - (b === NONE) || collator.compare(a, b));
  const values = measure ? names.toSorted((a, b) => measure(groups.get(b)) - measure(groups.get(a))) : names;
  const hidden = new Set(folded === ALL ? values : folded.split(",").map(unquoted));
  return values.flatMap((value) => {
    const own = groups.get(value);
    const isOpen = !hidden.has(value);
    const isNode = value !== NONE || by === "model" || by === "namespace";
    const header = { group: value === NONE ? (NOTHING[by] ?? "no group") : value, isOpen, counts: totals(own), parts: totals(own, "parts"), kinds: kindsOf(own), size: plural(places(own), isNode ? "node" : "place"), cells: [0], folds: toggled(values, hidden, value) };
    return isOpen ? [header, ...own.filter(({ cells }) => cells.length)] : [header];
  });
}

export const allFolded = (folded) => (folded ? "" : ALL);

// A model may have a comma in its name.
const quoted = (value) => value.replaceAll("%", "%25").replaceAll(",", "%2C");
const unquoted = (text) => text.replaceAll("%2C", ",").replaceAll("%25", "%");

function toggled(values, hidden, value) {
  const after = values.filter((each) => hidden.has(each) !== (each === value));
  return after.length === values.length ? ALL : after.map(quoted).join(",");
}
