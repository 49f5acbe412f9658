// A program in Go that shares a lock of redsync on three servers with other programs, and records each of its sections.
//
// usage:
//
//	masters until PORTS KEY TTL DIRECTORY WHO    sections until the file "over" exists
//	masters hold  PORTS KEY TTL                  prints "held", then holds until its standard input ends
//	masters try   PORTS KEY TTL                  tries once; prints "held" or "taken"
//
// TTL is in milliseconds. The directory is that of leasehold's own programs, see e2e/src/turns.rs.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	client "github.com/redis/go-redis/v9"
)

// The pause between two tries. The pause of redsync is longer, and a program must notice soon that it has to end.
const retry = 20 * time.Millisecond

var what, ports, key = os.Args[1], os.Args[2], os.Args[3]

func ttl() time.Duration {
	millis, err := strconv.Atoi(os.Args[4])
	must(err)
	return time.Duration(millis) * time.Millisecond
}

// Tries to take a new mutex, as the examples of redsync do for each section.
func taken(locks *redsync.Redsync) (*redsync.Mutex, bool) {
	mutex := locks.NewMutex(key, redsync.WithExpiry(ttl()), redsync.WithTries(1))
	err := mutex.Lock()
	return mutex, err == nil
}

func waited(locks *redsync.Redsync) *redsync.Mutex {
	for {
		if mutex, ok := taken(locks); ok {
			return mutex
		}
		time.Sleep(retry)
	}
}

func main() {
	var pools []redis.Pool
	for _, port := range strings.Split(ports, ",") {
		// Without ContextTimeoutEnabled redsync waits for a hung node for longer than the lease, and never gets the lock.
		options := client.Options{Addr: "127.0.0.1:" + port, ContextTimeoutEnabled: true}
		pools = append(pools, goredis.NewPool(client.NewClient(&options)))
	}
	locks := redsync.New(pools...)
	switch what {
	case "until":
		takeTurns(locks, os.Args[5], os.Args[6])
	case "try":
		if _, ok := taken(locks); ok {
			fmt.Println("held")
		} else {
			fmt.Println("taken")
		}
	default:
		mutex := waited(locks)
		fmt.Println("held")
		_, _ = io.ReadAll(os.Stdin)
		_, _ = mutex.Unlock()
	}
}

func takeTurns(locks *redsync.Redsync, directory, who string) {
	journal := openJournal(directory, who)
	for !journal.isOver() {
		mutex, ok := taken(locks)
		if !ok {
			time.Sleep(retry)
			continue
		}
		// This program renews no lease, so it leaves its section before the lease ends.
		end := mutex.Until()
		if time.Until(end) > ttl()*3/4 {
			journal.enter()
			for journal.lingers() && time.Until(end) > ttl()/4 {
				time.Sleep(10 * time.Millisecond)
			}
			how := "held"
			if time.Until(end) < 0 {
				how = "slept"
			}
			journal.leave(how)
		}
		_, _ = mutex.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
}
