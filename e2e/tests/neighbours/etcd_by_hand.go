// A program that shares the key of a lock with other programs, and records its sections. It locks by hand with etcd's
// client: one transaction creates the key if it is absent, on a lease that is not renewed, and the end of the lease
// releases.
//
// usage: etcd_by_hand PORT KEY TTL DIRECTORY WHO
//
// TTL is in milliseconds. All programs share the directory: see e2e/src/turns.rs.
package main

import (
	"context"
	"os"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	port, key, directory, who := os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	millis, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	ttl := time.Duration(millis) * time.Millisecond
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"127.0.0.1:" + port},
		DialTimeout: 10 * time.Second,
	})
	must(err)
	defer client.Close()
	journal := openJournal(directory, who)
	for !journal.isOver() {
		// The lease counts from before the request.
		begun := time.Now()
		lease, ok := lock(client, key, int64(ttl/time.Second))
		if !ok {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		// This program renews no lease, so it leaves its section before the lease ends.
		if time.Since(begun) < ttl/4 {
			journal.enter()
			for journal.lingers() && time.Since(begun) < ttl*3/4 {
				time.Sleep(10 * time.Millisecond)
			}
			how := "held"
			if time.Since(begun) > ttl {
				how = "slept"
			}
			journal.leave(how)
		}
		_, err := client.Revoke(context.Background(), lease)
		must(err)
		time.Sleep(2 * time.Millisecond)
	}
}

// lock creates the key on a new lease; false if the key exists.
func lock(client *clientv3.Client, key string, seconds int64) (clientv3.LeaseID, bool) {
	ctx := context.Background()
	lease, err := client.Grant(ctx, seconds)
	must(err)
	answer, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "locked", clientv3.WithLease(lease.ID))).
		Commit()
	must(err)
	if !answer.Succeeded {
		_, err := client.Revoke(ctx, lease.ID)
		must(err)
	}
	return lease.ID, answer.Succeeded
}
