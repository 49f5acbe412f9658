// Measures how often the mutex of etcd's Go client (concurrency.Mutex) locks and unlocks, as a comparison.
//
// It is started as `etcd_mutex_pairs PORT` and reads lines of `free TASKS MILLIS` (each task has its own name) or
// `line TASKS MILLIS` (all tasks lock leasehold's name "line"); each task has a session of its own. It answers each line
// with two figures: pairs per second, and the longest wait of a task in milliseconds. It ends at the end of its input.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

const (
	ttlSeconds = 30
	oneName    = "/locks/line"
)

type result struct {
	pairs   int
	longest time.Duration
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:" + os.Args[1]}})
	must(err)
	var sessions []*concurrency.Session
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var what string
		var tasks, millis int
		_, err := fmt.Sscan(lines.Text(), &what, &tasks, &millis)
		must(err)
		for len(sessions) < tasks {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(ttlSeconds))
			must(err)
			sessions = append(sessions, session)
		}
		var mutexes []*concurrency.Mutex
		for task, session := range sessions[:tasks] {
			name := oneName
			if what == "free" {
				name = fmt.Sprintf("/locks/go-%d", task)
			}
			mutexes = append(mutexes, concurrency.NewMutex(session, name))
		}
		measure(mutexes, time.Duration(millis)*time.Millisecond)
	}
}

func measure(mutexes []*concurrency.Mutex, slice time.Duration) {
	begin := time.Now()
	results := make(chan result)
	for _, mutex := range mutexes {
		go func(mutex *concurrency.Mutex) { results <- pairs(mutex, begin.Add(slice)) }(mutex)
	}
	var all result
	for range mutexes {
		one := <-results
		all.pairs += one.pairs
		if one.longest > all.longest {
			all.longest = one.longest
		}
	}
	rate := float64(all.pairs) / time.Since(begin).Seconds()
	fmt.Printf("%.1f %.3f\n", rate, all.longest.Seconds()*1e3)
}

func pairs(mutex *concurrency.Mutex, end time.Time) result {
	var done result
	for time.Now().Before(end) {
		asked := time.Now()
		must(mutex.Lock(context.Background()))
		if waited := time.Since(asked); waited > done.longest {
			done.longest = waited
		}
		must(mutex.Unlock(context.Background()))
		done.pairs++
	}
	return done
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
