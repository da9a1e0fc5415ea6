#!/bin/sh
# Run a command while one slot of a limiter is held, with curl alone:
#   HEADGATE=http://127.0.0.1:8161 examples/lease.sh llm acme pg_dump mydb
set -eu
limiter=${1:?a limiter} key=${2:?a key} && shift 2
node=${HEADGATE:-http://127.0.0.1:8161} ttl=10

ask() { # what, body, options of curl; HEADGATE_USER is name:password
  what=$1 body=$2 && shift 2
  curl -sS --fail-with-body ${HEADGATE_USER:+-u "$HEADGATE_USER"} -H 'Content-Type: application/json' "$@" \
    -d "$body" "$node/v1/limits/$limiter/$what"
}

# Not with --retry: curl would wait out the Retry-After of a refusal, which may be hours.
answer=$(ask admit "{\"amounts\": {\"slots\": 1}, \"key\": \"$key\", \"wait\": 30, \"ttl\": $ttl}") ||
  { echo "not admitted: $answer" >&2; exit 75; }
hold=$(printf %s "$answer" | sed 's/.*"hold":"\([^"]*\)".*/\1/')
(while sleep 3 && kill -0 $$; do ask renew "{\"hold\": \"$hold\", \"ttl\": $ttl}" --retry 3; done) >/dev/null &
renewing=$!
trap 'kill $renewing; ask release "{\"hold\": \"$hold\"}" --retry 3 >/dev/null' EXIT
trap 'kill $command' INT TERM HUP # the slot is held until the command has ended
"$@" <&0 & command=$!
code=0 && wait $command || code=$?
while kill -0 $command 2>/dev/null; do wait $command || code=$?; done
exit $code
