// Lists of limits with a meter each: pools and spool stores.

import { bytes, element, number, say } from "./words.js";

const $ = (id) => document.getElementById(id);

// name: of the part of the page. describe(one): what differs between them, with words for what is used and lent.
export function showMeters(name, limits, describe) {
  const where = $(name);
  $(`${name}-part`).hidden = limits.length === 0;
  say($(`${name}-count`), limits.length ? number(limits.length) : "");
  while (where.childElementCount > limits.length) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < limits.length) {
    where.append(make());
  }
  limits.forEach((one, at) => fill(where.children[at], one, describe(one)));
}

function make() {
  const made = element("li");
  const first = element("p", "first");
  first.append(element("strong"), element("span", "tags"));
  const meter = element("div", "meter");
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-valuemin", "0");
  meter.append(element("i", "pending"), element("i", "leased"));
  made.append(first, meter, element("p", "quiet facts-line"), element("p", "quiet facts-line holders"));
  return made;
}

function fill(made, one, { waiting, used, lent, words, facts, holders = "", isCut = false }) {
  const [first, meter, line, last] = made.children;
  say(first.children[0], one.name);
  const tags = [
    ...(one.waiting ? [[`${waiting} waiting`, "bad"]] : []),
    ...(one.learning ? [["learning", "warn"]] : []),
    ...(isCut ? [["cut off", "warn"]] : []),
  ];
  if (first.children[1].textContent !== tags.map(([text]) => text).join("")) {
    first.children[1].replaceChildren(...tags.map(([text, kind]) => element("span", `tag ${kind}`, text)));
  }
  const full = one.limit ?? Math.max(1, used + lent);
  const share = (part) => `${Math.min(100, (100 * part) / Math.max(1, full)).toFixed(2)}%`;
  meter.classList.toggle("unlimited", one.limit === null);
  meter.children[0].style.width = share(used);
  meter.children[1].style.width = share(lent);
  meter.setAttribute("aria-valuenow", String(used));
  meter.setAttribute("aria-valuemax", String(full));
  meter.setAttribute("aria-valuetext", `${bytes(used)} ${words[0]}, ${bytes(lent)} ${words[1]}`);
  meter.setAttribute("aria-label", `${one.name}: share of its limit`);
  const limit = one.limit === null ? "· unlimited" : `of ${bytes(one.limit)}`;
  say(line, [
    `${bytes(used)} ${words[0]} + ${bytes(lent)} ${words[1].split(" ")[0]} ${limit}`, ...facts,
  ].filter(Boolean).join(" · "));
  say(last, holders);
  last.hidden = holders === "";
}
