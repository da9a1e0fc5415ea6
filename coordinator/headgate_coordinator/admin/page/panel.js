// One destination: why it is as it is, and what can be done about it.

import { Failed, askAbout } from "./ask.js";
import { draw } from "./chart.js";
import { Messages } from "./messages.js";
import { amounts, bytes, element, number, rate, say, things } from "./words.js";

const $ = (id) => document.getElementById(id);

export class Panel {
  #history;
  #changed;
  #name = null;
  #asking = false;
  #shown = null;
  #messages;
  targets = () => []; // names of destinations that messages may be moved to
  mayChange = false; // who only reads is offered nothing else

  constructor(history, changed) {
    this.#history = history;
    this.#changed = changed;
    this.#messages = new Messages(() => { changed(); this.refresh(); });
    const dialog = $("panel");
    $("panel-close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      this.#name = null;
      this.#messages.close();
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) {
        dialog.close(); // beside it
      }
    });
    $("do-block").addEventListener("click", () => this.#form("block-form", "block-reason"));
    $("do-browse").addEventListener("click", () => {
      this.#messages.mayChange = this.mayChange;
      this.#messages.open(this.#name, this.#shown.kind, this.targets());
    });
    $("do-purge").addEventListener("click", () => this.#form("purge-form", null));
    $("do-unblock").addEventListener("click", () => this.#do("/unblock", undefined, () => "It may go on."));
    for (const cancel of dialog.querySelectorAll("[data-cancel]")) {
      cancel.addEventListener("click", () => this.#form(null));
    }
    $("block-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#do("/block", { reason: $("block-reason").value }, () => "Nobody may send until it is unblocked.");
    });
    $("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.refresh();
    });
    $("purge-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#do("/purge", undefined, (done) => `${things(done.messages, "message")} removed.`);
    });
  }

  open(name) {
    this.#name = name;
    this.#shown = null;
    this.#messages.close();
    this.#form(null);
    say($("panel-name"), name);
    for (const id of ["panel-kind", "panel-explain", "panel-status", "panel-state"]) {
      say($(id), "");
    }
    $("panel-facts").replaceChildren();
    $("panel-key").value = "";
    $("key-form").hidden = true;
    $("panel").showModal();
    this.refresh();
  }

  async refresh() {
    const name = this.#name;
    if (name === null || this.#asking) {
      return;
    }
    this.#asking = true;
    try {
      const key = $("panel-key").value;
      const view = key ? `/explain?${new URLSearchParams({ key })}` : "/explain";
      const [one, why] = await Promise.all([askAbout(name, ""), askAbout(name, view)]);
      if (name === this.#name) {
        this.#show(one, why.text);
      }
    } catch (error) {
      say($("panel-status"), error instanceof Failed ? error.message : "No answer from this node.");
    } finally {
      this.#asking = false;
      if (this.#name !== null && this.#name !== name) {
        this.refresh();
      }
    }
  }

  #show(one, text) {
    this.#shown = one;
    say($("panel-kind"), one.kind);
    say($("panel-state"), one.state);
    $("panel-state").dataset.state = one.state;
    say($("panel-explain"), text);
    const gate = one.kind === "gate"; // it counts what its callers count: bytes, or calls of size 1
    const [size, what] = gate ? [number, "call"] : [bytes, "message"];
    const limits = [
      ...(one.limit_bytes === null ? [] : [size(one.limit_bytes)]),
      ...(one.limit_messages === null ? [] : [things(one.limit_messages, what)]),
    ];
    const limiter = one.kind === "limiter";
    $("key-form").hidden = !limiter;
    this.#facts(limiter ? [
      ["Waiting", number(one.blocked)],
      ["Narrowest limit", one.used === null ? "–" : `${Math.round(100 * one.used)} % taken`],
    ] : [
      ["Pending", `${size(one.pending_bytes)}, ${things(one.pending_messages, what)}`],
      ["Leased", `${size(one.leased_bytes)}, ${things(one.leased_messages, what)}`],
      ["Limit", one.kind === "bucket"
        ? (one.rate === null ? "unlimited" : rate(one.rate))
        : limits.join(", ") || "unlimited"],
      ["Peak", size(one.peak_bytes)],
      ...(one.spooled_bytes ? [["Spooled", bytes(one.spooled_bytes)]] : []),
      ...(one.reference_bytes
        ? [["References", `${bytes(one.reference_bytes)} of ${
          one.limit_reference_bytes === null ? "unlimited" : bytes(one.limit_reference_bytes)}`]]
        : []),
      ...(one.later_messages
        ? [["For later", `${number(one.later_messages)}, the next in ${Math.ceil(one.next_due_s)} s`]]
        : []),
      ["Waiting senders", number(one.blocked)],
      ["Consumers", number(one.consumers)],
      ["In / out", `${rate(one.in_per_second)} / ${rate(one.out_per_second)}`],
      ["Dropped", things(one.dropped_messages, "message")],
      ...(one.would_wait
        ? [["Would have waited", Object.entries(one.shadowed).map(([of, times]) => `${number(times)} for ${of}`).join(", ")]]
        : []),
    ]);
    $("do-block").hidden = !this.mayChange || one.stopped !== "";
    $("do-unblock").hidden = !this.mayChange || one.stopped === "";
    const stores = one.kind === "queue" || one.kind === "topic";
    $("do-purge").hidden = !this.mayChange || !stores;
    $("do-browse").hidden = !stores;
    say($("purge-question"), `Remove ${things(one.pending_messages, "message")} of this ${one.kind}, delivered ones `
      + "included? They cannot be brought back.");
    const now = Date.now() / 1000;
    $("panel-chart").hidden = limiter || one.kind === "bucket";
    draw($("panel-chart"), this.#history.of(one.name), now);
    $("panel-chart").setAttribute("aria-label", `Last two minutes; now ${amounts(one).sized(amounts(one).pending)} pending`);
  }

  #facts(pairs) {
    const list = $("panel-facts");
    if (list.childElementCount !== pairs.length) {
      list.replaceChildren(...pairs.map(([name]) => {
        const pair = element("div");
        pair.append(element("dt", "", name), element("dd"));
        return pair;
      }));
    }
    pairs.forEach(([, value], at) => say(list.children[at].lastChild, value));
  }

  #form(id, focus = null) {
    for (const form of ["block-form", "purge-form"]) {
      $(form).hidden = form !== id;
    }
    $("panel-actions").hidden = id !== null;
    say($("panel-status"), "");
    if (focus) {
      $(focus).value = "";
      $(focus).focus();
    }
  }

  async #do(what, body, report) {
    const name = this.#name;
    try {
      const answer = await askAbout(name, what, { method: "POST", body });
      this.#form(null);
      say($("panel-status"), report(answer));
    } catch (error) {
      say($("panel-status"), error instanceof Failed ? error.message : "No answer from this node; look whether it was done.");
    }
    this.#changed();
    this.refresh();
  }
}
