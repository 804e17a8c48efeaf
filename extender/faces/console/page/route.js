// The state of the page is in its URL: #/VIEW/NAME/NAME?filter=value. So each state can be linked, and "back" works.

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a person has typed a percent sign
  }
};

export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, ...names] = path.split("/").map(decoded);
  return { view: view || "fleet", names, filters: Object.fromEntries(new URLSearchParams(query)), address: location.hash };
}

export function link(view, names = [], filters = {}) {
  const given = Object.entries(filters).filter(([, value]) => value);
  const query = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${[view, ...names].map(encodeURIComponent).join("/")}${query}`;
}

// Filters change in place: "back" leaves the view, not the last letter that was typed.
export function refine(route, filters) {
  history.replaceState(null, "", link(route.view, route.names, { ...route.filters, ...filters }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
