// Pools: what is used of each limit that destinations share, who holds it, and who waits for more.

import { showMeters } from "./meters.js";
import { bytes, things } from "./words.js";

export function showPools(pools) {
  showMeters("pools", pools, (one) => ({
    waiting: things(one.waiting, "member"),
    isCut: [one.part_of, ...one.sites].some((part) => part?.stranded),
    used: one.used,
    lent: Math.max(0, one.granted - one.used),
    words: ["used", "lent and not used"],
    facts: [
      one.full === null ? "" : `${Math.round(100 * one.full)} %`,
      things(one.members, "member"), one.reserve ? `${bytes(one.reserve)} in reserve` : "", one.percent,
    ],
    holders: [
      one.part_of ? partOf(one.part_of) : "", ...one.sites.map(partAt),
      one.holders.length
        ? `held by ${one.holders.map((holder) => `${holder.destination} ${bytes(holder.held)}`).join(", ")}` : "",
    ].filter(Boolean).join(" · "),
  }));
}

const heard = (seconds) => seconds === null ? "never heard of" : `heard ${Math.round(seconds)} s ago`;

function partOf({ site, held, most, heard: at, confirmed, stranded, trouble, remedy }) {
  const of = most === null ? "" : ` of at most ${bytes(most)}`;
  return `holds ${bytes(held)}${of} of site ${site}, ${heard(at)}${stranded ? ", cut off" : confirmed ? "" : ", not confirmed"}${why(trouble, remedy)}`;
}

const why = (trouble, remedy) => `${trouble ? `: ${trouble}` : ""}${remedy ? `; ${remedy}` : ""}`;

function partAt({ site, held, most, least, weight, kept, heard: at, stranded, trouble, remedy }) {
  const terms = `${least ? `, at least ${bytes(least)}` : ""}${weight === 1 ? "" : `, weight ${weight}`}`;
  const has = `${bytes(held)}${kept ? ` + ${bytes(kept)} kept for it` : ""}`;
  return `site ${site}: ${has} of at most ${bytes(most)}${terms}, ${heard(at)}${stranded ? ", cut off" : ""}${why(trouble, remedy)}`;
}
