// Deadlocks: each as its ring of waits, the last of which is for the first.

import { duration, element, number, say } from "./words.js";

const $ = (id) => document.getElementById(id);

export function showCycles(deadlocks, open) {
  const where = $("deadlocks");
  $("deadlocks-part").hidden = deadlocks.length === 0;
  say($("deadlocks-count"), deadlocks.length ? number(deadlocks.length) : "");
  const ids = deadlocks.map((one) => one.id);
  for (const made of [...where.children]) {
    if (!ids.includes(made.dataset.id)) {
      made.remove();
    }
  }
  deadlocks.forEach((one, at) => {
    let made = [...where.children].find((other) => other.dataset.id === one.id);
    if (!made) {
      made = entry(one, open);
    }
    if (where.children[at] !== made) {
      where.insertBefore(made, where.children[at] ?? null);
    }
    fill(made, one);
  });
}

function entry(one, open) {
  const made = element("li");
  made.dataset.id = one.id;
  const first = element("p", "first");
  first.append(element("strong"), element("span", "tags"));
  const ring = element("ol", "ring");
  const last = one.steps.length - 1;
  ring.append(...one.steps.map((step, at) => wait(step, at === last ? one.steps[0].name : "", open)));
  made.append(first, ring, element("p", "why"));
  return made;
}

// One wait, and where it leads: to the next, or back to the first, which is named.
function wait(step, first, open) {
  const made = element("li");
  made.title = step.text;
  const holds = step.kind === "queue" || step.kind === "topic";
  const party = element(holds ? "button" : "span", "party");
  party.append(element("i", "", step.kind), step.name);
  if (holds) {
    party.type = "button";
    party.addEventListener("click", () => open(step.name));
  }
  const others = step.others.length ? ` (or ${step.others.join(", ")})` : "";
  const arrow = element("span", "arrow", `waits for${holds ? "" : " room in"}${first ? ` ${first}` : ""}${others} `);
  arrow.append(element("b", first ? "back" : "", first ? "↺" : "→"));
  made.append(party, arrow);
  return made;
}

function fill(made, one) {
  const [first, , done] = made.children;
  const [title, tags] = first.children;
  const when = one.current
    ? `for ${duration(one.lasted_seconds)}`
    : `ended ${duration(one.unseen_seconds)} ago`;
  say(title, one.destinations.join(", "));
  const marks = `${when}|${one.action}`;
  if (tags.dataset.marks !== marks) {
    tags.dataset.marks = marks;
    tags.replaceChildren(element("span", `tag ${one.current ? "bad" : ""}`, when), element("span", "tag", one.action));
  }
  made.classList.toggle("ended", !one.current);
  say(done, one.done);
  done.hidden = !one.done;
}
