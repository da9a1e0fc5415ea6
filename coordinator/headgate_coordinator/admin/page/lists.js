// What stands below the destinations: blocked senders, consumers at capacity or slow, links, nodes.

import { bytes, duration, element, number, rate, say, things } from "./words.js";

const $ = (id) => document.getElementById(id);

export function showLists(overview, open) {
  list("waiting", overview.waiting, (one) => ({
    head: one.link || one.session,
    tags: [[`in line ${duration(one.seconds)}`, "bad"]],
    destination: one.destination,
    facts: [`place ${one.place}`, `lacks ${one.kind === "gate" ? number(one.needs) : bytes(one.needs)}`],
    why: one.remedy ? `${one.reason} — ${one.remedy}` : one.reason,
  }), open);
  list("consumers", overview.consumers, (one) => ({
    head: one.link || one.consumer,
    tags: [...(one.slow ? [["slow", "bad"]] : []), ...(one.at_capacity ? [["at capacity", "warn"]] : [])],
    destination: one.destination,
    facts: [
      `holds ${things(one.messages, "message")}, ${bytes(one.bytes)}`, `window ${one.window}`,
      ...(one.rate === null ? [] : [`settles ${rate(one.rate)}`]),
    ],
    why: "",
  }), open);
  list("links", overview.links, (one) => ({
    head: one.client,
    tags: [
      [one.direction === "from client" ? "sends" : "receives", ""],
      ...(one.waiting_seconds === null ? [] : [[`waits ${duration(one.waiting_seconds)}`, "bad"]]),
    ],
    destination: one.destination,
    facts: [
      ...(one.user ? [`user ${one.user}`] : []), `credit ${number(one.link_credit)}`,
      `${number(one.unsettled)} unsettled`, `${things(one.messages, "message")}, ${bytes(one.bytes)}`,
    ],
    why: one.reason,
  }), open);
  say($("links-count"), overview.links_total ? number(overview.links_total) : "");
  list("nodes", overview.nodes.nodes, (one) => ({
    head: one.address,
    tags: [
      ...(one.id === overview.nodes.this ? [["this node", ""]] : []),
      [one.state, one.state === "ready" ? "good" : "warn"],
    ],
    destination: "",
    facts: [
      things(one.connections, "connection"), things(one.links, "link"), rate(one.messages_per_second),
      `up ${duration(Math.max(0, Date.now() / 1000 - one.started))}`, `heard ${duration(one.silent)} ago`, one.id,
    ],
    why: "",
  }), open);
}

function list(id, entries, describe, open) {
  const where = $(id);
  say($(`${id}-count`), entries.length ? number(entries.length) : "");
  $(`${id}-empty`).hidden = entries.length > 0;
  while (where.childElementCount > entries.length) {
    where.lastElementChild.remove();
  }
  while (where.childElementCount < entries.length) {
    where.append(entry(open));
  }
  entries.forEach((one, at) => fill(where.children[at], describe(one)));
}

function entry(open) {
  const made = element("li");
  const first = element("p", "first");
  const destination = element("button", "link");
  destination.type = "button";
  destination.addEventListener("click", () => open(destination.textContent));
  first.append(element("strong"), element("span", "tags"), destination);
  made.append(first, element("p", "quiet facts-line"), element("p", "why"));
  return made;
}

function fill(made, { head, tags, destination, facts, why }) {
  const [first, line, reason] = made.children;
  const [name, marks, link] = first.children;
  say(name, head);
  if (marks.textContent !== tags.map(([text]) => text).join("")) {
    marks.replaceChildren(...tags.map(([text, kind]) => element("span", `tag ${kind}`, text)));
  }
  say(link, destination);
  link.hidden = !destination;
  say(line, facts.join(" · "));
  say(reason, why);
  reason.hidden = !why;
}
