// A program in Go that locks on ZooKeeper by a recipe written by hand, as articles print it: an ephemeral sequential node
// `lock-` in a directory, sorted by the whole name, and a watch of the node ahead by GetW.
//
// usage:
//
//	by_hand until SERVER PATH TTL DIRECTORY WHO    sections until the file "over" exists
//	by_hand hold  SERVER PATH TTL                  prints "held", then holds until its standard input ends
//	by_hand try   SERVER PATH TTL                  tries once; prints "held" or "taken"
//
// PATH is the directory of the lock. TTL is the session timeout in milliseconds. DIRECTORY is that of leasehold's own
// programs, see e2e/src/turns.rs.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

var what, server, path = os.Args[1], os.Args[2], os.Args[3]

func ttl() time.Duration {
	millis, err := strconv.Atoi(os.Args[4])
	must(err)
	return time.Duration(millis) * time.Millisecond
}

type lock struct {
	conn *zk.Conn
	node string
}

// Creates the node of a claim.
func (l *lock) enqueue() {
	node, err := l.conn.Create(path+"/lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	must(err)
	l.node = node
}

// The node ahead of the claim; "" if the claim holds.
func (l *lock) ahead() string {
	nodes, _, err := l.conn.Children(path)
	must(err)
	sort.Strings(nodes)
	for at, name := range nodes {
		if path+"/"+name == l.node {
			if at == 0 {
				return ""
			}
			return path + "/" + nodes[at-1]
		}
	}
	must(errors.New("the node is gone"))
	return ""
}

// Waits until the claim holds.
func (l *lock) wait() {
	for {
		ahead := l.ahead()
		if ahead == "" {
			return
		}
		_, _, gone, err := l.conn.GetW(ahead)
		if err == nil {
			<-gone
		}
	}
}

func (l *lock) release() {
	must(l.conn.Delete(l.node, -1))
}

func main() {
	conn, _, err := zk.Connect([]string{server}, ttl(), zk.WithLogger(log.New(io.Discard, "", 0)))
	must(err)
	defer conn.Close()
	parts := strings.Split(path, "/")
	for end := 2; end <= len(parts); end++ {
		_, err := conn.Create(strings.Join(parts[:end], "/"), nil, 0, zk.WorldACL(zk.PermAll))
		if err != zk.ErrNodeExists {
			must(err)
		}
	}
	l := &lock{conn: conn}
	switch what {
	case "until":
		takeTurns(l, os.Args[5], os.Args[6])
	case "try":
		l.enqueue()
		if l.ahead() == "" {
			fmt.Println("held")
		} else {
			fmt.Println("taken")
		}
		l.release()
	default:
		l.enqueue()
		l.wait()
		fmt.Println("held")
		_, _ = io.ReadAll(os.Stdin)
		l.release()
	}
}

func takeTurns(l *lock, directory, who string) {
	journal := openJournal(directory, who)
	for !journal.isOver() {
		l.enqueue()
		l.wait()
		journal.enter()
		how, last := "held", time.Now()
		for journal.lingers() {
			time.Sleep(10 * time.Millisecond)
			// The machine did not run the program, so its session may have ended.
			if time.Since(last) > ttl()/2 {
				how = "slept"
			}
			last = time.Now()
		}
		journal.leave(how)
		l.release()
		time.Sleep(2 * time.Millisecond)
	}
}
