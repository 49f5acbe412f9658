// A program in Go with the lock of many articles: SETNX with an expiry, a goroutine that renews at each half of the ttl
// with a script that compares, and a script that compares and deletes.
//
// usage: redis_by_hand PORT KEY TTL DIRECTORY WHO
//
// TTL is in milliseconds. The directory is that of leasehold's own programs, see e2e/src/turns.rs.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The pause between two tries.
const retry = 20 * time.Millisecond

var (
	renewScript = redis.NewScript(
		`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("expire", KEYS[1], ARGV[2]) end return 0`)
	releaseScript = redis.NewScript(
		`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
	ctx = context.Background()
)

type lock struct {
	client *redis.Client
	key    string
	value  string
	ttl    time.Duration
	stop   context.CancelFunc
}

func (l *lock) tryLock() bool {
	l.value = fmt.Sprintf("%d_%d", os.Getpid(), time.Now().UnixNano())
	ok, err := l.client.SetNX(ctx, l.key, l.value, l.ttl).Result()
	if err != nil || !ok {
		return false
	}
	renewing, stop := context.WithCancel(ctx)
	l.stop = stop
	go l.renew(renewing)
	return true
}

// Gives up at the first error, without telling anybody.
func (l *lock) renew(renewing context.Context) {
	ticker := time.NewTicker(l.ttl / 2)
	defer ticker.Stop()
	for {
		select {
		case <-renewing.Done():
			return
		case <-ticker.C:
			seconds := int(l.ttl.Seconds())
			renewed, err := renewScript.Run(ctx, l.client, []string{l.key}, l.value, seconds).Int()
			if err != nil || renewed == 0 {
				return
			}
		}
	}
}

func (l *lock) unlock() {
	l.stop()
	releaseScript.Run(ctx, l.client, []string{l.key}, l.value)
}

func main() {
	port, key, directory, who := os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	millis, err := strconv.Atoi(os.Args[3])
	must(err)
	ttl := time.Duration(millis) * time.Millisecond
	journal := openJournal(directory, who)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	for !journal.isOver() {
		held := &lock{client: client, key: key, ttl: ttl}
		if !held.tryLock() {
			time.Sleep(retry)
			continue
		}
		journal.enter()
		looked, longest := time.Now(), time.Duration(0)
		for journal.lingers() {
			time.Sleep(10 * time.Millisecond)
			longest = max(longest, time.Since(looked))
			looked = time.Now()
		}
		how := "held"
		if max(longest, time.Since(looked)) > ttl/2 {
			// The machine did not run this program for a long time: no fault of the lock.
			how = "slept"
		}
		journal.leave(how)
		held.unlock()
		time.Sleep(2 * time.Millisecond)
	}
}
