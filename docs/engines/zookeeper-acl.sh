#!/bin/sh
# Prints the commands that give the least rights to two ZooKeeper users: `leasehold` has the right to lock, and
# `leasehold-viewer` has the right to list and show locks. Pipe the output into `zkCli.sh -server HOST:PORT`, with a
# login that has the right to create the prefix.
#
#   sh zookeeper-acl.sh [PREFIX] < passwords | zkCli.sh -server HOST:PORT
#   sh zookeeper-acl.sh PATH lock < passwords | zkCli.sh -server HOST:PORT
#
# The second form is for a directory that is itself a lock: `layout=plain` with `path=PATH`.
#
# The passwords are two lines on standard input: the password of `leasehold`, then that of `leasehold-viewer`. No
# argument contains a password, and the output has only the digests. The script needs openssl. Programs that lock then
# use a URL like
#   zookeeper://leasehold:PASSWORD@HOST:PORT?acl=digest:leasehold-viewer:DIGEST:r
# The script prints its `acl=` too (on standard error). By this option `leasehold-viewer` can read the nodes that these
# programs create.
set -eu

prefix=${1:-/locks}
case ${2:-prefix} in
# c: `leasehold` creates the directories of names there. r: both users list them.
prefix) rights=cr ;;
# c, d: `leasehold` creates and deletes the nodes of its claims there. r: both users list them.
lock) rights=crd ;;
*)
	echo "the second argument must be lock, or absent" >&2
	exit 64
	;;
esac

digest() { # USER PASSWORD: prints the digest by which ZooKeeper identifies this login
	{ printf '%s:' "$1"; printf '%s' "$2"; } | openssl dgst -sha1 -binary | openssl base64
}

IFS= read -r locker
IFS= read -r viewer
of_locker=$(digest leasehold "$locker")
of_viewer=$(digest leasehold-viewer "$viewer")

# Rights on a directory or a node that `leasehold` creates belong to its login, and to the logins in `acl=`.
printf 'create %s "" digest:leasehold:%s:%s,digest:leasehold-viewer:%s:r\n' \
	"$prefix" "$of_locker" "$rights" "$of_viewer"
printf '# ?acl=digest:leasehold-viewer:%s:r\n' "$of_viewer" >&2
