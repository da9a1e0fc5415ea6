// One call to a fragile service, within a limiter's limits, from Node 18 or newer without any package:
//   HEADGATE=http://127.0.0.1:8161,http://127.0.0.1:8162 node examples/lease.mjs llm acme
const nodes = (process.env.HEADGATE ?? "http://127.0.0.1:8161").split(",");
const headers = { "Content-Type": "application/json" };
if (process.env.HEADGATE_USER) headers.Authorization = "Basic " + btoa(process.env.HEADGATE_USER); // name:password

async function ask(limiter, what, body, more = {}) {
  let trouble;
  for (const node of [...nodes, ...nodes]) { // the next one answers where one is gone
    const url = `${node}/v1/limits/${encodeURIComponent(limiter)}/${what}`;
    const request = { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify(body) };
    const answer = await fetch(url, request).catch((error) => { trouble = error; });
    if (answer?.ok) return answer.json();
    if (answer) trouble = new Error((await answer.json()).detail);
    if (answer?.status < 500) break;
  }
  throw trouble;
}

export async function limited(limiter, amounts, key, work, { wait = 30, ttl = 10 } = {}) {
  // Under its own key the request is taken once, also where it is sent again because no answer came.
  const { hold } = await ask(limiter, "admit", { amounts, key, wait, ttl }, { "Idempotency-Key": crypto.randomUUID() });
  const renewing = setInterval(() => ask(limiter, "renew", { hold, ttl }).catch(console.error), ttl * 250);
  try {
    return await work((used) => ask(limiter, "settle", { hold, used }));
  } finally {
    clearInterval(renewing);
    await ask(limiter, "release", { hold });
  }
}

const [limiter, key] = process.argv.slice(2), { SECONDS = 1, TTL = 10 } = process.env;
console.log("waiting");
await limited(limiter, { slots: 1, tokens: 400 }, key, async (settle) => {
  console.log("held");
  await new Promise((done) => setTimeout(done, SECONDS * 1000));
  await settle({ tokens: 120 }); // the answer of the service says it
}, { ttl: Number(TTL) });
console.log("done");
