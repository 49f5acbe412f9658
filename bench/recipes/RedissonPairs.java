// Measures how often Redisson's RLock locks and unlocks, as a comparison.
//
// It is started as `RedissonPairs PORT` and reads lines of `TASKS MILLIS`: each task is a thread with its own name. It
// answers each line with pairs per second. It ends at the end of its input.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class RedissonPairs {
	private final RedissonClient client;
	private final ExecutorService threads = Executors.newCachedThreadPool();

	public static void main(String[] arguments) throws Exception {
		var program = new RedissonPairs(arguments[0]);
		var lines = new BufferedReader(new InputStreamReader(System.in));
		for (var line = lines.readLine(); line != null; line = lines.readLine()) {
			var words = line.split(" ");
			double rate = program.rate(Integer.parseInt(words[0]), Long.parseLong(words[1]));
			System.out.println(String.format(Locale.ROOT, "%.1f", rate));
		}
		program.client.shutdown();
		System.exit(0);
	}

	private RedissonPairs(String port) {
		var config = new Config();
		config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
		this.client = Redisson.create(config);
	}

	private double rate(int count, long millis) throws Exception {
		var tasks = new ArrayList<Callable<Integer>>();
		long begin = System.nanoTime();
		long end = begin + TimeUnit.MILLISECONDS.toNanos(millis);
		for (int number = 0; number < count; number++) {
			var lock = client.getLock("redisson-" + number);
			tasks.add(() -> pairs(lock, end));
		}
		int done = 0;
		for (Future<Integer> pairs : threads.invokeAll(tasks)) {
			done += pairs.get();
		}
		return done * 1e9 / (System.nanoTime() - begin);
	}

	private static int pairs(RLock lock, long end) {
		int done = 0;
		while (System.nanoTime() < end) {
			lock.lock();
			lock.unlock();
			done++;
		}
		return done;
	}
}
