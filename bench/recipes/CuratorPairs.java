// Measures how often Curator's InterProcessMutex locks and unlocks, as a comparison.
//
// It is started as `CuratorPairs SERVERS` and reads lines; it answers each line with pairs per second.
//
//	free CLIENTS MILLIS        each client has its own name
//	contended CLIENTS MILLIS   all clients use one name
//	line CLIENTS MILLIS        as contended, on leasehold's name "line"; after the rate follows the longest wait of a
//	                           client in milliseconds
//
// A client is one session with one thread. The program ends at the end of its input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

public class CuratorPairs {
	private static final int SESSION_MS = 30_000;
	private static final int START_LIMIT_S = 20;

	private final String servers;
	private final List<CuratorFramework> clients = new ArrayList<>();
	/** The longest wait in nanoseconds since the last order. */
	private final AtomicLong longest = new AtomicLong();
	private final ExecutorService threads = Executors.newCachedThreadPool();

	public static void main(String[] arguments) throws Exception {
		var program = new CuratorPairs(arguments[0]);
		var lines = new BufferedReader(new InputStreamReader(System.in));
		for (var line = lines.readLine(); line != null; line = lines.readLine()) {
			var words = line.split(" ");
			double rate = program.rate(words[0], Integer.parseInt(words[1]), Long.parseLong(words[2]));
			var longest = words[0].equals("line") ? String.format(Locale.ROOT, " %.3f", program.longest.get() / 1e6) : "";
			System.out.println(String.format(Locale.ROOT, "%.1f%s", rate, longest));
		}
		program.clients.forEach(CuratorFramework::close);
		System.exit(0);
	}

	private CuratorPairs(String servers) {
		this.servers = servers;
	}

	private double rate(String what, int count, long millis) throws Exception {
		longest.set(0);
		while (clients.size() < count) {
			clients.add(connected());
		}
		var tasks = new ArrayList<Callable<Integer>>();
		long begin = System.nanoTime();
		long end = begin + TimeUnit.MILLISECONDS.toNanos(millis);
		for (int number = 0; number < count; number++) {
			var path = switch (what) {
				case "free" -> "/curator/bench-" + number;
				case "line" -> "/locks/line";
				default -> "/curator/contended";
			};
			var mutex = new InterProcessMutex(clients.get(number), path);
			tasks.add(() -> pairs(mutex, end));
		}
		int done = 0;
		for (Future<Integer> pairs : threads.invokeAll(tasks)) {
			done += pairs.get();
		}
		return done * 1e9 / (System.nanoTime() - begin);
	}

	private int pairs(InterProcessMutex mutex, long end) throws Exception {
		int done = 0;
		while (System.nanoTime() < end) {
			long asked = System.nanoTime();
			mutex.acquire();
			longest.accumulateAndGet(System.nanoTime() - asked, Math::max);
			mutex.release();
			done++;
		}
		return done;
	}

	private CuratorFramework connected() throws InterruptedException {
		var client = CuratorFrameworkFactory.builder()
			.connectString(servers)
			.sessionTimeoutMs(SESSION_MS)
			.connectionTimeoutMs(SESSION_MS)
			.retryPolicy(new RetryNTimes(100, 100))
			.build();
		client.start();
		if (!client.blockUntilConnected(START_LIMIT_S, TimeUnit.SECONDS)) {
			throw new IllegalStateException("not connected after " + START_LIMIT_S + " s");
		}
		return client;
	}
}
