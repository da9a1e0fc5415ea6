#!/bin/sh
# Makes, once, what the services of compose.yaml share: a password of Redis, a token, and the user of Redis that the
# password is for. Each folder is a volume that only its readers mount. Nothing of it is on the host or in an image.
set -eu

: "${HEADGATE_NAMESPACE:?which namespace?}"
acl=${ACL_FOLDER:-/acl}                  # for Redis: users, with hashes of passwords
node=${NODE_FOLDER:-/credentials}        # for nodes: redis_password, admin_token
scrape=${SCRAPE_FOLDER:-/scrape}         # for Prometheus: admin_token

# The last file that is written says that all are there.
if [ -e "$scrape/admin_token" ]; then
    echo "first run: nothing to do"
    exit 0
fi

secret() { python -c 'import secrets; print(secrets.token_urlsafe(32))'; }

password=$(secret)
token=$(secret)
user=$(printf '%s\n' "$password" | headgate acl --role node --namespace "$HEADGATE_NAMESPACE" --password-stdin)
printf 'user default off\n%s\n' "$user" > "$acl/users.acl"
printf '%s' "$password" > "$node/redis_password"
printf '%s' "$token" > "$node/admin_token"
chmod 0444 "$acl/users.acl" "$node/redis_password" "$node/admin_token"
printf '%s' "$token" > "$scrape/admin_token.new"
chmod 0444 "$scrape/admin_token.new"
mv "$scrape/admin_token.new" "$scrape/admin_token"
echo "first run: made a user of Redis for namespace $HEADGATE_NAMESPACE, and a token"
