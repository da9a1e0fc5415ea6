// Pools: what is used of each limit that destinations share, who holds it, and who waits for more.

import { bytes, element, number, say, things } from "./words.js";

const $ = (id) => document.getElementById(id);

export function showPools(pools) {
  const where = $("pools");
  $("pools-part").hidden = pools.length === 0;
  say($("pools-count"), pools.length ? number(pools.length) : "");
  while (where.childElementCount > pools.length) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < pools.length) {
    where.append(make());
  }
  pools.forEach((one, at) => fill(where.children[at], one));
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

function fill(made, one) {
  const [first, meter, line, holders] = made.children;
  say(first.children[0], one.name);
  const tags = [
    ...(one.waiting ? [[`${things(one.waiting, "destination")} waiting`, "bad"]] : []),
    ...(one.learning ? [["learning", "warn"]] : []),
  ];
  if (first.children[1].textContent !== tags.map(([text]) => text).join("")) {
    first.children[1].replaceChildren(...tags.map(([text, kind]) => element("span", `tag ${kind}`, text)));
  }
  const unused = Math.max(0, one.granted - one.used);
  const full = one.limit ?? Math.max(1, one.granted);
  const share = (part) => `${Math.min(100, (100 * part) / Math.max(1, full)).toFixed(2)}%`;
  meter.classList.toggle("unlimited", one.limit === null);
  meter.children[0].style.width = share(one.used);
  meter.children[1].style.width = share(unused);
  meter.setAttribute("aria-valuenow", String(one.used));
  meter.setAttribute("aria-valuemax", String(full));
  meter.setAttribute("aria-valuetext", `${bytes(one.used)} used, ${bytes(unused)} lent and not used`);
  meter.setAttribute("aria-label", `${one.name}: share of its limit`);
  const percent = one.full === null ? "" : `${Math.round(100 * one.full)} %`;
  say(line, [
    `${bytes(one.used)} used + ${bytes(unused)} lent ${one.limit === null ? "· unlimited" : `of ${bytes(one.limit)}`}`,
    percent, things(one.members, "destination"), one.reserve ? `${bytes(one.reserve)} in reserve` : "", one.percent,
  ].filter(Boolean).join(" · "));
  say(holders, `held by ${one.holders.map((holder) => `${holder.destination} ${bytes(holder.held)}`).join(", ")}`);
  holders.hidden = one.holders.length === 0;
}
