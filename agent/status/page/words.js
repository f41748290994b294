// Numbers as people read them. Times are Unix seconds.

const UNITS = [["y", 365 * 86400], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const SIZES = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];
const grouped = new Intl.NumberFormat("en");

/** Return a count with its thousands set apart; a dash where there is none. */
export const count = (value) => (isKnown(value) ? grouped.format(value) : "–");

/** Return a count with its noun: "1 push", "2 pushes". */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** Return a time span: "450 ms", "3.2 s", "11 h 59 min", "1 d". */
export function span(seconds) {
  if (seconds > 0 && seconds < 1) return `${Math.ceil(seconds * 1000)} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  return wholeSpan(seconds);
}

/** Return the same in whole seconds, for what is told again and again. */
export function wholeSpan(seconds) {
  let rest = Math.max(Math.floor(seconds), 0);
  const first = UNITS.findIndex(([, size]) => rest >= size);
  const parts = UNITS.slice(first, first + 2).map(([unit, size]) => {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    return whole ? `${whole} ${unit}` : "";
  });
  return parts.filter(Boolean).join(" ") || "0 s";
}

/** Return how long ago a time was, for a column: "1 min ago". */
export function age(time, now) {
  const [number, unit] = wholeSpan(now - time).split(" ");
  return `${number} ${unit} ago`;
}

/** Return how long ago a time was, or how far ahead it is. */
export function distance(time, now) {
  return time > now ? `in ${wholeSpan(time - now)}` : `${wholeSpan(now - time)} ago`;
}

/** Return a size: "812 B", "2.1 kB". */
export function size(bytes) {
  if (!isKnown(bytes)) return "–";
  const [unit, one] = SIZES.find(([, one]) => bytes >= one) ?? ["B", 1];
  const value = bytes / one;
  return `${one > 1 && value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** Return a time of day as logs have it, with its date if that is another one than `now`'s. */
export function clock(time, now) {
  const [text, today] = [time, now].map((each) => new Date(each * 1000).toISOString());
  const isToday = text.slice(0, 10) === today.slice(0, 10);
  return isToday ? `${text.slice(11, 19)} UTC` : `${text.slice(0, 10)} ${text.slice(11, 16)} UTC`;
}

function isKnown(value) {
  return value !== null && value !== undefined;
}
