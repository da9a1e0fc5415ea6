// The live page: asks the node once a second what it shows, and shows it.

import { showArrows } from "./arrows.js";
import { Failed, ask, askForToken, hasToken } from "./ask.js";
import { History, draw } from "./chart.js";
import { showCycles } from "./cycles.js";
import { showLimiters } from "./limiters.js";
import { showLists } from "./lists.js";
import { showLosses } from "./losses.js";
import { Panel } from "./panel.js";
import { showPools } from "./pools.js";
import { showStores } from "./stores.js";
import { amounts, bytes, duration, element, number, rate, say } from "./words.js";

const EVERY = 1000; // ms
const PIECE = 100; // rows
const STALE = 3; // seconds after which figures are marked as old
const LARGEST_FIRST = new Set(["state", "used", "pending", "leased", "blocked", "consumers", "in", "out"]);

const $ = (id) => document.getElementById(id);
const history = new History();
const rows = new Map();
const view = { sort: "name", descending: false, limit: PIECE };
let timer = 0;
let asked = 0;
let heard = null; // when the last answer came, and the age that its figures had then
let order = "";

const panel = new Panel(history, soon);
panel.targets = () => [...rows.keys()];

function soon() {
  clearTimeout(timer);
  timer = setTimeout(poll, 0);
}

async function poll() {
  clearTimeout(timer);
  const mine = ++asked;
  if (document.hidden) {
    status("paused", "paused");
    return; // seen again, it asks
  }
  const query = new URLSearchParams({ sort: view.sort, descending: view.descending, limit: view.limit });
  if ($("search").value) {
    query.set("search", $("search").value);
  }
  if ($("only").checked) {
    query.set("only", "blocked");
  }
  let next = EVERY;
  try {
    const overview = await ask(`/overview?${query}`);
    if (mine !== asked) {
      return; // another question was asked meanwhile
    }
    heard = { at: performance.now(), age: overview.age_seconds };
    show(overview);
    panel.refresh();
  } catch (error) {
    if (mine !== asked) {
      return;
    }
    if (error instanceof Failed && error.status === 401) {
      status("waiting", "token needed");
      await askForToken(hasToken());
      next = 0;
    } else {
      trouble(error instanceof Failed ? error.message : "This node does not answer.");
    }
  }
  timer = setTimeout(poll, next);
}

function show(overview) {
  const now = Date.now() / 1000;
  say($("namespace"), overview.namespace);
  say($("version"), overview.version);
  panel.mayChange = overview.may_change;
  $("addresses").hidden = hasToken(); // a link bears none
  if (overview.trouble) {
    trouble(overview.trouble);
  } else {
    trouble("");
    status("live", "live");
    for (const one of overview.page.destinations) {
      history.add(one.name, now, amounts(one));
    }
    history.forget(now);
  }
  showLosses(overview.namespace, overview.losses, (name) => panel.open(name));
  showTotals(overview.totals);
  showRows(overview.page, now);
  showArrows(overview.policy_links, (name) => panel.open(name));
  showCycles(overview.deadlocks, (name) => panel.open(name));
  showLimiters(overview.limiters, (name) => panel.open(name));
  showPools(overview.pools);
  showStores(overview.stores);
  showLists(overview, (name) => panel.open(name));
  document.title = overview.totals.held_up ? `(${overview.totals.held_up}) Headgate` : "Headgate";
}

function showTotals(totals) {
  say($("total-destinations"), number(totals.destinations));
  say($("total-held"), number(totals.held_up));
  $("total-held").classList.toggle("bad", totals.held_up > 0);
  say($("total-blocked"), number(totals.blocked));
  $("total-blocked").classList.toggle("bad", totals.blocked > 0);
  say($("total-pending"), bytes(totals.pending_bytes));
  say($("total-leased"), bytes(totals.leased_bytes));
  say($("total-spooled"), bytes(totals.spooled_bytes));
  $("total-spooled").parentElement.hidden = totals.spooled_bytes === 0;
  say($("total-in"), rate(totals.in_per_second));
  say($("total-out"), rate(totals.out_per_second));
}

function showRows(page, now) {
  const names = page.destinations.map((one) => one.name);
  for (const [name, row] of rows) {
    if (!names.includes(name)) {
      row.remove();
      rows.delete(name);
    }
  }
  for (const one of page.destinations) {
    if (!rows.has(one.name)) {
      rows.set(one.name, makeRow(one.name));
    }
    fillRow(rows.get(one.name), one);
  }
  $("table").hidden = names.length === 0;
  $("empty").hidden = names.length > 0;
  const wanted = JSON.stringify(names);
  if (wanted !== order || $("rows").childElementCount !== names.length) {
    order = wanted;
    place(names.map((name) => rows.get(name)));
  }
  for (const one of page.destinations) {
    draw(rows.get(one.name).querySelector("canvas"), history.of(one.name), now);
  }
  const all = page.total === 0;
  say($("empty"), all ? "There are no destinations yet." : "No destination fits.");
  const part = names.length < page.matched || page.matched < page.total;
  say($("shown"), part ? `${names.length} of ${number(page.matched)} that fit, ${number(page.total)} in all` : "");
  $("more").hidden = names.length >= page.matched || view.limit >= 1000;
}

// Put rows in order, moving as few as possible: what has the focus keeps it.
function place(wanted) {
  const body = $("rows");
  wanted.forEach((row, at) => {
    if (body.children[at] !== row) {
      body.insertBefore(row, body.children[at] ?? null);
    }
  });
}

function makeRow(name) {
  const row = element("tr");
  row.dataset.name = name;
  const cell = (className, label) => {
    const made = element("td", className);
    made.dataset.label = label;
    row.append(made);
    return made;
  };
  const title = element("th", "name");
  title.scope = "row";
  row.append(title);
  const open = element("button", "link", name);
  open.type = "button";
  title.append(open, element("span", "kind"), element("p", "why"));
  cell("state-cell", "").append(element("span", "state"));
  const fill = cell("fill", "");
  const meter = element("div", "meter");
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-valuemin", "0");
  meter.append(element("i", "pending"), element("i", "leased"));
  fill.append(meter, element("p", "amount"), element("p", "amount spooled"));
  const canvas = element("canvas", "spark");
  canvas.setAttribute("role", "img");
  cell("history", "").append(canvas);
  for (const label of ["waiting", "consumers", "in", "out"]) {
    cell("number", label);
  }
  row.addEventListener("click", () => panel.open(name));
  return row;
}

function fillRow(row, one) {
  const [title, state, fill, past, waiting, consumers, into, out] = row.children;
  const { pending, leased, limit, sized } = amounts(one);
  say(title.children[1], one.kind);
  const why = one.stopped ? `stopped: ${one.stopped}` : one.state === "open" ? "" : one.reason;
  say(title.children[2], why);
  title.children[2].hidden = !why;
  say(state.firstChild, one.state);
  state.firstChild.dataset.state = one.state;
  const [meter, amount, spooled] = fill.children;
  const limiter = one.kind === "limiter"; // its limits stand below, each with a meter of its own
  const bucket = one.kind === "bucket" || limiter;
  const full = limit ?? Math.max(1, one.peak_bytes, pending + leased);
  const share = (part) => `${Math.min(100, (100 * part) / Math.max(1, full)).toFixed(2)}%`;
  meter.hidden = bucket;
  meter.classList.toggle("unlimited", limit === null);
  meter.children[0].style.width = share(pending);
  meter.children[1].style.width = share(leased);
  const text = limiter
    ? (one.used === null ? "" : `${Math.round(100 * one.used)} % of its narrowest limit`)
    : bucket
    ? `${one.rate === null ? "no limit" : rate(one.rate)}`
    : `${sized(pending)} + ${sized(leased)} ${limit === null ? "· unlimited" : `of ${sized(limit)}`}`;
  say(amount, text);
  say(spooled, one.spooled_bytes ? `${bytes(one.spooled_bytes)} spooled` : "");
  spooled.hidden = !one.spooled_bytes;
  meter.setAttribute("aria-valuenow", String(pending + leased));
  meter.setAttribute("aria-valuemax", String(full));
  meter.setAttribute("aria-valuetext", `${sized(pending)} pending, ${sized(leased)} leased`);
  meter.setAttribute("aria-label", `${one.name}: share of its limit`);
  past.firstChild.setAttribute("aria-label", `${one.name}: the last two minutes`);
  past.firstChild.hidden = bucket;
  say(waiting, number(one.blocked));
  waiting.classList.toggle("bad", one.blocked > 0);
  say(consumers, number(one.consumers));
  say(into, bucket ? "–" : rate(one.in_per_second));
  say(out, bucket ? "–" : rate(one.out_per_second));
  for (const [cell, amount] of [
    [waiting, one.blocked], [consumers, one.consumers], [into, one.in_per_second], [out, one.out_per_second],
  ]) {
    cell.classList.toggle("zero", !amount);
  }
}

function status(state, text) {
  $("status").dataset.state = state;
  say($("status").lastChild, text);
}

function trouble(text) {
  $("main").classList.toggle("old", text !== "");
  $("trouble").hidden = text === "";
  if (text) {
    const age = heard?.age == null ? null : heard.age + (performance.now() - heard.at) / 1000;
    status("stale", age === null ? "no figures" : `figures are ${duration(age)} old`);
    say($("trouble"), text);
  }
}

// While an answer does not come, say so before it fails.
setInterval(() => {
  const waited = heard === null ? 0 : (performance.now() - heard.at) / 1000;
  if (!document.hidden && waited > STALE && $("trouble").hidden && !$("ask-token").open) {
    trouble("This node does not answer.");
  }
}, EVERY);

function sortBy(column, turn) {
  if (turn && view.sort === column) {
    view.descending = !view.descending;
  } else {
    view.sort = column;
    view.descending = LARGEST_FIRST.has(column);
  }
  $("sort").value = column;
  showSort();
  soon();
}

function showSort() {
  for (const head of document.querySelectorAll("th[data-sort]")) {
    const mine = head.dataset.sort === view.sort;
    head.setAttribute("aria-sort", mine ? (view.descending ? "descending" : "ascending") : "none");
  }
}

for (const head of document.querySelectorAll("th[data-sort] button")) {
  head.addEventListener("click", () => sortBy(head.parentElement.dataset.sort, true));
}
$("sort").addEventListener("change", () => sortBy($("sort").value, false));
$("search").addEventListener("input", () => { view.limit = PIECE; soon(); });
$("only").addEventListener("change", () => { view.limit = PIECE; soon(); });
$("more").addEventListener("click", () => { view.limit = Math.min(1000, view.limit + PIECE); soon(); });
$("filter").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", soon);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, dialog")) {
    event.preventDefault();
    $("search").focus();
  }
});
showSort();
poll();
