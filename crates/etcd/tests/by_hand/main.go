// A lock that a program writes by hand with etcd's Go client: one transaction creates the key if it is absent, on a
// lease that is not renewed, and the end of the lease releases. No waiter is queued: the program tries again.
//
// It is started as `by_hand ENDPOINT TTL_SECONDS`, reads one command from each line of its input, and answers each with
// a line.
//
//	lock KEY              locked REVISION (the key's creation), or taken
//	unlock KEY            unlocked: revokes the lease
//	delete KEY            deleted: deletes the key, and leaves the lease
//	turns KEY COUNT DIR   done: COUNT sections under the lock, each of which counts in the directory DIR
//
// The answer to a command that fails is `error TEXT`.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
)

func main() {
	seconds, err := strconv.ParseInt(os.Args[2], 10, 64)
	exitOn(err)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{os.Args[1]},
		DialTimeout: 10 * time.Second,
	})
	exitOn(err)
	defer client.Close()
	locker := &locker{client: client, seconds: seconds, leases: make(map[string]clientv3.LeaseID)}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := locker.run(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error " + strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Println(answer)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

type locker struct {
	client  *clientv3.Client
	seconds int64
	// leases has the lease of each lock that is held.
	leases map[string]clientv3.LeaseID
}

func (l *locker) run(words []string) (string, error) {
	switch {
	case len(words) == 2 && words[0] == "lock":
		revision, err := l.lock(words[1])
		if err == errTaken {
			return "taken", nil
		}
		return fmt.Sprintf("locked %d", revision), err
	case len(words) == 2 && words[0] == "unlock":
		return "unlocked", l.unlock(words[1])
	case len(words) == 2 && words[0] == "delete":
		_, err := l.client.Delete(context.Background(), words[1])
		return "deleted", err
	case len(words) == 4 && words[0] == "turns":
		count, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		return "done", l.turns(words[1], count, words[3])
	}
	return "", fmt.Errorf("not a command: %q", words)
}

var errTaken = errors.New("taken")

// lock creates the key, or returns errTaken.
func (l *locker) lock(key string) (int64, error) {
	ctx := context.Background()
	lease, err := l.client.Grant(ctx, l.seconds)
	if err != nil {
		return 0, err
	}
	answer, err := l.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "locked", clientv3.WithLease(lease.ID))).
		Commit()
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		_, err := l.client.Revoke(ctx, lease.ID)
		if err != nil {
			return 0, err
		}
		return 0, errTaken
	}
	l.leases[key] = lease.ID
	return answer.Header.Revision, nil
}

func (l *locker) unlock(key string) error {
	_, err := l.client.Revoke(context.Background(), l.leases[key])
	delete(l.leases, key)
	return err
}

func (l *locker) turns(key string, count int, dir string) error {
	for turn := 0; turn < count; {
		_, err := l.lock(key)
		if err == errTaken {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if err != nil {
			return err
		}
		if err := section(dir); err != nil {
			return err
		}
		if err := l.unlock(key); err != nil {
			return err
		}
		turn++
	}
	return nil
}

// section marks that a program is in its section, and counts the section in two steps, between which an overlap would
// lose a count.
func section(dir string) error {
	inside := filepath.Join(dir, "inside")
	file, err := os.OpenFile(inside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if os.IsExist(err) {
		return errors.New("another program is in its section")
	}
	if err != nil {
		return err
	}
	file.Close()
	text, err := os.ReadFile(filepath.Join(dir, "count"))
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "count"), []byte(strconv.Itoa(count+1)), 0o644); err != nil {
		return err
	}
	return os.Remove(inside)
}
