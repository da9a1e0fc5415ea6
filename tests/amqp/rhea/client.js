// A rhea client that does what it is told and tells what happens: JSON lines in, JSON lines out.
//
// Every line that comes in names what to `do`; links and connections are called by names of the test's own. In values,
// {"$bytes": hex}, {"$data": hex}, {"$sequence": [...]} and {"$type": "uint", "value": 1} stand for what JSON has not.
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const readline = require("readline");
const rhea = require(`${process.env.RHEA_MODULES}/rhea`);

const connections = {};
const sessions = {};
const links = {};
const held = {}; // deliveries of each receiver that are not settled, oldest first
const pumps = {}; // what a sender is still to send, whenever it has credit

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const md5 = (buffer) => crypto.createHash("md5").update(buffer).digest("hex");

function shown(value) {
  if (Buffer.isBuffer(value)) {
    return value.length > 4096 ? { $md5: md5(value), size: value.length } : { $bytes: value.toString("hex") };
  }
  if (value === null || typeof value !== "object") return value;
  if (value.typecode === 0x75) return { $data: [].concat(value.content).map(shown) };
  if (value.typecode === 0x76) return { $sequence: shown(value.content) };
  if (value instanceof Date) return { $date: value.getTime() };
  if (Array.isArray(value)) return value.map(shown);
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, each]) => typeof each !== "function")
      .map(([name, each]) => [name, shown(each)]),
  );
}

function meant(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(meant);
  if ("$bytes" in value) return Buffer.from(value.$bytes, "hex");
  if ("$data" in value) return rhea.message.data_section(Buffer.from(value.$data, "hex"));
  if ("$sequence" in value) return rhea.message.sequence_section(meant(value.$sequence));
  if ("$date" in value) return new Date(value.$date);
  if ("$type" in value) return rhea.types[`wrap_${value.$type}`](meant(value.value));
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, meant(each)]));
}

const failure = (error) => error && { condition: error.condition || error.code, description: error.description || `${error.message || ""}` };

function watch(name, container) {
  const simple = ["connection_open", "connection_close", "connection_error", "disconnected", "session_close", "session_error"];
  for (const event of simple) {
    container.on(event, (context) => {
      const error = context.error || context.connection.error || (context.session && context.session.error);
      const properties = shown(context.connection.properties || {});
      tell({ event, connection: name, error: failure(error), properties, idle: context.connection.remote.open?.idle_time_out });
    });
  }
  container.on("error", (error) => tell({ event: "error", connection: name, error: failure(error) }));
  for (const side of ["sender", "receiver"]) {
    for (const event of ["open", "close", "error", "flow", "draining", "drained"]) {
      container.on(`${side}_${event}`, (context) => {
        const link = context[side];
        if (event === "flow") return;
        const { address, capabilities, dynamic } = (side === "sender" ? link.target : link.source) || {};
        tell({ event: `${side}_${event}`, link: link.called, error: failure(link.error), address, dynamic, capabilities,
          credit: link.credit, largest: Number(link.remote.attach?.max_message_size || 0) });
      });
    }
  }
  container.on("sendable", (context) => pump(context.sender));
  for (const event of ["accepted", "rejected", "released", "modified"]) {
    container.on(event, (context) => {
      if (!context.sender) return;
      tell({ event, link: context.sender.called, id: context.delivery.id, error: failure(context.delivery.remote_state?.error) });
    });
  }
  container.on("message", (context) => {
    const link = context.receiver;
    const { message, delivery } = context;
    if (link.drops) delivery.settled = true;
    else if (!delivery.settled && !delivery.remote_settled) held[link.called].push(delivery);
    tell({ event: "message", link: link.called, message: shown(message.toJSON()), settled: Boolean(delivery.remote_settled) });
    const answer = link.answers && message.reply_to;
    if (answer) {
      const reply = { to: answer, correlation_id: message.correlation_id ?? message.message_id, body: `re: ${message.body}` };
      context.connection.send(reply);
    }
  });
}

// rhea takes more than there is credit for, and what waits within it keeps up the other links of the session.
function pump(link) {
  const work = pumps[link.called];
  if (!work || work.busy || work.left === 0 || link.credit <= 0) return;
  const now = Math.min(work.left, link.credit);
  for (let sent = 0; sent < now; sent++) {
    link.send({ body: rhea.message.data_section(Buffer.alloc(work.size, 120)), ...work.more });
  }
  work.left -= now;
  work.busy = true; // until its credit is counted down
  setImmediate(() => {
    work.busy = false;
    pump(link);
  });
}

const commands = {
  connect({ name, ports, tls, cert, key, host = "127.0.0.1", ...options }) {
    const container = rhea.create_container({ id: options.container_id || name });
    watch(name, container);
    const own = cert && { cert: fs.readFileSync(cert), key: fs.readFileSync(key) };
    const trusted = tls && { ca: [fs.readFileSync(tls)], servername: "localhost", ...own };
    const { connect } = require(tls ? "tls" : "net");
    let attempts = 0;
    const where = () => ({ host, port: ports[attempts++ % ports.length], connect, options: { ...trusted } });
    connections[name] = container.connect({ reconnect: false, ...own, ...options, connection_details: where });
  },
  session({ connection, name }) {
    sessions[name] = connections[connection].create_session();
    sessions[name].begin();
  },
  sender({ connection, session, name, ...options }) {
    const link = (sessions[session] || connections[connection]).open_sender(meant({ name, ...options }));
    link.called = links[name] ? link.called : name;
    links[name] = link;
  },
  receiver({ connection, session, name, answers, called = name, ...options }) {
    held[called] = [];
    const link = (sessions[session] || connections[connection]).open_receiver(meant({ name, ...options }));
    Object.assign(link, { called, answers });
    links[called] = link;
  },
  send({ link, links: over = [link], messages }) {
    for (const each of over) for (const message of messages) links[each].send(meant(message));
  },
  large({ link, size }) {
    const body = crypto.randomBytes(size);
    tell({ event: "sent", link, md5: md5(body) });
    links[link].send({ body: rhea.message.data_section(body) });
  },
  pump({ link, total, size, more }) {
    pumps[link] = { left: total, size, more: meant(more || {}) };
    pump(links[link]);
  },
  relay({ connection, message }) {
    connections[connection].send(meant(message));
  },
  credit({ link, more }) {
    links[link].add_credit(more);
  },
  drain({ link, more = 0 }) {
    links[link].add_credit(more); // in one flow: once it has asked for a drain, it does so with each
    links[link].drain_credit();
  },
  cheat({ link }) {
    links[link].credit = 1e9; // whatever it was given
  },
  settle({ link, how, options, count = 1 }) {
    for (const delivery of held[link].splice(0, count)) delivery[how](options);
  },
  look({ link }) {
    tell({ event: "looked", link, credit: links[link].credit, left: pumps[link]?.left, unsettled: held[link]?.length });
  },
  close({ link, drop }) {
    links[link].close();
    // Of links that it has closed, rhea keeps a place in the session's window for what is not settled here, for ever.
    links[link].drops = drop;
    if (drop) for (const delivery of held[link].splice(0)) delivery.settled = true;
  },
  detach({ link }) {
    links[link].detach();
  },
  end({ connection }) {
    connections[connection].close();
  },
  destroy({ connection }) {
    connections[connection].socket.destroy();
  },
};

readline
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { do: what, ...rest } = JSON.parse(line);
    commands[what](rest);
  })
  .on("close", () => process.exit(0));
