// The stored messages of the destination in the panel: looked at, and one by one moved or deleted.

import { Failed, askAbout } from "./ask.js";
import { bytes, element, say } from "./words.js";

const PIECE = 20;
const $ = (id) => document.getElementById(id);

export class Messages {
  #changed;
  #name = null;
  #kind = "";
  #wanted = null; // what the form asks: { id, to: whether it is moved }
  mayChange = false;

  constructor(changed) {
    this.#changed = changed;
    $("messages-more").addEventListener("click", () => this.#show($("messages").lastElementChild?.dataset.id));
    $("message-cancel").addEventListener("click", () => this.#form(null));
    $("message-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#do();
    });
  }

  close() {
    this.#name = null;
    $("messages-part").hidden = true;
  }

  async open(name, kind, targets) {
    this.#name = name;
    this.#kind = kind;
    $("message-targets").replaceChildren(...targets.filter((one) => one !== name).map((one) => {
      const option = element("option");
      option.value = one;
      return option;
    }));
    $("messages-part").hidden = false;
    this.#form(null);
    say($("message-status"), "");
    await this.#show();
  }

  async #show(after) {
    const name = this.#name;
    const query = new URLSearchParams({ limit: PIECE, ...(after ? { after } : {}) });
    try {
      const found = await askAbout(name, `/messages?${query}`);
      if (name !== this.#name) {
        return; // another destination was opened meanwhile
      }
      const rows = found.messages.map((one) => this.#row(one));
      if (after) {
        $("messages").append(...rows);
      } else {
        $("messages").replaceChildren(...rows);
      }
      $("messages-empty").hidden = $("messages").childElementCount > 0;
      $("messages-more").hidden = !found.more;
    } catch (error) {
      say($("message-status"), error instanceof Failed ? error.message : "No answer from this node.");
    }
  }

  #row(one) {
    const row = element("li");
    row.dataset.id = one.id;
    const first = element("p", "first");
    first.append(element("strong", "", one.id), element("span", "quiet", bytes(one.bytes)));
    if (this.mayChange) {
      if (this.#kind === "queue") {
        first.append(this.#button("Move…", one.id, true));
      }
      first.append(this.#button("Delete…", one.id, false));
    }
    const when = [
      ...(one.due_ms === null ? [] : [`due ${new Date(one.due_ms).toLocaleString()}`]),
      ...(one.expires_ms === null ? [] : [`expires ${new Date(one.expires_ms).toLocaleString()}`]),
      ...Object.entries(one.headers).map(([header, value]) => `${header}: ${value}`),
    ];
    row.append(first, element("p", "quiet facts-line", when.join(" · ")));
    row.append(element("pre", "body", one.trouble || (one.text === null ? "(bytes that are no text)" : one.text)));
    return row;
  }

  #button(text, id, moves) {
    const button = element("button", moves ? "" : "danger", text);
    button.type = "button";
    button.dataset.does = moves ? "move" : "delete";
    button.setAttribute("aria-label", `${moves ? "Move" : "Delete"} message ${id}`);
    button.addEventListener("click", () => this.#form({ id, moves }));
    return button;
  }

  #form(wanted) {
    this.#wanted = wanted;
    $("message-form").hidden = wanted === null;
    if (wanted === null) {
      return;
    }
    say($("message-status"), "");
    say($("message-question"), wanted.moves
      ? `Move message ${wanted.id} to the end of another queue or topic?`
      : `Delete message ${wanted.id}? It cannot be brought back.`);
    $("message-to-label").hidden = !wanted.moves;
    $("message-to").required = wanted.moves;
    $("message-to").value = "";
    say($("message-do"), wanted.moves ? "Move message" : "Delete message");
    $("message-do").classList.toggle("danger", !wanted.moves);
    $(wanted.moves ? "message-to" : "message-do").focus();
  }

  async #do() {
    const { id, moves } = this.#wanted;
    const to = $("message-to").value;
    try {
      await askAbout(this.#name, `/messages/${moves ? "move" : "delete"}`, { method: "POST", body: moves ? { id, to } : { id } });
      say($("message-status"), moves ? `Message ${id} is at ${to}.` : `Message ${id} is deleted.`);
      this.#form(null);
    } catch (error) {
      say($("message-status"), error instanceof Failed ? error.message : "No answer from this node; look whether it was done.");
    }
    this.#changed();
    await this.#show();
  }
}
