#!/bin/sh
# Makes two users on an etcd with authentication:
#   leasehold         locks, and breaks locks
#   leasehold-viewer  lists and shows them, and nothing else
# Their passwords are read from the input, one a line, so that no process list shows them; etcdctl takes none with spaces.
# Where etcd is, and who you are there, it takes from its own variables:
#
#   export ETCDCTL_ENDPOINTS=https://etcd.example:2379 ETCDCTL_USER=root:...
#   sh etcd-role.sh /locks <two-passwords
#
# The argument is the prefix of the URLs, /locks by default.
set -eu
export ETCDCTL_API=3
prefix=${1:-/locks}

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

# The names, each a directory, and what belongs to leases and fences.
user leasehold
etcdctl role grant-permission leasehold readwrite --prefix "$prefix/"
etcdctl role grant-permission leasehold readwrite --prefix "leasehold/$prefix/"

user leasehold-viewer
etcdctl role grant-permission leasehold-viewer read --prefix "$prefix/"
