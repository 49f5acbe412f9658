// A program that locks with Curator, for tests that two kinds of programs exclude each other.
//
// It is started as `Curator SERVERS SESSION_MS [USER:PASSWORD]`, reads commands line by line and answers line by line.
// With a login it creates nodes that only this login may access. Each THREAD is a thread of the program, so that one
// thread can wait while others continue. A thread has its own holds and runs its commands in order.
//
//	lock THREAD PATH [LIMIT_MS]        locked THREAD NODE, or late THREAD once the limit is over: a mutex
//	read THREAD PATH [LIMIT_MS]        as lock: the shared side of a read-write lock
//	write THREAD PATH [LIMIT_MS]       as lock: the exclusive side of a read-write lock
//	permit THREAD PATH MOST [LIMIT_MS] as lock: one permit of at most MOST
//	latch THREAD PATH ID [LIMIT_MS]    as lock: the lead of a LeaderLatch, as the participant ID
//	leaders PATH                       leaders ID...: the participants of a LeaderLatch, the leader first
//	revocable THREAD PATH              as lock, and asked THREAD when a client revokes it
//	unlock THREAD                      unlocked THREAD: the last lock of the thread
//	revoke NODE                        revoked: its holder is asked to release it
//	participants PATH                  participants NODE...: of a mutex, in Curator's order
//	session                            session NUMBER, in hexadecimal digits
//	state                              state CONNECTED, SUSPENDED, RECONNECTED or LOST, the newest that Curator reported
//	quit                               ends in order, like the end of the input
//
// An error is answered by `error TEXT`, or `error THREAD TEXT`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;

public class Curator {
	/** Longer than any test waits. */
	private static final long NO_LIMIT_MS = TimeUnit.HOURS.toMillis(1);
	private static final int START_LIMIT_S = 20;

	private final CuratorFramework client;
	private final Map<String, Worker> workers = new HashMap<>();
	/** One object for each path, because Curator counts the locks of a thread in it. */
	private final Map<String, InterProcessMutex> mutexes = new HashMap<>();
	private final Map<String, InterProcessReadWriteLock> readWrites = new HashMap<>();
	private volatile ConnectionState state = ConnectionState.CONNECTED;
	/** The program is ending, and prints nothing more. */
	private boolean quiet;

	public static void main(String[] arguments) throws Exception {
		var program = new Curator(arguments);
		var lines = new BufferedReader(new InputStreamReader(System.in));
		for (var line = lines.readLine(); line != null && !line.equals("quit"); line = lines.readLine()) {
			try {
				program.run(line.split(" "));
			} catch (Exception error) {
				program.print("error " + oneLine(error));
			}
		}
		program.quit();
	}

	private Curator(String[] arguments) throws InterruptedException {
		int session = Integer.parseInt(arguments[1]);
		var builder = CuratorFrameworkFactory.builder()
			.connectString(arguments[0])
			.sessionTimeoutMs(session)
			.connectionTimeoutMs(session)
			.retryPolicy(new RetryNTimes(100, 100));
		if (arguments.length > 2) {
			builder.authorization("digest", arguments[2].getBytes()).aclProvider(new CreatorOnly());
		}
		client = builder.build();
		client.getConnectionStateListenable().addListener((client, now) -> state = now);
		client.start();
		if (!client.blockUntilConnected(START_LIMIT_S, TimeUnit.SECONDS)) {
			throw new IllegalStateException("not connected after " + START_LIMIT_S + " s");
		}
	}

	private void run(String[] words) throws Exception {
		switch (words[0]) {
			case "lock" -> lock(words[1], mutex(words[2]), limit(words, 3));
			case "read" -> lock(words[1], readWrite(words[2]).readLock(), limit(words, 3));
			case "write" -> lock(words[1], readWrite(words[2]).writeLock(), limit(words, 3));
			case "permit" -> permit(words[1], words[2], Integer.parseInt(words[3]), limit(words, 4));
			case "latch" -> latch(words[1], words[2], words[3], limit(words, 4));
			case "leaders" -> print(leaders(words[1]));
			case "revocable" -> revocable(words[1], words[2]);
			case "unlock" -> worker(words[1]).unlock();
			case "revoke" -> {
				Revoker.attemptRevoke(client, words[1]);
				print("revoked");
			}
			case "participants" -> {
				var nodes = mutex(words[1]).getParticipantNodes();
				print(nodes.isEmpty() ? "participants" : "participants " + String.join(" ", nodes));
			}
			case "session" ->
				print("session " + Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId()));
			case "state" -> print("state " + state);
			default -> throw new IllegalArgumentException("not a command: " + String.join(" ", words));
		}
	}

	private void permit(String thread, String path, int most, long limit) {
		var semaphore = new InterProcessSemaphoreV2(client, path, most);
		worker(thread).lock(() -> {
			Lease lease = semaphore.acquire(limit, TimeUnit.MILLISECONDS);
			return lease == null ? null : new Held(path + "/leases/" + lease.getNodeName(), lease::close);
		});
	}

	private void latch(String thread, String path, String id, long limit) {
		worker(thread).lock(() -> {
			var latch = new LeaderLatch(client, path, id);
			latch.start();
			if (!latch.await(limit, TimeUnit.MILLISECONDS)) {
				latch.close();
				return null;
			}
			return new Held(latch.getOurPath(), latch::close);
		});
	}

	private String leaders(String path) throws Exception {
		var ids = new StringBuilder("leaders");
		var first = true;
		for (Participant participant : new LeaderLatch(client, path, "observer").getParticipants()) {
			if (participant.isLeader() != first) {
				throw new IllegalStateException("the leader is not the first participant");
			}
			first = false;
			ids.append(' ').append(participant.getId());
		}
		return ids.toString();
	}

	private void revocable(String thread, String path) {
		var mutex = new InterProcessMutex(client, path);
		mutex.makeRevocable(asked -> print("asked " + thread));
		lock(thread, mutex, NO_LIMIT_MS);
	}

	private void lock(String thread, InterProcessMutex mutex, long limit) {
		worker(thread).lock(() -> {
			boolean acquired = mutex.acquire(limit, TimeUnit.MILLISECONDS);
			return acquired ? new Held(nodeOf(mutex), mutex::release) : null;
		});
	}

	private InterProcessMutex mutex(String path) {
		return mutexes.computeIfAbsent(path, key -> new InterProcessMutex(client, path));
	}

	private InterProcessReadWriteLock readWrite(String path) {
		return readWrites.computeIfAbsent(path, key -> new InterProcessReadWriteLock(client, path));
	}

	private Worker worker(String thread) {
		return workers.computeIfAbsent(thread, Worker::new);
	}

	/** Ends the session, with all its locks and queue entries. */
	private void quit() {
		synchronized (this) {
			quiet = true;
		}
		client.close();
		// Some threads may still be waiting.
		System.exit(0);
	}

	private synchronized void print(String line) {
		if (!quiet) {
			System.out.println(line);
		}
	}

	/** The node by which the calling thread holds the mutex. */
	private static String nodeOf(InterProcessMutex mutex) throws Exception {
		// The method is protected, so it is called by reflection.
		var method = InterProcessMutex.class.getDeclaredMethod("getLockPath");
		method.setAccessible(true);
		return (String) method.invoke(mutex);
	}

	/** The time limit in milliseconds: the word at this index, if there is one. */
	private static long limit(String[] words, int index) {
		return words.length > index ? Long.parseLong(words[index]) : NO_LIMIT_MS;
	}

	private static String oneLine(Throwable error) {
		return error.toString().replaceAll("\\s+", " ");
	}

	private interface Release {
		void run() throws Exception;
	}

	private interface Acquire {
		/** Returns null when the time limit is over. */
		Held run() throws Exception;
	}

	/** A lock that a thread holds, by this node. */
	private record Held(String node, Release release) {}

	/** A thread that locks. */
	private class Worker {
		private final String name;
		private final ExecutorService thread;
		private final ArrayDeque<Held> held = new ArrayDeque<>();

		Worker(String name) {
			this.name = name;
			thread = Executors.newSingleThreadExecutor(work -> new Thread(work, name));
		}

		void lock(Acquire acquire) {
			run(() -> {
				var acquired = acquire.run();
				if (acquired == null) {
					print("late " + name);
					return;
				}
				held.push(acquired);
				print("locked " + name + " " + acquired.node);
			});
		}

		void unlock() {
			run(() -> {
				held.pop().release.run();
				print("unlocked " + name);
			});
		}

		private void run(Release work) {
			thread.execute(() -> {
				try {
					work.run();
				} catch (Exception error) {
					print("error " + name + " " + oneLine(error));
				}
			});
		}
	}

	/** Gives all rights on a node to its creator, and none to other users. */
	private static class CreatorOnly implements ACLProvider {
		@Override
		public List<ACL> getDefaultAcl() {
			return ZooDefs.Ids.CREATOR_ALL_ACL;
		}

		@Override
		public List<ACL> getAclForPath(String path) {
			return ZooDefs.Ids.CREATOR_ALL_ACL;
		}
	}
}
