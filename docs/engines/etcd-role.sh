#!/bin/sh
# Makes two users on an etcd with authentication:
#   leasehold         has the right to lock, and to break locks
#   leasehold-viewer  has the right to list and show locks, and no other right
# The script reads the two passwords from standard input, one per line, so that no process list shows them. A password
# must not contain spaces, because etcdctl does not accept it. etcdctl reads the address of etcd and your own login from
# its environment variables:
#
#   export ETCDCTL_ENDPOINTS=https://etcd.example:2379 ETCDCTL_USER=root:...
#   sh etcd-role.sh /locks <two-passwords
#
# The argument is the prefix in the URLs of leasehold, /locks by default. For URLs with layout=key write the word key
# after the prefix, here for the keys /lock/a and /lock/b:
#
#   sh etcd-role.sh /lock/ key <two-passwords
set -eu
export ETCDCTL_API=3
prefix=${1:-/locks}
case ${2:-directory} in
directory) keys=$prefix/ ;;
key) keys=$prefix ;;
*)
    echo "the second argument is key, or missing" >&2
    exit 1
    ;;
esac

user() {
    IFS= read -r password
    case $password in
    '' | *[[:space:]]*)
        echo "a password for $1 is missing, or has spaces" >&2
        exit 1
        ;;
    esac
    printf '%s\n' "$password" | etcdctl user add "$1" --interactive=false
    etcdctl role add "$1"
    etcdctl user grant-role "$1" "$1"
}

# The first prefix has a directory for each name, or the lock keys; the second has the keys of leases, fences
# and memos, and with layout=key the queues.
user leasehold
etcdctl role grant-permission leasehold readwrite --prefix "$keys"
etcdctl role grant-permission leasehold readwrite --prefix "leasehold/$prefix/"

user leasehold-viewer
etcdctl role grant-permission leasehold-viewer read --prefix "$keys"
if [ "${2:-}" = key ]; then
    etcdctl role grant-permission leasehold-viewer read --prefix "leasehold/$prefix/key/"
fi
