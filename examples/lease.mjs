// One call to a fragile service, within a limiter's limits, from Node 18 or newer without any package:
//   HEADGATE=http://127.0.0.1:8161,http://127.0.0.1:8162 node examples/lease.mjs llm acme
const nodes = (process.env.HEADGATE ?? "http://127.0.0.1:8161").split(",");
const headers = { "Content-Type": "application/json" };
if (process.env.HEADGATE_USER) headers.Authorization = "Basic " + btoa(process.env.HEADGATE_USER); // name:password

async function ask(limiter, what, body, more = {}) {
  let last;
  for (const node of [...nodes, ...nodes]) { // the next one answers where one is gone
    try {
      const url = `${node}/v1/limits/${encodeURIComponent(limiter)}/${what}`;
      const answer = await fetch(url, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) });
      const told = await answer.json();
      if (answer.ok) return told;
      last = Object.assign(new Error(told.detail), { status: answer.status });
      if (answer.status < 500) throw last;
    } catch (error) {
      if (error.status && error.status < 500) throw error;
      last = error;
    }
  }
  throw last;
}

export async function limited(limiter, amounts, key, work, { wait = 30, ttl = 10 } = {}) {
  // Under its own key the request is taken once, also where it is sent again because no answer came.
  const { hold } = await ask(limiter, "admit", { amounts, key, wait, ttl }, { "Idempotency-Key": crypto.randomUUID() });
  const renewing = setInterval(() => ask(limiter, "renew", { hold, ttl }).catch(console.error), ttl * 250);
  try {
    const { used, result } = await work();
    if (used) await ask(limiter, "settle", { hold, used });
    return result;
  } finally {
    clearInterval(renewing);
    await ask(limiter, "release", { hold });
  }
}

const [limiter, key] = process.argv.slice(2);
const seconds = Number(process.env.SECONDS ?? 1), ttl = Number(process.env.TTL ?? 10);
console.log("waiting");
console.log(await limited(limiter, { slots: 1, tokens: 400 }, key, async () => {
  console.log("held");
  await new Promise((done) => setTimeout(done, seconds * 1000));
  return { used: { tokens: 120 }, result: "done" };
}, { ttl }));
