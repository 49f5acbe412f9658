#!/bin/sh
# Prints what an operator tells ZooKeeper so that programs can lock there with the least rights, for two users: `leasehold`, who
# locks, and `leasehold-viewer`, who looks. To be piped into `zkCli.sh -server HOST:PORT` of somebody who may create the path.
#
#   sh zookeeper-acl.sh [PREFIX] < passwords | zkCli.sh -server HOST:PORT
#
# The passwords are two lines on standard input: of the first user, then of the second. They stand in no argument; what is printed
# has their digests. Needs openssl. Lockers then use a URL like
#   zookeeper://leasehold:PASSWORD@HOST:PORT?acl=digest:leasehold-viewer:DIGEST:r
# which is printed too, so that the viewer sees what they make.
set -eu

prefix=${1:-/locks}

digest() { # USER, and a password on standard input: what ZooKeeper calls them
	{ printf '%s:' "$1"; printf '%s' "$2"; } | openssl dgst -sha1 -binary | openssl base64
}

IFS= read -r locker
IFS= read -r viewer
of_locker=$(digest leasehold "$locker")
of_viewer=$(digest leasehold-viewer "$viewer")

# c: the directories of names are made there. r: they are listed. Directories and nodes belong to who makes them.
printf 'create %s "" digest:leasehold:%s:cr,digest:leasehold-viewer:%s:r\n' "$prefix" "$of_locker" "$of_viewer"
printf '# ?acl=digest:leasehold-viewer:%s:r\n' "$of_viewer" >&2
