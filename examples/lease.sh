#!/bin/sh
# Run a command while one slot of a limiter is held, with curl alone:
#   HEADGATE=http://127.0.0.1:8161 examples/lease.sh llm acme pg_dump mydb
set -eu
limiter=${1:?a limiter} key=${2:?a key} && shift 2
node=${HEADGATE:-http://127.0.0.1:8161} ttl=10

ask() { # what, body; HEADGATE_USER is name:password
  curl -sS --fail-with-body --retry 3 ${HEADGATE_USER:+-u "$HEADGATE_USER"} -H 'Content-Type: application/json' \
    -d "$2" "$node/v1/limits/$limiter/$1"
}

answer=$(ask admit "{\"amounts\": {\"slots\": 1}, \"key\": \"$key\", \"wait\": 30, \"ttl\": $ttl}") ||
  { echo "not admitted: $answer" >&2; exit 75; }
hold=$(printf %s "$answer" | sed 's/.*"hold":"\([^"]*\)".*/\1/')
(while sleep 3 && kill -0 $$; do ask renew "{\"hold\": \"$hold\", \"ttl\": $ttl}"; done) >/dev/null &
renewing=$!
trap 'kill $renewing; ask release "{\"hold\": \"$hold\"}" >/dev/null' EXIT
"$@"
