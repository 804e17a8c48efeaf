// All devices, as the fleet's document has them: rows of a pool on a node, and a state for each device.
// No drawing here: the document and the filters go in, lines and totals come out.

const collator = new Intl.Collator("en", { numeric: true });
const keyOf = (each) => `${each.driver}/${each.pool}`;

// gpu-2 before gpu-10, and the partitions of a device beside it.
function ordered(shape) {
  const first = new Map();
  const indexes = shape.devices.map((_, index) => index).sort((a, b) => collator.compare(shape.devices[a], shape.devices[b]));
  for (const index of indexes) if (!first.has(shape.hardware[index])) first.set(shape.hardware[index], first.size);
  indexes.sort((a, b) => first.get(shape.hardware[a]) - first.get(shape.hardware[b]));
  const partitioned = new Set(shape.hardware).size < shape.hardware.length;
  return { ...shape, indexes, partitioned, parts: new Set(shape.partitions) };
}

// The address of a page may have any name.
const own = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

const nothing = () => ({ free: 0, all: 0, freeParts: 0, parts: 0 });

export class Devices {
  states = [];
  classes = [];
  labels = [];
  example = ""; // a filter by attribute that matches a device
  #pools = new Map();

  read(document) {
    this.states = document.states;
    this.classes = document.classes;
    this.labels = document.labels;
    this.example = document.example ?? "";
    this.#pools = new Map();
    this.#add(document);
  }

  // A message of the feed: all rows of the pools that it names. Whether there were any.
  change({ pools = [], ...document }) {
    for (const pool of pools) this.#pools.delete(keyOf(pool));
    if (pools.length) this.#add(document);
    return pools.length > 0;
  }

  #add({ shapes, groups, namespaces, rows }) {
    const known = shapes.map(ordered);
    for (const row of rows) {
      const key = keyOf(row);
      const held = Object.entries(row.held ?? {}).map(([at, indexes]) => [namespaces[at], indexes]);
      const found = { ...row, key, shape: known[row.shape], left: row.left ?? {}, groups: groups[row.group] ?? [], held };
      if (this.#pools.has(key)) this.#pools.get(key).push(found);
      else this.#pools.set(key, [found]);
    }
  }

  drivers() {
    return [...new Set([...this.#pools.values()].map(([row]) => row.driver))].sort(collator.compare);
  }

  rowsOf(driver, pool) {
    return this.#pools.get(keyOf({ driver, pool })) ?? [];
  }

  stateOf(row, index) {
    return this.states[Number(row.states[index])];
  }

  // What devices can be put into groups by: labels that some node has (by the others, all nodes would be one group),
  // and what is known of each device.
  groupings() {
    const rows = [...this.#pools.values()].flat();
    return [...this.labels.filter((_, index) => rows.some((row) => row.groups[index])), ...Object.keys(OF_DEVICE)];
  }

  // What tells the group of a device, by the name of a grouping; undefined if there is no such grouping.
  groupOf(name) {
    const index = this.labels.indexOf(name);
    return index < 0 ? own(OF_DEVICE, name) : (row) => row.groups[index] ?? "";
  }

  // The rows that match, by node, each with the indexes of the devices that match, and with how many devices and how many
  // partitions are in each state, and how many of each are free. The numbers count all states, so that they say what
  // another choice of a state would show. Devices of different groups stand in different rows.
  select({ driver = "", node = "", text = "", state = "" }, matches, groupOf = () => "") {
    const wanted = text.trim().toLowerCase();
    const rank = state ? String(this.states.indexOf(state)) : "";
    const lines = [];
    for (const rows of this.#pools.values()) {
      for (const row of rows) {
        if ((driver && row.driver !== driver) || (node && row.node !== node)) continue;
        const members = matches?.get(row.key);
        if (matches && !members) continue;
        const isNamed = !wanted || [row.node, row.pool, row.driver].some((each) => each.toLowerCase().includes(wanted));
        const found = new Map();
        for (const index of row.shape.indexes) {
          if (members && !members.has(row.shape.devices[index])) continue;
          if (!isNamed && !row.shape.devices[index].toLowerCase().includes(wanted)) continue;
          const group = groupOf(row, index);
          if (!found.has(group)) found.set(group, { row, group, cells: [], counts: new Map(), parts: new Map(), kinds: nothing() });
          const line = found.get(group);
          count(line, this.stateOf(row, index), row.shape.parts.has(index));
          if (!rank || row.states[index] === rank) line.cells.push(index);
        }
        lines.push(...found.values());
      }
    }
    return lines.sort(byName);
  }
}

function count({ counts, parts, kinds }, state, isPart) {
  const numbers = isPart ? parts : counts;
  numbers.set(state, (numbers.get(state) ?? 0) + 1);
  kinds[isPart ? "parts" : "all"] += 1;
  if (state === "free") kinds[isPart ? "freeParts" : "free"] += 1;
}

export const modelOf = (row, index) => row.shape.models[index];

// The namespaces whose claims hold something of a device.
export const holdersOf = (row, index) => row.held.filter(([, indexes]) => indexes.includes(index)).map(([namespace]) => namespace);

// Groupings by what is known of each device.
const OF_DEVICE = { model: modelOf, namespace: (row, index) => holdersOf(row, index).join(", ") };

const byName = (a, b) => isPlace(a) - isPlace(b) || collator.compare(a.row.node, b.row.node) || collator.compare(a.row.key, b.row.key);

// Devices that several nodes reach come after the nodes.
const isPlace = ({ row }) => row.node === "all nodes" || row.node === "by selector" || row.node === "";

const BROKEN = ["unusable", "tainted", "clash"];

const sumOf = (counts, states) => states.reduce((before, state) => before + (counts.get(state) ?? 0), 0);

// What some rows are sorted by, the greatest first. Partitions count where there is no hardware of its own.
const MEASURES = {
  free: (lines) => {
    const { all, free, freeParts } = kindsOf(lines);
    return all ? free : freeParts;
  },
  full: (lines) => {
    const { all, parts } = kindsOf(lines);
    return sumOf(totals(lines, all ? "counts" : "parts"), ["allocated", "shared"]) / (all || parts || 1);
  },
  broken: (lines) => sumOf(totals(lines), BROKEN) + sumOf(totals(lines, "parts"), BROKEN),
};

export const measureOf = (name) => own(MEASURES, name);

// Rows by a measure of their node; the rows of a node stay together.
export function sorted(lines, measure) {
  const values = new Map([...Map.groupBy(lines, ({ row }) => row.node)].map(([node, own]) => [node, measure(own)]));
  return lines.toSorted((a, b) => values.get(b.row.node) - values.get(a.row.node) || byName(a, b));
}

// How many devices (counts) or partitions (parts) of some rows are in each state.
export function totals(lines, kind = "counts") {
  const counts = new Map();
  for (const line of lines) for (const [state, count] of line[kind]) counts.set(state, (counts.get(state) ?? 0) + count);
  return counts;
}

// How many are free of the hardware of some rows, and of its partitions: these exclude each other and all of it.
export function kindsOf(lines) {
  const found = nothing();
  for (const { kinds } of lines) for (const name of Object.keys(found)) found[name] += kinds[name];
  return found;
}

// The same for each driver.
export function byDriver(lines) {
  const found = [...Map.groupBy(lines, ({ row }) => row.driver)].map(([driver, own]) => ({ driver, ...kindsOf(own) }));
  return found.sort((a, b) => collator.compare(a.driver, b.driver));
}

export const places = (lines) => new Set(lines.map(({ row }) => row.node)).size;

export function readMatches({ sets, pools }) {
  const members = sets.map((names) => new Set(names));
  return new Map(pools.map((each) => [keyOf(each), members[each.set]]));
}
