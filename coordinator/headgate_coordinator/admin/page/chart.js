// The last two minutes of a destination: a bar for each moment, pending below and leased on top, and its limit as a line.

const KEPT = 120; // seconds
const STEP = 2; // seconds that a bar stands for

export class History {
  #of = new Map();

  add(name, now, { pending, leased, limit }) {
    let kept = this.#of.get(name);
    if (!kept) {
      this.#of.set(name, (kept = []));
    }
    kept.push({ at: now, pending, leased, limit });
    while (kept[0].at < now - KEPT) {
      kept.shift();
    }
  }

  of(name) {
    return this.#of.get(name) ?? [];
  }

  // Forget those that were not seen for as long as anything is kept.
  forget(now) {
    for (const [name, kept] of this.#of) {
      if (kept.at(-1).at < now - KEPT) {
        this.#of.delete(name);
      }
    }
  }
}

export function draw(canvas, kept, now) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (!width || !height) {
    return;
  }
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const colour = colours();
  const most = Math.max(1, ...kept.map((one) => Math.max(one.pending + one.leased, one.limit ?? 0)));
  const up = (amount) => (amount / most) * (height - 3);
  const last = Math.floor(now / STEP);
  const bars = new Map();
  for (const one of kept) {
    bars.set(last - Math.floor(one.at / STEP), one); // of each step the last moment
  }
  const pitch = width / (KEPT / STEP);
  for (const [back, one] of bars) {
    const x = width - (back + 1) * pitch;
    const pending = up(one.pending);
    const leased = up(one.leased);
    const wide = Math.max(1, pitch - 0.75);
    pen.fillStyle = colour.pending;
    pen.fillRect(x, height - pending, wide, pending);
    pen.fillStyle = colour.leased;
    pen.fillRect(x, height - pending - leased, wide, leased);
    if (one.limit !== null) {
      pen.fillStyle = colour.limit;
      pen.fillRect(x, height - up(one.limit) - 1, pitch + 0.5, 1);
    }
  }
  pen.fillStyle = colour.line;
  pen.fillRect(0, height - 0.75, width, 0.75);
  canvas.dataset.bars = String(bars.size);
}

let known = null;
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => { known = null; });

function colours() {
  if (!known) {
    const style = getComputedStyle(document.documentElement);
    known = Object.fromEntries(
      ["pending", "leased", "limit", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
  }
  return known;
}
