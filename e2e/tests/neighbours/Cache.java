import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A program that writes to a database under the write lock of Redisson, and rebuilds a cache under the read lock. The
 * database and the cache are keys of the same server. The cache is never evicted.
 *
 * <p>usage: Cache PORT NAME TTL DIRECTORY WHO runs until the file "over" exists. It records each write, like
 * e2e/src/turns.rs. It fails if a write was under way during a rebuild.
 */
public class Cache {
    private final RedissonClient client;
    private final RReadWriteLock lock;
    private final Path directory;
    private final Path journal;
    private final String who;

    private Cache(String port, String name, long watchdog, Path directory, String who) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdog);
        config.setThreads(2);
        config.setNettyThreads(2);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(8);
        this.client = Redisson.create(config);
        this.lock = client.getReadWriteLock(name);
        this.directory = directory;
        this.journal = directory.resolve("journal");
        this.who = who;
    }

    public static void main(String[] args) throws Exception {
        long ttl = Long.parseLong(args[2]);
        Cache program = new Cache(args[0], args[1], ttl, Path.of(args[3]), args[4]);
        while (!Files.exists(program.directory.resolve("over"))) {
            program.write(ttl);
            program.rebuild();
            Thread.sleep(5);
        }
        program.client.shutdown();
    }

    private void write(long ttl) throws Exception {
        if (!lock.writeLock().tryLock(5, TimeUnit.SECONDS)) {
            return;
        }
        note("enter " + who + " -");
        var database = client.<String>getBucket("database", StringCodec.INSTANCE);
        String before = database.get();
        // Two steps on purpose: a rebuild between them would cache a value that is about to change.
        database.set(String.valueOf(before == null ? 1 : Integer.parseInt(before) + 1));
        String side = who.split("-")[0];
        long looked = System.nanoTime();
        long longest = 0;
        while (side.equals(read(directory.resolve("linger")))) {
            Thread.sleep(10);
            longest = Math.max(longest, System.nanoTime() - looked);
            looked = System.nanoTime();
        }
        longest = Math.max(longest, System.nanoTime() - looked);
        // A stall of the machine is no fault of a lock.
        note("leave " + who + (longest > ttl * 500_000 ? " slept" : " held"));
        lock.writeLock().unlock();
    }

    private void rebuild() throws Exception {
        if (!lock.readLock().tryLock(5, TimeUnit.SECONDS)) {
            return;
        }
        String before = written();
        var database = client.<String>getBucket("database", StringCodec.INSTANCE);
        client.<String>getBucket("cache", StringCodec.INSTANCE).set(String.valueOf(database.get()));
        String after = written();
        lock.readLock().unlock();
        client.getAtomicLong("rebuilds").incrementAndGet();
        if (before.startsWith("enter") || !before.equals(after)) {
            throw new IllegalStateException("a write during a rebuild: " + before + ", then " + after);
        }
    }

    /** The last line of the journal: it begins with "enter" while a program writes. */
    private String written() throws IOException {
        var lines = Files.readAllLines(journal);
        return lines.isEmpty() ? "" : lines.get(lines.size() - 1);
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException error) {
            return null;
        }
    }

    /** Writes a line in one step, so that no other line is mixed into it. */
    private void note(String line) throws IOException {
        Files.write(journal, (line + "\n").getBytes(StandardCharsets.UTF_8), StandardOpenOption.APPEND);
    }
}
