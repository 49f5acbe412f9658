// Measures how often redsync locks and unlocks, as a comparison.
//
// It is started as `redsync_pairs PORT` and reads lines of `TASKS MILLIS`: each task has its own name. It answers each
// line with pairs per second. It ends at the end of its input.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	client "github.com/redis/go-redis/v9"
)

const ttl = 30 * time.Second

func main() {
	server := client.NewClient(&client.Options{Addr: "127.0.0.1:" + os.Args[1]})
	locks := redsync.New(goredis.NewPool(server))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var tasks, millis int
		_, err := fmt.Sscan(lines.Text(), &tasks, &millis)
		must(err)
		fmt.Printf("%.1f\n", rate(locks, tasks, time.Duration(millis)*time.Millisecond))
	}
}

func rate(locks *redsync.Redsync, tasks int, slice time.Duration) float64 {
	begin := time.Now()
	counts := make(chan int)
	for task := range tasks {
		mutex := locks.NewMutex(fmt.Sprintf("redsync-%d", task), redsync.WithExpiry(ttl))
		go func() { counts <- pairs(mutex, begin.Add(slice)) }()
	}
	done := 0
	for range tasks {
		done += <-counts
	}
	return float64(done) / time.Since(begin).Seconds()
}

func pairs(mutex *redsync.Mutex, end time.Time) int {
	done := 0
	for time.Now().Before(end) {
		must(mutex.Lock())
		_, err := mutex.Unlock()
		must(err)
		done++
	}
	return done
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
