// A limit that adapts, over the last looks at it: the limit, what is in flight, and the share that met an overload.

import { duration, element, number, say } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const LOOKS = 60;
const HEIGHT = 30;
const REASONS = {
  start: "nothing was too much so far", grow: "nothing was too much", overload: "too many met an overload",
  slow: "holds took longer than without a queue", probe: "to see the time without a queue",
};

export function makeStrip() {
  const made = element("div", "strip");
  const drawing = shape("svg", { viewBox: `0 0 ${LOOKS} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  drawing.append(
    shape("polygon", { class: "in-flight" }), shape("path", { class: "overloads" }), shape("polyline", { class: "limit-line" }),
  );
  made.append(drawing, element("p", "quiet facts-line"));
  return made;
}

export function fillStrip(made, limiter, limit) {
  const one = limit.adapting;
  made.hidden = !one;
  if (!one) {
    return;
  }
  const of = `${limiter} ${limit.name}`;
  if (made.dataset.of !== of) {
    made.dataset.of = of;
    made.looks = [];
  }
  const last = made.looks.at(-1);
  const ended = (word) => (last ? Math.max(0, one.outcomes[word] - last.outcomes[word]) : 0);
  const [ok, overload] = [ended("ok"), ended("overload")];
  const share = ok + overload ? overload / (ok + overload) : 0;
  made.looks = [...made.looks, { limit: limit.limit, taken: limit.taken, share, outcomes: one.outcomes }].slice(-LOOKS);
  draw(made.children[0], made.looks, of);
  say(made.children[1], [
    `adapts from ${number(one.floor)} to ${number(one.ceiling)} (${one.adapt})`,
    one.reason in REASONS ? `${duration(one.ago)} ago from ${number(one.before)}: ${REASONS[one.reason]}` : "",
    ok + overload ? `${(100 * (1 - share)).toFixed(0)} % ok, ${(100 * share).toFixed(0)} % overload` : "",
  ].filter(Boolean).join(" · "));
}

function draw(drawing, looks, of) {
  const [flight, overloads, line] = drawing.children;
  const most = Math.max(1, ...looks.map((look) => Math.max(look.limit, look.taken)));
  const x = (at) => LOOKS - looks.length + at + 0.5;
  const y = (amount) => (HEIGHT - 1 - ((HEIGHT - 3) * amount) / most).toFixed(2);
  line.setAttribute("points", looks.map((look, at) => `${x(at)},${y(look.limit)}`).join(" "));
  const top = looks.map((look, at) => `${x(at)},${y(look.taken)}`).join(" ");
  flight.setAttribute("points", `${x(0)},${HEIGHT} ${top} ${x(looks.length - 1)},${HEIGHT}`);
  overloads.setAttribute("d", looks.map((look, at) => (
    look.share ? `M${x(at)} ${HEIGHT} V${(HEIGHT - Math.max(2, HEIGHT * look.share)).toFixed(2)}` : ""
  )).join(""));
  drawing.setAttribute("aria-label", `${of}: limit, in flight and overloads, over the last ${looks.length} looks`);
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}
