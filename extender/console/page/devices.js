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
  return { ...shape, indexes, partitioned };
}

export class Devices {
  states = [];
  classes = [];
  nodes = 0;
  #pools = new Map();

  read(document) {
    this.states = document.states;
    this.classes = document.classes;
    this.nodes = document.nodes;
    this.#pools = new Map();
    this.#add(document);
  }

  // A message of the feed: all rows of the pools that it names. Whether there were any.
  change({ pools = [], ...document }) {
    for (const pool of pools) this.#pools.delete(keyOf(pool));
    if (pools.length) this.#add(document);
    return pools.length > 0;
  }

  #add({ shapes, rows }) {
    const known = shapes.map(ordered);
    for (const row of rows) {
      const key = keyOf(row);
      const found = { ...row, key, shape: known[row.shape], left: row.left ?? {} };
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

  // The rows that match, by node, each with the indexes of the devices that match; and how many devices are in each state.
  // The totals count all states, so that they say what another choice of a state would show.
  select({ driver = "", text = "", state = "" }, matches) {
    const wanted = text.trim().toLowerCase();
    const rank = state ? String(this.states.indexOf(state)) : "";
    const counts = new Map(this.states.map((each) => [each, 0]));
    const lines = [];
    for (const rows of this.#pools.values()) {
      for (const row of rows) {
        if (driver && row.driver !== driver) continue;
        const members = matches?.get(row.key);
        if (matches && !members) continue;
        const isNamed = !wanted || [row.node, row.pool, row.driver].some((each) => each.toLowerCase().includes(wanted));
        const cells = [];
        let free = 0;
        let all = 0;
        for (const index of row.shape.indexes) {
          if (members && !members.has(row.shape.devices[index])) continue;
          if (!isNamed && !row.shape.devices[index].toLowerCase().includes(wanted)) continue;
          const of = this.stateOf(row, index);
          counts.set(of, counts.get(of) + 1);
          all += 1;
          free += of === "free";
          if (!rank || row.states[index] === rank) cells.push(index);
        }
        if (cells.length) lines.push({ row, cells, free, all });
      }
    }
    lines.sort((a, b) => isPlace(a) - isPlace(b) || collator.compare(a.row.node, b.row.node) || collator.compare(a.row.key, b.row.key));
    return { lines, counts };
  }
}

// Devices that several nodes reach come after the nodes.
const isPlace = ({ row }) => row.node === "all nodes" || row.node === "by selector" || row.node === "";

export function readMatches({ sets, pools }) {
  const members = sets.map((names) => new Set(names));
  return new Map(pools.map((each) => [keyOf(each), members[each.set]]));
}
