// The links of the policy: an arrow from a destination to another, and at which end it is held up.

import { element, number, rate, say } from "./words.js";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SIDES = {
  moves: ["moves", "good"],
  source: ["nothing to do", ""],
  target: ["target full", "bad"],
  rate: ["paced", "warn"],
  nobody: ["nobody", "bad"],
  stuck: ["stuck", "bad"],
};

export function showArrows(overview, open) {
  const where = $("arrows");
  $("arrows-section").hidden = overview.total === 0;
  const part = overview.links.length < overview.total ? `${number(overview.links.length)} of ${number(overview.total)}` : "";
  say($("arrows-count"), part || (overview.total ? number(overview.total) : ""));
  while (where.childElementCount > overview.links.length) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < overview.links.length) {
    where.append(makeArrow(open));
  }
  overview.links.forEach((one, at) => fillArrow(where.children[at], one));
}

function makeArrow(open) {
  const made = element("li");
  const arrow = element("div", "arrow");
  arrow.append(element("p", "rate"), drawing(), element("p", "backlog"));
  const side = element("p", "side");
  side.append(element("span", "tag"));
  const text = element("div", "sentence");
  text.append(element("p", "quiet facts-line"), element("p", "why"));
  made.append(end("from", open), arrow, end("to", open), side, text);
  return made;
}

function end(className, open) {
  const cell = element("p", className);
  const name = element("button", "link end");
  name.type = "button";
  name.addEventListener("click", () => open(name.textContent));
  cell.append(name, element("span", "end"));
  return cell;
}

// A line over the whole width, a head at its right end, and a mark where it is held up.
function drawing() {
  const made = shape("svg", { role: "img" });
  const head = shape("svg", { x: "100%", y: 8, overflow: "visible" });
  head.append(
    shape("path", { d: "M-12 -6 L0 0 L-12 6 Z" }), shape("rect", { class: "mark at-target", x: 2, y: -8, width: 3, height: 16 }),
  );
  const middle = shape("svg", { x: "50%", y: 8, overflow: "visible" });
  middle.append(
    shape("rect", { class: "mark at-middle", x: -6, y: -7, width: 4, height: 14 }),
    shape("rect", { class: "mark at-middle", x: 2, y: -7, width: 4, height: 14 }),
    shape("path", { class: "mark crossed", d: "M-7 -5 L-5 -7 L0 -2 L5 -7 L7 -5 L2 0 L7 5 L5 7 L0 2 L-5 7 L-7 5 L-2 0 Z" }),
  );
  made.append(
    shape("line", { x1: 0, y1: 8, x2: "96%", y2: 8 }), shape("circle", { class: "mark at-source", cx: 5, cy: 8, r: 5 }),
    head, middle,
  );
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, String(value));
  }
  return made;
}

function fillArrow(made, one) {
  const [from, arrow, to, side, text] = made.children;
  const [word, kind] = one.state === "ending" ? ["ending", "warn"] : SIDES[one.side] ?? [one.state, "warn"];
  made.dataset.link = one.link;
  made.dataset.side = one.side ?? "";
  fillEnd(from, one.source, true);
  fillEnd(to, one.target, one.site === "");
  const [moved, picture, backlog] = arrow.children;
  say(moved, rate(one.rate));
  say(backlog, one.backlog === null ? "–" : `backlog ${number(one.backlog)}`);
  picture.setAttribute("aria-label", `${one.source} to ${one.target}: ${word}`);
  say(side.firstChild, word);
  side.firstChild.className = `tag ${kind}`;
  const facts = [
    ...(one.name ? [`${one.kind} ${one.name}`] : []), ...(one.site ? [`site ${one.site}`] : []),
    ...(one.owner ? [`at ${one.owner}`] : []), ...(one.mark === null ? [] : [`mark ${one.mark}`]),
  ];
  say(text.children[0], facts.join(" · "));
  const why = one.remedy ? `${one.reason} — ${one.remedy}` : one.reason;
  say(text.children[1], why);
  text.children[1].hidden = !why;
}

// What is at another site has no page here.
function fillEnd(cell, name, here) {
  const [button, text] = cell.children;
  say(button, here ? name : "");
  say(text, here ? "" : name);
  button.hidden = !here;
  text.hidden = here;
}
