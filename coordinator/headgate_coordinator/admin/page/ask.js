// Requests to the node, with its token. It is kept for the tab, sent as a header, and never in an address.

const KEY = "headgate-token";
const PATIENCE = 5000; // ms

export class Failed extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function hasToken() {
  return sessionStorage.getItem(KEY) !== null;
}

export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token) {
    headers.Authorization = `Bearer ${token}`;
  }
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(`/api/v1${path}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE),
  });
  const content = await answer.json();
  if (!answer.ok) {
    throw new Failed(answer.status, content.detail ?? `the node answered ${answer.status}`);
  }
  return content;
}

export function askAbout(name, what, options) {
  return ask(`/destinations/${encodeURIComponent(name)}${what}`, options);
}

// Resolves once a token was given; whether it is right is seen by the next request.
export function askForToken(wrong) {
  const dialog = document.getElementById("ask-token");
  const form = document.getElementById("token-form");
  const input = document.getElementById("token");
  document.getElementById("token-status").textContent = wrong ? "That is not the token." : "";
  return new Promise((resolve) => {
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, input.value.trim());
      input.value = "";
      dialog.close();
      resolve();
    }, { once: true });
    if (!dialog.open) {
      dialog.showModal();
    }
    input.focus();
  });
}
