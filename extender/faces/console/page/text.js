// Text for people. Names and values come from others: characters that a reader cannot see, or that turn the direction of
// the text, are shown by their numbers. The rule is that of the service's tables (allocator/tools/printable.py).
import { html as template, svg as drawing } from "./lit-html.js";

const UNSEEN = /(?! )[\p{C}\p{Z}]/gu;
const SHORT = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

function escape(letter) {
  const digits = letter.codePointAt(0).toString(16);
  if (digits.length <= 2) return `\\x${digits.padStart(2, "0")}`;
  return digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

const clean = (text) => text.replace(UNSEEN, (letter) => SHORT[letter] ?? escape(letter));

const cleaned = (value) => (typeof value === "string" ? clean(value) : value);

// A template in which every text is cleaned. lit-html escapes markup; all views use this function and no other.
export const html = (strings, ...values) => template(strings, ...values.map(cleaned));

// The same for a part of a drawing.
export const svg = (strings, ...values) => drawing(strings, ...values.map(cleaned));

export const plural = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

export const number = (count) => count.toLocaleString("en-US");

// As kubectl and the tables of the service show an age: 95s, 5m12s, 3h5m, 30h, 6d3h, 40d.
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [60, 3600, 86400].map((each) => Math.floor(whole / each));
  if (minutes < 2) return `${whole}s`;
  if (hours < 3) return minutes < 10 && whole % 60 ? `${minutes}m${whole % 60}s` : `${minutes}m`;
  if (days < 2) return hours < 8 && minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  return days < 8 && hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
}

export const age = (created) => (created ? duration((Date.now() - Date.parse(created)) / 1000) : "");

// The time of day of a timestamp, in the reader's time zone, to the second.
export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");
