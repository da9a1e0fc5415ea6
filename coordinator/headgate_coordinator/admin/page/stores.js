// Spool stores: what each holds of its limit, and who waits for room in it.

import { bytes, element, number, say, things } from "./words.js";

const $ = (id) => document.getElementById(id);

export function showStores(stores) {
  const where = $("stores");
  $("stores-part").hidden = stores.length === 0;
  say($("stores-count"), stores.length ? number(stores.length) : "");
  while (where.childElementCount > stores.length) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < stores.length) {
    where.append(make());
  }
  stores.forEach((one, at) => fill(where.children[at], one));
}

function make() {
  const made = element("li");
  const first = element("p", "first");
  first.append(element("strong"), element("span", "tags"));
  const meter = element("div", "meter");
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-valuemin", "0");
  meter.append(element("i", "pending"), element("i", "leased"));
  made.append(first, meter, element("p", "quiet facts-line"));
  return made;
}

function fill(made, one) {
  const [first, meter, line] = made.children;
  say(first.children[0], one.name);
  const tags = [
    ...(one.waiting ? [[`${things(one.waiting, "session")} waiting`, "bad"]] : []),
    ...(one.learning ? [["learning", "warn"]] : []),
  ];
  if (first.children[1].textContent !== tags.map(([text]) => text).join("")) {
    first.children[1].replaceChildren(...tags.map(([text, kind]) => element("span", `tag ${kind}`, text)));
  }
  const full = one.limit ?? Math.max(1, one.held + one.leased);
  const share = (part) => `${Math.min(100, (100 * part) / Math.max(1, full)).toFixed(2)}%`;
  meter.classList.toggle("unlimited", one.limit === null);
  meter.children[0].style.width = share(one.held);
  meter.children[1].style.width = share(one.leased);
  meter.setAttribute("aria-valuenow", String(one.held));
  meter.setAttribute("aria-valuemax", String(full));
  meter.setAttribute("aria-valuetext", `${bytes(one.held)} held, ${bytes(one.leased)} leased`);
  meter.setAttribute("aria-label", `${one.name}: share of its limit`);
  say(line, [
    `${bytes(one.held)} held + ${bytes(one.leased)} leased ${one.limit === null ? "· unlimited" : `of ${bytes(one.limit)}`}`,
    things(one.segments, "segment"), `when full: ${one.when_full}`, one.url,
  ].join(" · "));
}
