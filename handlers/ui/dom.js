// Elements, and how what is shown is changed without a flicker.

const svgNames = new Set(["svg", "g", "rect", "path", "line"]);
const svgSpace = document.querySelector("svg").namespaceURI; // the page has one, for the hatch of bars

// h makes an element. Attributes that are null, undefined or false are left out, and so are such children. All text is set
// as text.
export function h(name, attributes, ...children) {
  const element = svgNames.has(name) ? document.createElementNS(svgSpace, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

// show makes the children of an element equal to the given ones. It changes only what differs, so focus, selection, scroll
// positions and opened details stay.
export function show(element, ...children) {
  const wanted = h("div", null, ...children);
  morphChildren(element, wanted);
}

function morphChildren(is, wanted) {
  let at = is.firstChild;
  for (let next = wanted.firstChild; next; ) {
    const after = next.nextSibling;
    if (at && alike(at, next)) {
      morph(at, next);
      at = at.nextSibling;
    } else {
      is.insertBefore(next, at);
      if (at) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
      }
    }
    next = after;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// alike says whether a node can be turned into another one. Elements with a data-id are only themselves.
function alike(a, b) {
  return a.nodeName === b.nodeName && (a.nodeType !== Node.ELEMENT_NODE || a.dataset.id === b.dataset.id);
}

function morph(is, wanted) {
  if (is.nodeType === Node.TEXT_NODE) {
    if (is.data !== wanted.data) is.data = wanted.data;
    return;
  }
  for (const { name } of [...is.attributes]) {
    if (name !== "open" && !wanted.hasAttribute(name)) is.removeAttribute(name); // people open details
  }
  for (const { name, value } of wanted.attributes) {
    if (name !== "open" && is.getAttribute(name) !== value) is.setAttribute(name, value);
  }
  morphChildren(is, wanted);
}

const plain = new Intl.NumberFormat("en");

// count is a whole number with separators; "?" when it is unknown.
export function count(n) {
  return n === null || n === undefined ? "?" : plain.format(Math.round(n));
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

// about is a number in few characters: exact below a million.
export function about(n) {
  return n < 1e6 ? count(n) : short.format(n).replace(/([A-Z])$/, " $1").replace("B", "G");
}

// percent is a share in percent, with one decimal.
export function percent(share) {
  return (share * 100).toFixed(1) + " %";
}

// size is a number of bytes for people.
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "?";
  let unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    unit++;
  }
  return bytes.toFixed(unit > 0 && bytes < 100 ? 1 : 0) + " " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit];
}

// ms is a time in milliseconds for people.
export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return (value / 1000).toFixed(value < 10000 ? 2 : 1) + " s";
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0) + " ms";
}

// clock is the local time of day of a timestamp, with the date unless it is today.
export function clock(stamp) {
  const at = new Date(stamp);
  const day = at.toDateString() === new Date().toDateString() ? "" : at.toLocaleDateString("en-CA") + " ";
  return day + at.toLocaleTimeString("en-GB");
}

// span is a time in seconds in its two largest units.
export function span(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = Math.max(0, units.findIndex(([, n]) => seconds >= n));
  if (seconds < 1) return "0 s";
  return units.slice(first, first + 2).map(([unit, n]) => {
    const whole = Math.floor(seconds / n);
    seconds -= whole * n;
    return whole ? whole + " " + unit : "";
  }).filter(Boolean).join(" ");
}

// badge is a word with a mark; its kind, ok, warn, bad or off, decides about the colour and the mark.
export function badge(kind, text, title) {
  const marks = { ok: "✓", warn: "!", bad: "✕", off: "–" };
  return h("span", { class: "badge " + kind, title }, h("span", { class: "mark", "aria-hidden": "true" }, marks[kind]), text);
}
