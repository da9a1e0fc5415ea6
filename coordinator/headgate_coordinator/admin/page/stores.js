// Spool stores: what each holds of its limit, and who waits for room in it.

import { showMeters } from "./meters.js";
import { things } from "./words.js";

export function showStores(stores) {
  showMeters("stores", stores, (one) => ({
    waiting: things(one.waiting, "session"),
    used: one.held,
    lent: one.leased,
    words: ["held", "leased"],
    facts: [things(one.segments, "segment"), `when full: ${one.when_full}`, one.url],
  }));
}
