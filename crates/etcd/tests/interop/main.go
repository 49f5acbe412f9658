// A program that locks with etcd's own Go client, for tests that two kinds of programs exclude each other.
//
// It is started as `interop ENDPOINT TTL_SECONDS`, reads one command from each line of its input, and answers each with
// a line. It waits for locks in the background, so that other commands work meanwhile.
//
//	lock PREFIX          queued (if it has to wait), then locked KEY REVISION (the key's creation)
//	unlock PREFIX        unlocked
//	owner PREFIX         owner true, owner false: the result of a transaction that checks the ownership
//	server-lock NAME     as lock, by the lock service of the server, on a lease of its own
//	server-unlock KEY    unlocked
//	quit                 ends in order, as does the end of its input
//
// The answer to a command that fails is `error TEXT`.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"go.etcd.io/etcd/etcdserver/api/v3lock/v3lockpb"
)

func main() {
	program, err := start(os.Args[1:])
	if err != nil {
		fmt.Println("error", oneLine(err))
		os.Exit(1)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 1 && words[0] == "quit" {
			break
		}
		if err := program.run(words); err != nil {
			program.print("error %s", oneLine(err))
		}
	}
	program.quit()
}

// program is a client of etcd, and the locks that its commands acquired.
type program struct {
	client  *clientv3.Client
	session *concurrency.Session
	locks   v3lockpb.LockClient
	ttl     int64

	// guard protects the fields below, which background goroutines change too.
	guard    sync.Mutex
	mutexes  map[string]*concurrency.Mutex
	sessions map[string]*concurrency.Session
	// quiet: the program is ending, and prints nothing more.
	quiet bool
}

func start(arguments []string) (*program, error) {
	if len(arguments) != 2 {
		return nil, errors.New("arguments: ENDPOINT TTL_SECONDS")
	}
	ttl, err := strconv.Atoi(arguments[1])
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(arguments[0], ","),
		DialTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	return &program{
		client:   client,
		session:  session,
		locks:    v3lockpb.NewLockClient(client.ActiveConnection()),
		ttl:      int64(ttl),
		mutexes:  make(map[string]*concurrency.Mutex),
		sessions: make(map[string]*concurrency.Session),
	}, nil
}

func (p *program) run(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("not a command: %q", words)
	}
	name := words[1]
	switch words[0] {
	case "lock":
		return p.lock(name)
	case "unlock":
		return p.unlock(name)
	case "owner":
		return p.owner(name)
	case "server-lock":
		return p.serverLock(name)
	case "server-unlock":
		return p.serverUnlock(name)
	}
	return fmt.Errorf("not a command: %q", words)
}

func (p *program) lock(prefix string) error {
	mutex := concurrency.NewMutex(p.session, prefix)
	p.lockInBackground(prefix, p.session.Lease(), func(ctx context.Context) error {
		if err := mutex.Lock(ctx); err != nil {
			return err
		}
		p.guard.Lock()
		defer p.guard.Unlock()
		p.mutexes[prefix] = mutex
		return nil
	})
	return nil
}

func (p *program) unlock(prefix string) error {
	mutex, err := p.mutex(prefix)
	if err != nil {
		return err
	}
	if err := mutex.Unlock(p.client.Ctx()); err != nil {
		return err
	}
	p.print("unlocked")
	return nil
}

func (p *program) owner(prefix string) error {
	mutex, err := p.mutex(prefix)
	if err != nil {
		return err
	}
	answer, err := p.client.Txn(p.client.Ctx()).If(mutex.IsOwner()).Commit()
	if err != nil {
		return err
	}
	p.print("owner %t", answer.Succeeded)
	return nil
}

// mutex returns the mutex that the last lock command for this prefix used, also after it was unlocked.
func (p *program) mutex(prefix string) (*concurrency.Mutex, error) {
	p.guard.Lock()
	defer p.guard.Unlock()
	if mutex, found := p.mutexes[prefix]; found {
		return mutex, nil
	}
	return nil, fmt.Errorf("never locked here: %s", prefix)
}

func (p *program) serverLock(name string) error {
	session, err := concurrency.NewSession(p.client, concurrency.WithTTL(int(p.ttl)))
	if err != nil {
		return err
	}
	lease := session.Lease()
	p.guard.Lock()
	p.sessions[keyOf(name, lease)] = session
	p.guard.Unlock()
	p.lockInBackground(name, lease, func(ctx context.Context) error {
		_, err := p.locks.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(lease)})
		return err
	})
	return nil
}

func (p *program) serverUnlock(key string) error {
	if _, err := p.locks.Unlock(p.client.Ctx(), &v3lockpb.UnlockRequest{Key: []byte(key)}); err != nil {
		return err
	}
	p.guard.Lock()
	session, found := p.sessions[key]
	delete(p.sessions, key)
	p.guard.Unlock()
	if found {
		if err := session.Close(); err != nil {
			return err
		}
	}
	p.print("unlocked")
	return nil
}

// lockInBackground locks in the background. It reports when the key is queued, and when it holds.
func (p *program) lockInBackground(prefix string, lease clientv3.LeaseID, lock func(context.Context) error) {
	key := keyOf(prefix, lease)
	ctx, stopWatch := context.WithCancel(p.client.Ctx())
	// The watch starts before the key can exist, so that its creation is not missed.
	created := p.client.Watch(ctx, key, clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	<-created
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		p.reportQueued(prefix, key, created)
	}()
	go func() {
		err := lock(p.client.Ctx())
		stopWatch()
		// "queued" is printed before "locked".
		<-reported
		if err == nil {
			err = p.reportLocked(key)
		}
		if err != nil {
			p.print("error %s", oneLine(err))
		}
	}()
}

// reportQueued waits until the key is created, and reports if an older key is ahead of it.
func (p *program) reportQueued(prefix, key string, created clientv3.WatchChan) {
	if _, isCreated := <-created; !isCreated {
		return
	}
	first, err := p.client.Get(p.client.Ctx(), prefix+"/", clientv3.WithFirstCreate()...)
	if err == nil && len(first.Kvs) == 1 && string(first.Kvs[0].Key) != key {
		p.print("queued")
	}
}

// reportLocked reports the key that holds, and its create revision.
func (p *program) reportLocked(key string) error {
	answer, err := p.client.Get(p.client.Ctx(), key)
	if err != nil {
		return err
	}
	if len(answer.Kvs) == 0 {
		return fmt.Errorf("locked, but gone: %s", key)
	}
	p.print("locked %s %d", key, answer.Kvs[0].CreateRevision)
	return nil
}

// quit revokes every lease, and with it all holds and waiting keys.
func (p *program) quit() {
	p.guard.Lock()
	p.quiet = true
	p.guard.Unlock()
	p.session.Close()
	for _, session := range p.sessions {
		session.Close()
	}
	p.client.Close()
}

func (p *program) print(format string, values ...interface{}) {
	p.guard.Lock()
	defer p.guard.Unlock()
	if !p.quiet {
		fmt.Printf(format+"\n", values...)
	}
}

// keyOf is how the Go client and the lock service name the key of a lease that locks.
func keyOf(prefix string, lease clientv3.LeaseID) string {
	return fmt.Sprintf("%s/%x", prefix, int64(lease))
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
