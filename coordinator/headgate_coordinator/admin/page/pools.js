// Pools: what is used of each limit that destinations share, who holds it, and who waits for more.

import { showMeters } from "./meters.js";
import { bytes, things } from "./words.js";

export function showPools(pools) {
  showMeters("pools", pools, (one) => ({
    waiting: things(one.waiting, "destination"),
    used: one.used,
    lent: Math.max(0, one.granted - one.used),
    words: ["used", "lent and not used"],
    facts: [
      one.full === null ? "" : `${Math.round(100 * one.full)} %`,
      things(one.members, "destination"), one.reserve ? `${bytes(one.reserve)} in reserve` : "", one.percent,
    ],
    holders: one.holders.length
      ? `held by ${one.holders.map((holder) => `${holder.destination} ${bytes(holder.held)}`).join(", ")}` : "",
  }));
}
