#!/bin/sh
# Makes what the services of compose.yaml share: once a password of Redis and a token; each time the user of Redis that the
# password is for, since a new version may call more commands. Each folder is a volume that only its readers mount. Nothing
# of it is on the host or in an image.
set -eu

: "${HEADGATE_NAMESPACE:?which namespace?}"
acl=${ACL_FOLDER:-/acl}                  # for Redis: users, with hashes of passwords
node=${NODE_FOLDER:-/credentials}        # for nodes: redis_password, admin_token
scrape=${SCRAPE_FOLDER:-/scrape}         # for Prometheus: admin_token

secret() { python -c 'import secrets; print(secrets.token_urlsafe(32))'; }

# Writes a file whole, from standard input: whoever reads meanwhile has the old one.
put() {
    rm -f "$1.new"
    cat > "$1.new"
    chmod 0444 "$1.new"
    mv -f "$1.new" "$1"
}

# The last file that is written says that all are there.
if [ ! -e "$scrape/admin_token" ]; then
    password=$(secret)
    token=$(secret)
    printf '%s' "$password" | put "$node/redis_password"
    printf '%s' "$token" | put "$node/admin_token"
    printf '%s' "$token" | put "$scrape/admin_token"
    echo "made a password of Redis and an admin token"
fi

password=$(cat "$node/redis_password")
user=$(printf '%s\n' "$password" | headgate acl --role node --namespace "$HEADGATE_NAMESPACE" --functions --password-stdin)
# Nobody can log in as it, but what scripts wrote is loaded again with its rights: from Redis 7 on, without them, none of it.
printf 'user default off ~* &* +@all\n%s\n' "$user" | put "$acl/users.acl"
echo "made the user of Redis for namespace $HEADGATE_NAMESPACE"
