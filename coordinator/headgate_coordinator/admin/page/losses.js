// What Redis may have lost within the last day, until somebody says, in this browser, that they know.

import { duration, element, number, say, things } from "./words.js";

const KEY = "headgate-losses-known";
const SHOWN = 5;
const $ = (id) => document.getElementById(id);
let unknown = []; // [place, mark] of those that are shown

export function showLosses(namespace, losses, open) {
  const known = read();
  const shown = losses.filter((one) => known[place(namespace, one)] !== mark(one));
  unknown = shown.map((one) => [place(namespace, one), mark(one)]);
  $("losses-part").hidden = shown.length === 0;
  if (shown.length === 0) {
    return;
  }
  const lost = shown.reduce((sum, one) => sum + one.messages, 0);
  say($("losses-title"), lost ? `Redis lost ${things(lost, "message")}` : "Redis may have lost its last writes");
  const where = $("losses");
  const few = shown.slice(0, SHOWN);
  while (where.childElementCount > few.length) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < few.length) {
    where.append(entry(open));
  }
  few.forEach((one, at) => fill(where.children[at], one));
  say($("losses-more"), shown.length > SHOWN ? `and ${number(shown.length - SHOWN)} more destinations` : "");
}

function entry(open) {
  const made = element("li");
  const name = element("button", "link");
  name.type = "button";
  name.addEventListener("click", () => open(name.textContent));
  made.append(name, element("span"));
  return made;
}

function fill(made, one) {
  const [name, text] = made.children;
  const when = new Date(1000 * one.at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const what = one.messages
    ? `${things(one.messages, "message")} that senders have receipts for; consumers may have had some`
    : "nothing is known to be missing";
  say(name, one.destination);
  say(text, ` ${what} · ${when}, ${duration(one.age_seconds)} ago`);
}

$("losses-known").addEventListener("click", () => {
  const known = read();
  for (const [where, what] of unknown) {
    delete known[where];
    known[where] = what; // as the latest
  }
  try {
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(Object.entries(known).slice(-1000))));
  } catch {
    // nothing is kept where the browser keeps nothing: it is shown again
  }
  $("losses-part").hidden = true;
});

function place(namespace, one) {
  return `${namespace}/${one.destination}`;
}

function mark(one) {
  return `${one.epoch}:${one.messages}`; // more that is found to be lost is news
}

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
}
