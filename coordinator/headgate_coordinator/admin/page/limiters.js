// Limiters: each limit with its level, whether it is held off, who waits for which limit, and the keys that have most.

import { fillStrip, makeStrip } from "./strip.js";
import { duration, element, number, say, things } from "./words.js";

const $ = (id) => document.getElementById(id);
const TOP = 5;
const UNLIMITED = 2 ** 52;

export function showLimiters({ total, limiters }, open) {
  $("limiters-part").hidden = limiters.length === 0;
  say($("limiters-count"), total > limiters.length ? `${limiters.length} of ${number(total)}` : number(total));
  const where = $("limiters");
  fit(where, limiters.length, () => make(open));
  limiters.forEach((one, at) => fill(where.children[at], one));
}

function fit(where, count, made) {
  while (where.childElementCount > count) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < count) {
    where.append(made());
  }
}

function make(open) {
  const made = element("li");
  const first = element("p", "first");
  const name = element("button", "link");
  name.type = "button";
  name.addEventListener("click", () => open(name.textContent));
  first.append(name, element("span", "tags"));
  const keys = element("ol", "keys");
  made.append(
    first, element("p", "why"), element("ul", "limits"), element("p", "quiet facts-line"),
    element("p", "quiet facts-line"), keys,
    element("p", "quiet facts-line"),
  );
  return made;
}

function fill(made, one) {
  const { view } = one;
  const [first, why, limits, line, bands, keys, bound] = made.children;
  say(first.children[0], one.name);
  tag(first.children[1], [
    ...(view.held_off ? [[`held off ${duration(view.held_off)}`, "bad"]] : []),
    ...(view.waiting ? [[`${number(view.waiting)} waiting`, "bad"]] : []),
    ...(one.state === "full" && !view.held_off ? [["full", "warn"]] : []),
    ...(view.learning ? [["learning", "warn"]] : []),
  ]);
  say(why, one.state === "open" ? "" : one.reason);
  why.hidden = one.state === "open";
  const rows = [...view.limits.map((level) => ({ level })), ...view.shadows];
  fit(limits, rows.length, makeLimit);
  rows.forEach((row, at) => fillLimit(limits.children[at], row, one.waiting_for[row.level.name] ?? 0, one.name));
  say(line, [
    `${things(view.keys, "key")} in use`, `${number(view.admitted)} admitted`, `${number(view.refused)} refused`,
  ].join(" · "));
  say(bands, view.bands.map((use) => [
    `band ${use.band}: ${number(use.waiting)} waiting`, `${number(use.admitted)} admitted`,
    use.shed ? `${number(use.shed)} shed` : "",
  ].filter(Boolean).join(", ")).join(" · "));
  bands.hidden = view.bands.length === 0;
  const top = view.top.filter((use) => use.key !== null).slice(0, TOP);
  fit(keys, top.length, makeKey);
  keys.hidden = top.length === 0;
  top.forEach((use, at) => fillKey(keys.children[at], use));
  say(bound, one.looked_at && top.length ? `top of those looked at: ${one.looked_at}` : "");
  bound.hidden = bound.textContent === "";
}

function tag(where, tags) {
  if (where.textContent !== tags.map(([text]) => text).join("")) {
    where.replaceChildren(...tags.map(([text, kind]) => element("span", `tag ${kind}`, text)));
  }
}

function makeLimit() {
  const made = element("li");
  const meter = element("div", "meter");
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-valuemin", "0");
  meter.append(element("i", "pending"), element("i", "withheld"));
  made.append(element("span", "limit-name"), meter, element("span", "quiet facts-line"), makeStrip());
  return made;
}

// Of a shadow limit nobody waits: it says who would have.
function fillLimit(made, { level: limit, would_wait: would }, others, limiter) {
  const [name, meter, line, strip] = made.children;
  const waiting = would === undefined ? others : 0;
  say(name, would === undefined ? limit.name : `${limit.name} (shadow)`);
  const share = (part) => `${Math.max(0, Math.min(100, (100 * part) / limit.limit)).toFixed(2)}%`;
  meter.children[0].style.width = share(limit.taken);
  meter.children[1].style.width = share(Math.min(limit.withheld, limit.limit - limit.taken));
  const [what, later] = {
    rate: ["taken", limit.reset_after ? `whole again in ${duration(limit.reset_after)}` : ""],
    at_once: ["in flight", ""],
    quota: ["used", `begins anew in ${duration(limit.reset_after)}`],
  }[limit.form];
  const text = [
    `${number(limit.taken)} of ${limit.limit === UNLIMITED ? "unlimited" : number(limit.limit)} ${what}`,
    limit.withheld && limit.limit !== UNLIMITED ? `${number(limit.withheld)} withheld` : "", later,
    waiting ? `${number(waiting)} waiting` : "", would ? `${number(would)} would have waited` : "",
  ].filter(Boolean).join(" · ");
  meter.setAttribute("aria-valuenow", String(limit.taken));
  meter.setAttribute("aria-valuemax", String(limit.limit));
  meter.setAttribute("aria-valuetext", text);
  meter.setAttribute("aria-label", `${limit.name} of ${limiter}: share that is taken`);
  say(line, text);
  line.classList.toggle("bad", waiting > 0);
  fillStrip(strip, limiter, limit);
}

function makeKey() {
  const made = element("li");
  made.append(element("strong"), element("span", "quiet facts-line"));
  return made;
}

function fillKey(made, use) {
  say(made.children[0], use.key);
  say(made.children[1], [
    ...Object.entries({ ...use.taken, ...use.held }).map(([name, amount]) => `${name} ${number(amount)}`),
    use.waiting ? `${number(use.waiting)} waiting` : "", use.held_off ? `held off ${duration(use.held_off)}` : "",
  ].filter(Boolean).join(" · "));
}
