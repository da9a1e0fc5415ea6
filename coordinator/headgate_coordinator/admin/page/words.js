// Numbers as people read them, and elements made of text alone: nothing here, or anywhere else, parses markup.

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  let unit = 0;
  while (count >= (unit === 0 ? 1024 : 1000) && unit < SIZES.length - 1) {
    count /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || count >= 100 ? 0 : count >= 10 ? 1 : 2;
  return `${count.toFixed(digits)}\u202f${SIZES[unit]}`;
}

export function number(count) {
  if (count < 10000) {
    return String(Math.round(count));
  }
  const [amount, unit] = count < 1e6 ? [count / 1e3, "k"] : count < 1e9 ? [count / 1e6, "M"] : [count / 1e9, "G"];
  return `${amount.toFixed(amount >= 100 ? 0 : 1)}\u202f${unit}`;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) {
    return "–";
  }
  const amount = perSecond === 0 ? "0" : perSecond < 10 ? perSecond.toFixed(1) : number(perSecond);
  return `${amount}\u202f/s`;
}

export function duration(seconds) {
  if (seconds < 10) {
    return `${seconds.toFixed(1)}\u202fs`;
  }
  if (seconds < 120) {
    return `${Math.round(seconds)}\u202fs`;
  }
  const minutes = seconds / 60;
  return minutes < 120
    ? `${Math.round(minutes)}\u202fmin`
    : minutes < 2880 ? `${Math.round(minutes / 60)}\u202fh` : `${Math.round(minutes / 1440)}\u202fd`;
}

export function things(count, what) {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
}

// What of a destination is drawn: bytes, or messages where only they are limited. A gate counts what its callers count:
// bytes, or calls of size 1.
export function amounts(one) {
  const inMessages = one.limit_bytes === null && one.limit_messages !== null;
  const unit = inMessages ? "messages" : "bytes";
  const gate = one.kind === "gate";
  return {
    pending: one[`pending_${unit}`],
    leased: one[`leased_${unit}`],
    limit: one[`limit_${unit}`],
    sized: inMessages ? (count) => `${number(count)}\u202f${gate ? "calls" : "msg"}` : gate ? number : bytes,
  };
}

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) {
    made.className = className;
  }
  if (text) {
    made.textContent = text;
  }
  return made;
}

// Set text only when it is another: a reader that is being followed stays where it is.
export function say(where, text) {
  if (where.textContent !== text) {
    where.textContent = text;
  }
}
